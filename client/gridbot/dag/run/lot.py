"""What a run knows of its jobs at the server: its BOTs, and which job of which node is where."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gridbot.api.bot import Bot


class OutputTarget(Protocol):
    """Where what a job returns goes, on this machine."""

    def path(self, output: str) -> Path | None:
        """Where an output goes; None for one that nobody wants."""


@dataclass
class JobAtServer:
    """A job that has no result yet."""

    node: str
    process: int
    destination: OutputTarget
    faults: int = 0
    is_cancelled: bool = False
    is_held: bool = False


@dataclass(eq=False)
class NodeLot:
    """A BOT of the run."""

    key: str
    bot: Bot
    total: int = 0  # jobs that were appended
    seen: int = 0  # cursor of its results
    jobs: dict[int, JobAtServer] = field(default_factory=dict)  # by number
    begun: int = 0  # so many of its jobs were given to hosts
    has_jobs: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class LotTable:
    """The BOTs of a run and their jobs.  Threads share it; `lock` keeps several steps together."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._lots: dict[str, NodeLot] = {}
        self._of_node: dict[str, dict[int, tuple[NodeLot, int]]] = {}  # lot and number, by process
        # From which process on jobs of a node are, or were, from which number on of which BOT.
        self._places: dict[str, list[tuple[int, int, int]]] = {}
        self._lost: dict[str, set[int]] = {}  # processes of nodes, which the server never had

    def known(self) -> list[NodeLot]:
        """All BOTs."""
        with self.lock:
            return list(self._lots.values())

    def get(self, key: str) -> NodeLot | None:
        """The BOT with this key, if it is known."""
        return self._lots.get(key)

    def add(self, key: str, bot: Bot) -> NodeLot:
        """A BOT, which may be known."""
        with self.lock:
            return self._lots.setdefault(key, NodeLot(key, bot))

    def expect(
        self, lot: NodeLot, node: str, first: int, to: Sequence[OutputTarget], process: int = 0
    ) -> None:
        """Know of jobs of a node, from a number and a process on."""
        with self.lock:
            if not process:  # the node begins, or begins anew
                self._places[node] = []
                self._lost.pop(node, None)
            self._places[node].append((process, first, lot.bot.id))
            for place, destination in enumerate(to):
                job = JobAtServer(node, process + place, destination)
                lot.jobs[first + place] = job
                self._of_node.setdefault(node, {})[job.process] = (lot, first + place)
            lot.total = max(lot.total, first + len(to))

    def lose(self, node: str, process: int) -> None:
        """Know that a job is not at the server: another one may get its number."""
        with self.lock:
            self._lost.setdefault(node, set()).add(process)

    def place(self, node: str, process: int) -> tuple[int, int] | None:
        """BOT and number of a job, also of one that has ended; None if it is not at the server."""
        with self.lock:
            return None if process in self._lost.get(node, ()) else self.kept_for(node, process)

    def kept_for(self, node: str, process: int) -> tuple[int, int] | None:
        """BOT and number that were kept for a job, whether or not it reached the server."""
        with self.lock:
            for start, first, bot in reversed(self._places.get(node, ())):
                if start <= process:
                    return bot, first + process - start
        return None

    def find(self, node: str, processes: Sequence[int]) -> list[tuple[NodeLot, int]]:
        """Where jobs of a node are: BOT and number."""
        with self.lock:
            places = self._of_node.get(node, {})
            return [places[process] for process in processes if process in places]

    def pop(self, lot: NodeLot, seq: int) -> JobAtServer | None:
        """Know no more of a job; None if it was not known."""
        with self.lock:
            if (job := lot.jobs.pop(seq, None)) is None:
                return None
            places = self._of_node[job.node]
            if places.get(job.process) == (lot, seq):
                del places[job.process]
                if not places:
                    del self._of_node[job.node]
            return job
