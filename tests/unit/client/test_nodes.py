"""Claims about pilots of several nodes, which are all processes of this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.system.deployment import eventually

from gridbot_client.agent import Room
from gridbot_client.commands.run import run as client_run
from gridbot_client.options import Options
from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_client.storage import Folder
from gridbot_client.walls.cells import NAMESPACES, NONE, PROCESS
from gridbot_client.walls.levels import Sandbox
from gridbot_client.work import nodes
from gridbot_client.work.confinement import Plain, WallOptions, raised
from gridbot_client.work.containers import Container
from gridbot_client.work.node_messages import LONGEST_LINE, read_end, write_end
from gridbot_client.work.nodes import (
    NODES,
    NodesRunner,
    NodeUnfit,
    NodeWorker,
    PilotNodes,
    WorkerOptions,
    joined,
)
from gridbot_client.work.podman import Podman
from gridbot_client.work.processes import Census
from gridbot_client.work.runner import LOST, NOT_STARTED, ProcessEnd, ReplicaProgram, Runner, Stop
from gridbot_client.work.slots import ReplicaSlot, slot_of

HERE = "env GRIDBOT_TEST_NODE="  # runs a command as if on the node whose name is joined to it
LIMITS = Resources(cpus=1, memory_mb=500, disk_mb=20, seconds=120.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Folder(tmp_path / "client")
    made.make()
    return made.path


def options(folder: Path, most: int = NONE, level: int = NONE) -> WorkerOptions:
    walls = WallOptions(most=most, is_pilot=True, hidden=(str(folder),))
    return WorkerOptions(folder, walls, idle_window_seconds=600.0, level=level)


@contextmanager
def worker(folder: Path, launch: str = HERE) -> Iterator[NodeWorker]:
    with joined(PilotNodes(("n1", "n2"), launch), options(folder)) as workers:
        yield workers["n2"]


def made_slot(folder: Path, seq: int = 0) -> ReplicaSlot:
    slot = slot_of(folder / "slots", ReplicaId(1, seq, 0))
    slot.path.mkdir()
    slot.reset()
    return slot


Runs = Callable[..., ProcessEnd]


def running(node: NodeWorker) -> Runs:
    def run(slot: ReplicaSlot, stop: Stop, *argv: str, **program: object) -> ProcessEnd:
        wanted = ReplicaProgram(argv, **program)  # type: ignore[arg-type]
        return node.run(
            wanted, slot, LIMITS, stop, is_stranger=False, wants_network=False, grace_seconds=2.0
        )

    return run


def launcher(folder: Path, script: str) -> str:
    """Words that start a script with a node's name and the command for it."""
    path = folder.parent / "launcher"
    path.write_text(f"#!/bin/sh\nnode=$1\nshift\n{script}\n")
    return f"sh {path} "


def far_process() -> psutil.Process:
    """The worker's process."""
    [found] = [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "node_worker" in " ".join(child.cmdline())
    ]
    return found


def test_a_replica_runs_on_another_node_to_its_end(folder: Path) -> None:
    slot = made_slot(folder)
    with worker(folder) as node:
        end = running(node)(slot, Stop(), "sh", "-c", "echo $0; exit 3", "said")
    assert (end.reason, end.exit_code) == ("exit_nonzero", 3)
    assert slot.stdout.read_text() == "said\n"


def test_a_replica_that_is_stopped_ends_on_its_node_at_once(folder: Path) -> None:
    slot, stop = made_slot(folder), Stop()
    with worker(folder) as node, ThreadPoolExecutor() as threads:
        end = threads.submit(running(node), slot, stop, "sh", "-c", "touch begun; sleep 600")
        eventually((slot.work / "begun").exists)
        stop.ask()
        assert end.result().reason in ("stopped", "signal")  # whichever is seen first
        assert not node.is_lost


def test_what_cannot_be_sent_to_a_node_is_not_started_there(folder: Path) -> None:
    container = Container(Podman(folder / "containers"), folder, network=False)
    with worker(folder) as node:
        end = running(node)(made_slot(folder), Stop(), "true", container=container)
        assert end.reason == NOT_STARTED and "n2" in end.detail
        assert running(node)(made_slot(folder, 1), Stop(), "true").reason == ""


def test_a_pilot_of_several_nodes_offers_no_containers(folder: Path) -> None:
    alone = Options(room=Room(cpus=8, memory_mb=800), runtimes=("podman",))
    several = alone.on_nodes(PilotNodes(("n1", "n2"), HERE))
    ads = [made.describe(Folder(folder), Sandbox(NONE)) for made in (alone, several)]
    assert [ad.get("Containers") for ad in ads] == ["podman", None]
    assert [ad["NumNodes"] for ad in ads] == [1, 2]


def test_only_a_job_of_several_nodes_is_told_how_to_start_programs_on_them(folder: Path) -> None:
    here = Runner(Plain(is_pilot=True), Census())
    runner = NodesRunner(here, PilotNodes(("n1", "n2"), HERE), {}, cpus=2)
    said = []
    for seq, names in enumerate(("n1", "n1,n2")):
        program = ReplicaProgram(["sh", "-c", "env | sort"], granted={NODES: names})
        slot = made_slot(folder, seq)
        runner.run(program, slot, LIMITS, Stop(), lambda _: None, is_stranger=False)
        found = dict(line.split("=", 1) for line in slot.stdout.read_text().splitlines())
        assert found[NODES] == names
        said.append({"GRIDBOT_MACHINEFILE", "HYDRA_LAUNCHER_EXEC"} & found.keys())
        assert (slot.work / "tmp" / "launch").exists() is bool(said[-1])
    assert said == [set(), {"GRIDBOT_MACHINEFILE", "HYDRA_LAUNCHER_EXEC"}]


def test_a_node_with_lower_walls_than_the_first_is_unfit(folder: Path) -> None:
    wanted = options(folder, most=NONE, level=PROCESS)
    with (
        pytest.raises(NodeUnfit, match=r"n2 offers sandbox level 0 \(switched off\).* 1$"),
        joined(PilotNodes(("n1", "n2"), HERE), wanted),
    ):
        pass


def test_nodes_prove_their_walls_at_once_in_the_folder_that_they_share(folder: Path) -> None:
    walls = options(folder, most=NAMESPACES).walls
    with raised(folder, walls) as (_, sandbox):
        wanted = options(folder, NAMESPACES, sandbox.level)
        with joined(PilotNodes(("n1", "n2", "n3", "n4"), HERE), wanted) as workers:
            assert list(workers) == ["n2", "n3", "n4"]
    assert not list(folder.glob("probe*"))


@pytest.mark.parametrize("launch", ["/nowhere/srun --nodelist=", "'srun --nodelist=", "false "])
def test_a_node_on_which_nothing_starts_is_unfit(folder: Path, launch: str) -> None:
    with (
        pytest.raises(NodeUnfit, match="nothing can be started on node n2"),
        worker(folder, launch),
    ):
        pass


def test_a_node_on_which_something_prints_first_is_unfit_and_says_what(folder: Path) -> None:
    launch = launcher(folder, 'echo "Welcome to n2"; exec "$@"')
    with pytest.raises(NodeUnfit, match="Welcome to n2"), worker(folder, launch):
        pass


@pytest.mark.parametrize("line", ["srun: error", "[]", '{"number": 77, "reason": ""}', "9" * 5000])
def test_a_node_that_says_something_else_is_lost_with_what_ran_there(
    folder: Path, line: str
) -> None:
    slot, flag = made_slot(folder), folder.parent / "flag"
    launch = launcher(
        folder,
        'exec 3<&0; "$@" <&3 3<&- & exec 3<&-\n'
        f"while [ ! -e {flag} ]; do sleep 0.05; done; echo '{line}'; wait",
    )
    with worker(folder, launch) as node, ThreadPoolExecutor() as threads:
        end = threads.submit(running(node), slot, Stop(), "sh", "-c", "touch begun; sleep 600")
        eventually((slot.work / "begun").exists)
        flag.touch()
        assert end.result().reason == LOST
        assert node.is_lost
        assert running(node)(made_slot(folder, 1), Stop(), "true").reason == LOST


def test_a_node_whose_worker_dies_is_lost_with_what_ran_there(folder: Path) -> None:
    slot = made_slot(folder)
    with worker(folder) as node, ThreadPoolExecutor() as threads:
        end = threads.submit(running(node), slot, Stop(), "sh", "-c", "touch begun; sleep 600")
        eventually((slot.work / "begun").exists)
        far_process().kill()
        assert end.result().reason == LOST


def test_a_frozen_node_keeps_nobody_from_leaving_also_with_a_full_pipe(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_END_SECONDS", 1.0)
    stops = [Stop() for _ in range(4)]
    with worker(folder) as node, ThreadPoolExecutor() as threads:
        process = far_process()
        process.send_signal(signal.SIGSTOP)
        ends = [
            threads.submit(running(node), made_slot(folder, seq), stop, "true", "x" * 100_000)
            for seq, stop in enumerate(stops)
        ]
        for stop in stops:
            stop.ask()
        assert {end.result().reason for end in ends} == {LOST}
        assert node.is_lost
    assert not process.is_running()


def test_a_frozen_node_without_replicas_is_ended_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker(folder):
        process = far_process()
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(nodes, "_END_SECONDS", 0.2)
    assert not process.is_running()


def test_a_nodes_worker_hides_from_what_it_runs() -> None:
    program = (
        "import atexit, ctypes; from gridbot_client.work.node_worker import serve;"
        "atexit.register(lambda: print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))); serve()"
    )
    get_dumpable = [sys.executable, "-c", program]
    done = subprocess.run(
        get_dumpable, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    # What it prints itself goes to stderr.
    assert (done.stdout, done.stderr) == ("", "0\n")


@given(
    st.builds(
        ProcessEnd,
        st.text("abcdefghijklmnopqrstuvwxyz_", max_size=20),
        st.none() | st.integers(-64, 255),
        st.floats(0, 1e9),
        st.floats(0, 1e9),
        st.text(st.characters() | st.just("\0") | st.just("\ud800"), max_size=8000),
    )
)
def test_whatever_an_end_says_it_is_one_line_that_is_read(end: ProcessEnd) -> None:
    line = write_end(7, end).encode()
    assert len(line) < LONGEST_LINE and line.count(b"\n") == 1
    number, read = read_end(line)
    assert (number, read.reason, read.exit_code) == (7, end.reason, end.exit_code)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nodes", "a,b", "--cpus", "1"], "2 nodes have a core each at least"),
        (["--nodes", "a,a", "--cpus", "4"], "'a' is no name of a node, or is there twice"),
        (["--nodes", "a,../b", "--cpus", "4"], "'../b' is no name"),
        (["--nodes", "a,", "--cpus", "4"], "'' is no name"),
    ],
)
def test_nodes_that_make_no_sense_are_refused_when_the_client_starts(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    done = CliRunner().invoke(client_run, ["--data", str(tmp_path / "client"), *arguments])
    assert done.exit_code == 2
    assert text in " ".join(done.output.split())
