"""Runs replicas on another node of a pilot, as the client on its first node says (`nodes.py`)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import TextIO

from gridbot_client.pilot.behaviour import IDLE_SHARE
from gridbot_client.pilot.node_check import trouble
from gridbot_client.pilot.secrecy import hide
from gridbot_client.protocol.messages import Resources
from gridbot_client.work.confinement import raised
from gridbot_client.work.idleness import Idleness
from gridbot_client.work.node_messages import NodeBeginning, write_beginning, write_end
from gridbot_client.work.nodes import WorkerOptions
from gridbot_client.work.processes import Census
from gridbot_client.work.runner import (
    NOT_STARTED,
    ProcessEnd,
    ReplicaProgram,
    Runner,
    Stop,
    forbid_core_dumps,
)
from gridbot_client.work.slots import ReplicaSlot


class _Worker:
    """What runs on this node, by the client's numbers."""

    def __init__(self, runner: Runner, say: Callable[[str], None]) -> None:
        self._runner, self._say = runner, say
        self._lock = threading.Lock()
        self._stops = dict[int, Stop]()
        self._threads = list[threading.Thread]()

    def begin(
        self, number: int, program: ReplicaProgram, slot: ReplicaSlot, limits: Resources,
        is_stranger: bool, wants_network: bool, grace_seconds: float,
    ) -> None:  # fmt: skip
        """Run a program in a thread of its own."""
        self._stops[number] = stop = Stop()
        run = partial(
            self._runner.run, program, slot, limits, stop, lambda _: None, is_stranger=is_stranger,
            wants_network=wants_network, grace_seconds=grace_seconds,
        )  # fmt: skip
        thread = threading.Thread(target=self._run, args=(number, run), name=f"replica {number}")
        self._threads = [item for item in self._threads if item.is_alive()] + [thread]
        thread.start()

    def stop(self, number: int) -> None:
        """Stop one that runs."""
        if found := self._stops.get(number):
            found.ask()

    def end(self) -> None:
        """Stop all, and wait for them."""
        for stop in list(self._stops.values()):
            stop.ask()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, run: Callable[[], ProcessEnd]) -> None:
        try:
            end = run()
        except Exception as error:  # the client decides what becomes of the replica
            end = ProcessEnd(NOT_STARTED, detail=f"error on {os.uname().nodename}: {error!r}")
        with self._lock:
            self._stops.pop(number, None)
            with suppress(BrokenPipeError):  # the client is gone, and so are its replicas
                self._say(write_end(number, end))


def _say(stream: TextIO, line: str) -> None:
    stream.write(line)
    stream.flush()


def serve() -> None:
    """Serve the client at the other end of standard input and output until it closes them."""
    told = Connection(os.dup(0), writable=False)
    say = partial(_say, os.fdopen(os.dup(1), "w"))
    # Nothing that is printed by accident may come between what is said.
    os.dup2(2, 1)
    forbid_core_dumps()
    hide()
    name: str
    options: WorkerOptions
    try:
        name, options = told.recv()
    except EOFError:  # the client left
        return
    if not options.folder.is_dir():
        why = f"it does not see {options.folder}: set scratch to a folder that nodes share"
        say(write_beginning(NodeBeginning(why)))
        sys.exit(1)
    # Several nodes try their walls at once in the folder that they share.
    with raised(options.folder, options.walls, probe=f"probe.{name}") as (confinement, sandbox):
        beginning = NodeBeginning(trouble(options.folder), sandbox.level, sandbox.obstacle)
        say(write_beginning(beginning))
        idleness = partial(Idleness, options.idle_window_seconds, IDLE_SHARE)
        worker = _Worker(Runner(confinement, Census(), idleness), say)
        try:
            _obey(told, worker)
        finally:
            worker.end()


def _obey(told: Connection, worker: _Worker) -> None:
    """Do what the client says until it leaves."""
    with suppress(EOFError, OSError):
        while True:
            number, *order = told.recv()
            if order:
                worker.begin(number, *order)
            else:
                worker.stop(number)
