import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gridbot_client.pilot import node_check
from gridbot_client.pilot.behaviour import LEAVING_SECONDS, LOW_CPU, NodeRecord, PilotOptions
from gridbot_client.protocol.messages import ReplicaId, Report
from gridbot_client.work.idleness import Idleness

GOOD = Report(ReplicaId(1, 1, 1), "success", wall_seconds=30.0)
BAD = Report(ReplicaId(1, 2, 1), "error", "exit_nonzero")


def test_a_node_is_given_one_replica_until_it_has_ended_one_well() -> None:
    assert NodeRecord().wanted(64, 0, now=0.0) == 1
    assert NodeRecord().after([GOOD], now=0.0).wanted(64, 0, now=0.0) == 64
    assert NodeRecord().wanted(0, 0, now=0.0) == 0
    assert NodeRecord().wanted(64, 1, now=0.0) == 0
    assert NodeRecord().after([GOOD], now=0.0).wanted(64, 1, now=0.0) == 64


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([], [120, 240, 480, 960, 1800, 1800]),
        ([GOOD], [0, 60, 120, 240, 480, 960]),  # one failure may well be the job's own fault
    ],
)
def test_each_failure_in_a_row_doubles_the_wait_and_a_success_ends_it(
    first: list[Report], expected: list[float]
) -> None:
    record, waits = NodeRecord().after(first, 0.0), []
    for _ in expected:
        record = record.after([BAD], now=100.0)
        waits.append(record.ask_at - 100.0)
        assert record.wanted(64, 0, now=record.ask_at - 0.1) == 0
        assert record.wanted(64, 0, now=record.ask_at) == 1
    assert waits == expected
    assert record.after([GOOD], now=200.0).wanted(64, 0, now=200.0) == 64


def test_a_pilot_asks_for_nothing_that_would_outlive_it() -> None:
    record, pilot = NodeRecord().after([GOOD], 0.0), PilotOptions(ends_at=1000.0)
    assert not record.is_over(pilot.time_left(1000.0 - LEAVING_SECONDS - 31.0))
    assert record.is_over(pilot.time_left(1000.0 - LEAVING_SECONDS - 30.0))
    assert pilot.time_left(2000.0) == 0.0
    assert not record.is_over(PilotOptions().time_left(1e9))


@pytest.mark.parametrize(
    ("most", "queued", "worked", "expected"),
    [
        (60.0, 0.0, 0.0, 5.0),
        (60.0, 0.0, 600.0, 30.0),
        (60.0, 10.0, 100.0, 15.0),
        (60.0, 3600.0, 0.0, 60.0),
        (3.0, 0.0, 0.0, 3.0),
        (None, 0.0, 0.0, None),
    ],
)
def test_a_pilot_stays_idle_for_what_it_earned_and_what_the_next_one_would_wait(
    most: float | None, queued: float, worked: float, expected: float | None
) -> None:
    assert PilotOptions(queued_seconds=queued).idle_limit(most, worked) == expected


def test_a_replica_that_left_its_cpu_idle_makes_the_pilot_leave() -> None:
    assert NodeRecord().after([replace(BAD, reason=LOW_CPU)], 0.0).is_over(None)
    assert not NodeRecord().after([BAD], 0.0).is_over(None)


def test_idle_is_who_uses_too_little_over_a_whole_window() -> None:
    watch = Idleness(window_seconds=100.0, least_share=0.01)
    assert not watch.is_low(0.0, 5.0)
    assert not watch.is_low(99.0, 5.0)  # the window is not over
    assert not watch.is_low(100.0, 6.0)  # a hundredth is enough
    assert not watch.is_low(150.0, 6.0)
    assert watch.is_low(200.0, 6.9)


def test_who_computes_in_processes_that_nobody_waits_for_is_not_idle() -> None:
    watch = Idleness(window_seconds=100.0, least_share=0.01)
    # Workers of 40 s, one after another, seen every 10 s; each end takes 40 s from the sum.
    assert not any(watch.is_low(10.0 * look, 5.0 + 10.0 * look % 40.0) for look in range(100))
    assert not watch.is_low(1090.0, 35.0)
    assert watch.is_low(1190.0, 35.5), "once they are gone it may well be idle"


def test_a_sound_node_has_no_trouble(tmp_path: Path) -> None:
    assert node_check.trouble(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("echo no such library >&2; exit 127", "exit code 127: no such library"),
        ("echo 42 > answer", "gave a wrong answer"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_a_node_that_fails_the_test_job_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: str
) -> None:
    broken = tmp_path / "python"
    broken.write_text(f"#!/bin/sh\n{program}\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    assert words in node_check.trouble(tmp_path)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "LEAST_DISK_MB", 1 << 40)
    assert "MB needed" in node_check.trouble(tmp_path)
