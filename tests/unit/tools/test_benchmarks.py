"""The benchmarks' own arithmetic: courses of BOTs, their order, tables, and what load reports."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from scripts.benchmarks import pilots
from scripts.benchmarks.harness import table
from scripts.benchmarks.harness.command import measurement
from scripts.benchmarks.harness.installation import BenchFailed
from scripts.benchmarks.harness.load import clients as load
from scripts.benchmarks.harness.usage import Memory, cpu_seconds, memory_of

from gridbot_client.protocol.messages import Assignment, ReplicaId

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_job_of_the_load_is_reported_with_an_output_of_its_own() -> None:
    assignment = Assignment(ReplicaId(3, 7, 1), "0" * 64, {"i": 7}, 60.0)

    reported = load.report(assignment)

    assert reported.id == assignment.id
    assert reported.outputs[0].content == load.output(7)
    assert load.output(7) != load.output(8)


def test_requests_are_summed_up_with_the_jobs_that_they_reported() -> None:
    tally = load.Tally(jobs=2)
    reports = [
        load.report(Assignment(ReplicaId(1, seq, 1), "0" * 64, {}, 60.0)) for seq in range(2)
    ]
    tally.add(0.1, [], was_empty=False)
    tally.add(0.3, reports, was_empty=True)

    found = load.summary(tally, seconds=4.0)

    assert (found["jobs"], found["requests"], found["empty_requests"]) == (2, 2, 1)
    assert found["p50_ms"] == pytest.approx(200.0)


def test_memory_adds_up_and_pss_is_the_sum_of_its_kinds() -> None:
    both = Memory(own=1, shared=2, files=3, rss=10) + Memory(own=4, shared=5, files=6, rss=20)

    assert both == Memory(own=5, shared=7, files=9, rss=30)
    assert both.pss == 21


def test_a_running_process_has_memory_and_cpu_time() -> None:
    roots = {"tests": os.getpid()}

    assert memory_of(roots).own > 1
    assert cpu_seconds(roots)["tests"] > 0


def test_cpu_time_of_processes_that_have_ended_counts_for_their_parent() -> None:
    roots = {"tests": os.getpid()}
    before = cpu_seconds(roots)["tests"]

    subprocess.run([sys.executable, "-c", BURN], check=True)

    # The kernel tells those of ended ones in ticks of 10 ms, of user and system time each.
    assert cpu_seconds(roots)["tests"] - before > 0.25


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "yes"),
        (1234567, "1,234,567"),
        (1234.5, "1,234"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        ("range", "range"),
    ],
)
def test_figures_are_shown_as_people_read_them(value: object, shown: str) -> None:
    assert table.text(value) == shown


def test_rows_are_one_json_document_or_a_table_of_all_their_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[dict[str, object]] = [{"kind": "a", "cpu": {"web": 1.5}}, {"kind": "b", "lag": 2}]

    table.show("some", rows, as_json=True)
    document = json.loads(capsys.readouterr().out)
    table.show("some", rows, as_json=False)
    printed = capsys.readouterr().out

    assert (document["bench"], document["rows"]) == ("some", rows)
    assert document["commit"]
    assert all(word in printed for word in ("cpu: web", "1.50", "lag", "2"))


def test_lines_have_the_columns_that_some_row_has_and_how_far_rounds_lie_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[dict[str, object]] = [
        {"rate": 100.0, "spread": {"rate": [90.0, 130.0]}, "busy_share": 0.125},
        {"rate": 50.0, "ratio": {"median": 0.5, "least": 0.4, "most": 0.5}},
    ]
    columns = {"per s": ["rate"], "part": ["busy_share"], "ratio": ["ratio"], "none": ["nothing"]}

    table.show_lines("some", rows, False, columns)
    printed = capsys.readouterr().out

    assert all(word in printed for word in ("100 ±20%", "12%", "0.500 ±10%"))
    assert "none" not in printed


def test_systems_on_slots_are_compared_within_each_round() -> None:
    def took(*to_ideal: float) -> list[dict[str, float]]:
        return [
            {"round": number, "after_first_seconds": 10 * value, "to_ideal": value}
            for number, value in enumerate(to_ideal)
        ]

    # A busy second round met both.
    found = {(1.0, "gridbot"): took(1.1, 2.1, 1.2), (1.0, "hyperqueue"): took(1.0, 2.0, 1.3)}
    ours, theirs = pilots.rows(80, found)

    assert (ours["system"], ours["rounds"], ours["to_ideal"]) == ("gridbot", 3, 1.2)
    assert ours["over_hyperqueue"] == pytest.approx(0.1)
    assert ours["spread"]["to_ideal"] == (1.1, 2.1)
    assert "over_hyperqueue" not in theirs


@pytest.mark.parametrize("end", [BenchFailed("no more"), SystemExit(143)])
def test_what_was_measured_before_an_interruption_is_printed(end: BaseException) -> None:
    def rounds() -> Iterator[list[dict[str, int]]]:
        yield [{"rounds": 1}]
        yield [{"rounds": 2}]
        raise end

    ended = CliRunner().invoke(measurement()(rounds), ["--json"])

    assert json.loads(ended.stdout.splitlines()[0])["rows"] == [{"rounds": 2}]
    assert ended.exit_code == (143 if isinstance(end, SystemExit) else 1)
