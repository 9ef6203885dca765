"""The benchmarks as commands: they measure, and leave nothing behind when they are interrupted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from scripts.benchmarks.harness.load import generator
from tests.system.batch_systems import SLURM_PACKAGES, need
from tests.system.deployment import eventually

CHECKOUT = Path(__file__).parents[2]
BENCH = [sys.executable, "-m", "scripts.benchmarks.cli"]
COMMAND = [*BENCH, "dispatch", "--json"]


def measured(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Let a benchmark end; what it says if it fails is told."""
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended


@pytest.mark.parametrize("bench", ["dispatch", "boinc"])
def test_host_requests_are_measured_beside_the_floor(bench: str) -> None:
    command = [*BENCH, bench, "--quick", "--json"]
    ended = measured(command)
    document = json.loads(ended.stdout)
    (row,) = document["rows"]

    assert (document["bench"], row["jobs_per_rpc"], row["concurrency"]) == (bench, 5, 16)
    # Requests that came before the buffer was filled again carry no job.
    assert row["jobs_per_s"] > 4 * row["rpc_per_s"] * (1 - row["empty_share"])
    assert min(row["cpu_us_per_rpc"][name] for name in ("gunicorn", "postgresql", "load")) > 0
    assert row["to_floor"]["rpc_per_s"]["median"] < 1


# One short pair: this checkout's server, beside itself.
COMPARE = """
import json, sys
from scripts.benchmarks.compare import measure, row
from scripts.benchmarks.harness.host_requests import Size
((cell, pairs),) = measure(sys.executable, Size(1, 10.0, 300), [(5, 16)], print).items()
print(json.dumps(row(cell, pairs, limit=2.0)))
"""


def test_two_servers_are_measured_in_pairs_by_one_generator() -> None:
    ended = measured([sys.executable, "-c", COMPARE])
    said, document = ended.stdout.splitlines()
    row = json.loads(document)

    assert said.startswith("pair 1")
    assert (row["jobs_per_rpc"], row["concurrency"], row["pairs"]) == (5, 16, 1)
    assert row["ratios"] == [row["new_us_per_rpc"] / row["base_us_per_rpc"]]
    assert row["is_within"] == "undecided"


def test_the_time_of_a_host_request_is_told_by_layer_and_by_function() -> None:
    ended = measured([*BENCH, "layers", "--quick", "--json"])
    (row,) = json.loads(ended.stdout)["rows"]

    spent = row["us_per_rpc"]
    assert min(spent["decode and queue"], spent["serve the batch"]) > 0
    assert spent["PostgreSQL for host requests"] > 0
    assert any("dispatch/" in place for place in row["profile_us"])


def test_a_flood_is_measured_beside_the_plateau() -> None:
    ended = measured([*BENCH, "overload", "--quick", "--json"])
    (row,) = json.loads(ended.stdout)["rows"]

    assert row["times_reached"] > 0
    assert min(row["useful_per_s"], row["cpu_us_per_useful_rpc"]["load"]) > 0
    assert row["served_with_reports_share"] >= row["served_without_share"]
    assert row["refused_without_retry"] == 0
    assert row["health"]["failed"] == 0


def test_an_interrupted_bench_leaves_nothing_behind() -> None:
    bench = subprocess.Popen(
        COMMAND, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        started = eventually(lambda: _all_parts(bench), what="the load")
        folders = {Path(found) for process in started if (found := _seen(process, "cwd"))}
        bench.terminate()
        assert bench.wait(60) == 1
    finally:
        bench.kill()
        bench.wait()

    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert not any(folder.exists() for folder in folders - {CHECKOUT})


def _all_parts(bench: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All that a bench started, once its load generators are among them; none before that."""
    started = psutil.Process(bench.pid).children(recursive=True)
    there = [item for item in started if generator.__name__ in (_seen(item, "cmdline") or ())]
    return started if len(there) == 2 else []


def _seen(process: psutil.Process, attribute: str) -> Any:
    """What is known of a process that may have ended meanwhile."""
    with suppress(psutil.Error):
        return process.as_dict([attribute])[attribute]
    return None


def test_a_chain_of_bots_is_timed_while_other_hosts_wait() -> None:
    command = [*BENCH, "latency", "--quick", "--idle", "3", "--json"]
    ended = measured(command)
    (row,) = json.loads(ended.stdout)["rows"]
    assert (row["idle_hosts"], row["bots"]) == (3, 3)
    assert 0 < row["median_ms"] <= row["p99_ms"]


def test_clients_without_work_are_counted_as_they_ask() -> None:
    ended = measured([*BENCH, "idle", "--quick", "--hosts", "3", "--json"])
    (row,) = json.loads(ended.stdout)["rows"]
    assert row["hosts"] == 3
    assert row["requests_per_s"] <= 3, "their requests wait in the server"
    assert row["cpu_ms_per_s"] == sum(row["cpu_ms_per_s_of"].values())


def test_nothing_is_lost_when_a_worker_or_the_server_is_killed() -> None:
    ended = measured([*BENCH, "losses", "--quick", "--json"])
    rows = json.loads(ended.stdout)["rows"]
    assert [(row["killed"], row["system"], row["lost"]) for row in rows] == [
        ("worker", "gridbot", 0),
        ("server", "gridbot", 0),
    ]


def test_workflows_are_measured_by_their_shape() -> None:
    rows = json.loads(measured([*BENCH, "dag", "--nodes", "300", "--json"]).stdout)["rows"]
    assert [row["shape"] for row in rows] == ["independent", "chain", "montage"]
    # A node is submitted, starts and ends; the run begins once.
    assert [row["events"] for row in rows] == [3 * row["nodes"] + 1 for row in rows]
    assert min(row["us_per_event"] for row in rows) > 0


def test_an_instance_of_wfcommons_runs_beside_the_least_time_of_its_graph(tmp_path: Path) -> None:
    instance = {
        "name": "three",
        "workflow": {
            "specification": {
                "tasks": [
                    {"id": "a", "parents": [], "children": ["c"]},
                    {"id": "b", "parents": [], "children": ["c"]},
                    {"id": "c", "parents": ["a", "b"], "children": []},
                ]
            },
            "execution": {"tasks": [{"id": name, "runtimeInSeconds": 2} for name in "abc"]},
        },
    }
    (tmp_path / "three.json").write_text(json.dumps(instance))
    command = [*BENCH, "workflow", str(tmp_path / "three.json"), "--scale", "0.1", "--slots", "2"]
    [row] = json.loads(measured([*command, "--json"]).stdout)["rows"]
    assert (row["workflow"], row["nodes"], row["least_seconds"]) == ("three", 3, 0.4)
    assert row["seconds"] >= row["least_seconds"]


def test_pilots_and_slurms_own_ways_take_turns_on_one_real_cluster() -> None:
    need("munged slurmctld slurmd sbatch", SLURM_PACKAGES)
    systems = ("gridbot", "array", "sbatch")
    options = [word for system in systems for word in ("--system", system)]
    command = [*BENCH, "pilots", "--quick", "--seconds", "0.5", *options, "--json"]
    rows = json.loads(measured(command).stdout)["rows"]
    assert [(row["system"], row["jobs"], row["rounds"]) for row in rows] == [
        (system, 24, 1) for system in systems
    ]
    assert min(row["to_ideal"] for row in rows) > 0
    assert rows[0]["pilot_hours_to_ideal"] > 1
