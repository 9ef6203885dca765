"""The nodes of a pilot that has several: replicas run on one of them, or have some for themselves.

The client runs on the first node.  On each other one it starts a worker (`node_worker.py`), by the
command that the batch system has for it, and speaks with it over its standard input and output.
It answers in lines of JSON, because such commands hand on whole lines: one on how it has begun, and
one for each replica that has ended.  All nodes see the client's folder, so that a replica has its
slot wherever it runs.

A replica that has several nodes runs on the first.  It is told their names, and how to start
programs on them: mpirun takes both, and its ranks run outside of the replica's walls there.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from gridbot_client.protocol.messages import ProtocolError, Resources
from gridbot_client.work import processes
from gridbot_client.work.confinement import Confinement, KeptCell, WallOptions
from gridbot_client.work.node_messages import LONGEST_LINE, read_beginning, read_end
from gridbot_client.work.residents import ResidentJob
from gridbot_client.work.runner import (
    GRACE_SECONDS,
    LOST,
    NOT_STARTED,
    ProcessEnd,
    ReplicaProgram,
    Runs,
    Stop,
)
from gridbot_client.work.slots import ReplicaSlot

log = logging.getLogger(__name__)

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
# Within which a node ends what it is told to end, or is lost: less than a pilot has for leaving.
_END_SECONDS = 15.0
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
    level: int  # of the first node's walls, which hosts and BOTs hear of


class NodeWorker:
    """A worker on another node, as the client sees it; safe to use from many threads."""

    def __init__(self, name: str, launch: str, options: WorkerOptions) -> None:
        """Start it.  Raises NodeUnfit."""
        self.name = name
        self._level = options.level
        try:
            command = [*shlex.split(launch + name), sys.executable, "-c", _WORKER, *sys.path]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise NodeUnfit(f"nothing can be started on node {name}: {error}") from None
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._ends = dict[int, Future[ProcessEnd]]()
        self._first_line = Future[bytes]()
        self._to_tell = SimpleQueue[bytes | None]()
        self.is_lost = False
        self._to_tell.put(pickle.dumps((name, options)))
        for target in (self._listen, self._send):
            threading.Thread(target=target, name=f"node {name}", daemon=True).start()

    def begin(self) -> None:
        """Wait until it can work.  Raises NodeUnfit."""
        try:
            line = self._first_line.result(_READY_SECONDS)
        except TimeoutError:
            raise NodeUnfit(f"node {self.name} did not start in {_READY_SECONDS:g} s") from None
        if not line:
            raise NodeUnfit(f"nothing can be started on node {self.name}")
        try:
            beginning = read_beginning(line)
        except ProtocolError:
            raise NodeUnfit(
                f"node {self.name} printed {line[:100]!r} before its worker began: nothing on the"
                " way to it may print"
            ) from None
        if beginning.trouble:
            raise NodeUnfit(f"node {self.name}: {beginning.trouble}")
        if beginning.level < self._level:
            raise NodeUnfit(
                f"node {self.name} offers sandbox level {beginning.level} ({beginning.obstacle}),"
                f" and the first node of the pilot {self._level}"
            )

    def run(
        self, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources, stop: Stop,
        *, is_stranger: bool, wants_network: bool, grace_seconds: float,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program there to its end, which is LOST if the node is."""
        number, end, asked = next(self._numbers), Future[ProcessEnd](), Future[None]()
        try:
            order = pickle.dumps(
                (number, program, slot, limits, is_stranger, wants_network, grace_seconds)
            )
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            return ProcessEnd(NOT_STARTED, detail=f"it cannot be sent to {self.name}: {error}")
        with self._lock:
            if self.is_lost:
                return self._loss
            self._ends[number] = end
        self._to_tell.put(order)
        stop.calls(partial(asked.set_result, None))
        first: tuple[Future[Any], ...] = (end, asked)
        wait(first, return_when=FIRST_COMPLETED)
        if not end.done():
            self._to_tell.put(pickle.dumps((number,)))
            if not wait((end,), _END_SECONDS).done:
                log.warning("node %s does not answer", self.name)
                self._give_up()
        stop.calls(None)
        return end.result()

    def hang_up(self) -> None:
        """Let it end with all that runs there."""
        self._to_tell.put(None)

    def close(self, until: float) -> None:
        """See it end, by itself until then on the monotonic clock."""
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._give_up()
            self._process.wait()

    def _send(self) -> None:
        """Tell all that is to be told, which takes for ever where nobody reads."""
        assert self._process.stdin
        with self._process.stdin as told:
            connection = Connection(os.dup(told.fileno()), readable=False)
        try:
            with connection:
                while (message := self._to_tell.get()) is not None:
                    connection.send_bytes(message)
        except OSError:
            self._lose()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as said:
            lines = iter(partial(said.readline, LONGEST_LINE), b"")
            try:
                self._first_line.set_result(next(lines, b""))
                for line in lines:
                    number, end = read_end(line)
                    with self._lock:
                        self._ends.pop(number).set_result(end)
            except (ProtocolError, KeyError) as error:
                log.warning("node %s said what no worker says: %s", self.name, error)
            finally:
                self._lose()

    def _give_up(self) -> None:
        processes.kill_group(self._process.pid)
        self._lose()

    def _lose(self) -> None:
        """Nothing more comes from there, and nothing is to run there."""
        self.hang_up()
        with self._lock:
            self.is_lost = True
            for end in self._ends.values():
                end.set_result(self._loss)
            self._ends.clear()

    @property
    def _loss(self) -> ProcessEnd:
        return ProcessEnd(LOST, detail=f"node {self.name} is gone")


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
        grace_seconds: float = GRACE_SECONDS,
    ) -> ProcessEnd:  # fmt: skip
        """Run a program to its end.  Pilots of several nodes keep no cells (`kept`, `job`)."""
        names = program.granted.get(NODES, self.nodes.names[0]).split(",")
        if len(names) > 1:
            granted = {**program.granted, **self._laid_out(slot, names, limits.cpus)}
            program = replace(program, granted=granted)
        if worker := self.workers.get(names[0]):
            return worker.run(
                program, slot, limits, stop, is_stranger=is_stranger, wants_network=wants_network,
                grace_seconds=grace_seconds,
            )  # fmt: skip
        return self.here.run(
            program, slot, limits, stop, started, is_stranger=is_stranger,
            wants_network=wants_network, kept=kept, job=job, grace_seconds=grace_seconds,
        )  # fmt: skip

    def _laid_out(self, slot: ReplicaSlot, names: Sequence[str], cpus: int) -> dict[str, str]:
        """Write what mpirun takes into the replica's folder; return variables that name it.

        What it starts is outside of all walls, so only who has several nodes gets it.
        """
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
    try:
        for name in nodes.names[1:] if nodes else ():
            assert nodes
            workers[name] = NodeWorker(name, nodes.launch, options)
        for worker in workers.values():
            worker.begin()
        yield workers
    finally:
        for worker in workers.values():
            worker.hang_up()
        until = time.monotonic() + _END_SECONDS
        for worker in workers.values():
            worker.close(until)
