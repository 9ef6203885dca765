"""The nodes of a pilot that has several: replicas run on one of them, or have some for themselves.

The client runs on the first node.  On each other one it starts a worker (`node_worker.py`), by the
command that the batch system has for it, and speaks with it over its standard input and output.
It answers in lines of JSON, because such commands hand on whole lines.
All nodes see the client's folder, so that a replica has its slot wherever it runs.

A replica that has several nodes runs on the first.  It is told their names, and how to start
programs on them: mpirun takes both, and its ranks run outside of the replica's walls there.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from gridbot_client.protocol.messages import Resources
from gridbot_client.work.confinement import Confinement, KeptCell, WallOptions
from gridbot_client.work.residents import ResidentJob
from gridbot_client.work.runner import LOST, ProcessEnd, ReplicaProgram, Runs, Stop
from gridbot_client.work.slots import ReplicaSlot

# What a replica is told by variables: the names of its nodes, and a file with the cores of each.
NODES, MACHINEFILE = "GRIDBOT_NODES", "GRIDBOT_MACHINEFILE"
# How Open MPI (PRRTE from version 5 on) and MPICH's Hydra are told what starts their helpers.
_LAUNCHERS = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
_HYDRA = {"HYDRA_LAUNCHER": "rsh"}
_LAUNCH = """\
#!/bin/sh
# Runs a shell line on another node of this pilot: NODE WORDS...
node=$1
shift
exec {command}"$node" sh -c "$*"
"""
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.1  # whoever stops a replica wakes nobody here
_END_SECONDS = 10.0
_WORKER = (
    "import sys; sys.path[:] = sys.argv[1:];"
    " from gridbot_client.work.node_worker import serve; serve()"
)


class NodeUnfit(Exception):
    """A node cannot work for the pilot; says why."""


@dataclass(frozen=True, slots=True)
class PilotNodes:
    """The nodes of a pilot."""

    names: tuple[str, ...]  # the first is this machine
    launch: str  # words of a shell which run a command on the node whose name is joined to them


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a worker must know of its client."""

    folder: Path
    walls: WallOptions
    idle_window_seconds: float


class NodeWorker:
    """A worker on another node, as the client sees it; safe to use from many threads."""

    def __init__(self, name: str, launch: str, options: WorkerOptions) -> None:
        self.name = name
        self._options = options
        command = [*shlex.split(launch + name), sys.executable, "-c", _WORKER, *sys.path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin
        assert self._process.stdout
        self._said = self._process.stdout
        with self._process.stdin as told:
            self._told = Connection(os.dup(told.fileno()), readable=False)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._ends = dict[int, Future[ProcessEnd]]()
        self.is_lost = False

    def begin(self) -> None:
        """Wait until it can work.  Raises NodeUnfit."""
        self._tell(self._options)
        if not select.select([self._said], [], [], _READY_SECONDS)[0]:
            raise NodeUnfit(f"node {self.name} did not start in {_READY_SECONDS:g} s")
        if not (line := self._said.readline()):
            raise NodeUnfit(f"nothing can be started on node {self.name}")
        if why := json.loads(line):
            raise NodeUnfit(f"node {self.name}: {why}")
        threading.Thread(target=self._listen, name=f"node {self.name}", daemon=True).start()

    def run(
        self, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, stop: Stop,
        *, is_stranger: bool, wants_network: bool,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program there to its end, which is LOST if the node is."""
        number, end = next(self._numbers), Future[ProcessEnd]()
        with self._lock:
            self._ends[number] = end
        self._tell((number, program, slot, limits, is_stranger, wants_network))
        is_told = False
        while True:
            with suppress(TimeoutError):
                return end.result(_LOOK_SECONDS)
            if stop.is_asked and not is_told:
                self._tell((number,))
                is_told = True

    def close(self) -> None:
        """End it with all that runs there."""
        with self._lock:
            self._told.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, message: object) -> None:
        with self._lock:
            if not self.is_lost:
                with suppress(OSError):
                    return self._told.send(message)
        self._lose()

    def _listen(self) -> None:
        for line in self._said:
            number, end = json.loads(line)
            with self._lock:
                self._ends.pop(number).set_result(ProcessEnd(**end))
        self._lose()

    def _lose(self) -> None:
        """Nothing more comes from there."""
        with self._lock:
            self.is_lost = True
            for end in self._ends.values():
                end.set_result(ProcessEnd(LOST, detail=f"node {self.name} is gone"))
            self._ends.clear()


@dataclass(frozen=True, slots=True)
class NodesRunner:
    """Runs replicas on the first of the nodes that they were granted."""

    here: Runs
    nodes: PilotNodes
    workers: Mapping[str, NodeWorker]  # by node
    cpus: int  # of each node

    @property
    def confinement(self) -> Confinement:
        """That of this node; all are alike."""
        return self.here.confinement

    @property
    def has_lost_one(self) -> bool:
        """Whether a node is gone, without which the pilot is not what it was."""
        return any(worker.is_lost for worker in self.workers.values())

    def run(
        self, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, stop: Stop,
        started: Callable[[int], None], *, is_stranger: bool, wants_network: bool = False,
        kept: KeptCell | None = None, job: ResidentJob | None = None,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program to its end.  Pilots of several nodes keep no cells (`kept`, `job`)."""
        names = program.granted.get(NODES, self.nodes.names[0]).split(",")
        granted = {**program.granted, **self._laid_out(slot, names, limits.cpus)}
        program = replace(program, granted=granted)
        if worker := self.workers.get(names[0]):
            return worker.run(
                program, slot, limits, stop, is_stranger=is_stranger, wants_network=wants_network
            )
        return self.here.run(
            program, slot, limits, stop, started, is_stranger=is_stranger,
            wants_network=wants_network, kept=kept, job=job,
        )  # fmt: skip

    def _laid_out(self, slot: ReplicaSlot, names: Sequence[str], cpus: int) -> dict[str, str]:
        """Write what mpirun takes into the replica's folder; return variables that name it."""
        folder = slot.work / "tmp"
        folder.mkdir(exist_ok=True)
        machines, launch = folder / "machinefile", folder / "launch"
        machines.write_text(machinefile(names, cpus, self.cpus))
        launch.write_text(_LAUNCH.format(command=self.nodes.launch))
        launch.chmod(0o700)
        return {MACHINEFILE: str(machines), **dict.fromkeys(_LAUNCHERS, str(launch)), **_HYDRA}


def machinefile(names: Sequence[str], cpus: int, cpus_per_node: int) -> str:
    """A line for each node, as mpirun reads it, with its part of the cores of a replica."""
    shares = (
        min(cpus_per_node, max(1, cpus - index * cpus_per_node)) for index in range(len(names))
    )
    return "".join(f"{name} slots={share}\n" for name, share in zip(names, shares, strict=True))


@contextmanager
def joined(nodes: PilotNodes | None, options: WorkerOptions) -> Iterator[Mapping[str, NodeWorker]]:
    """Start workers on the other nodes of a pilot; they end with the context.  Raises NodeUnfit."""
    workers = dict[str, NodeWorker]()
    with ExitStack() as stack:
        for name in nodes.names[1:] if nodes else ():
            assert nodes
            workers[name] = NodeWorker(name, nodes.launch, options)
            stack.callback(workers[name].close)
        for worker in workers.values():
            worker.begin()
        yield workers
