"""A server and a Slurm cluster of four nodes with two CPUs each, and one BOT's run on them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.system.batch_systems import Slurm, open_folder, slurm
from tests.system.deployment import Deployment, deployment
from tests.system.overlays import Overlay

NODES, CPUS = 4, 2
GRID = "slurm"  # the name of each scenario's only grid
_PATIENCE_SECONDS = 600.0  # what takes longer has failed
_LOOK_SECONDS = 0.2


class RunFailed(Exception):
    """The BOT does not get on; the message says how far it came, and what the constructor said."""


@dataclass(frozen=True)
class Place:
    """What all scenarios share."""

    server: Deployment
    cluster: Slurm


@contextmanager
def place() -> Iterator[Place]:
    """Start both; nothing is left of them afterwards.

    A job in partition `cancel` ends when one of partition `urgent` takes its place, one of `batch`
    is queued again.  Slurm tells of jobs for an hour after their end.
    """
    cancel = "cancel Nodes=ALL MaxTime=60 PriorityTier=1 PreemptMode=CANCEL"
    with (
        open_folder("slurm") as folder,
        slurm(folder, nodes=NODES, cpus=CPUS, MinJobAge=3600, PartitionName=cancel) as cluster,
        deployment() as server,
    ):
        server.start()
        yield Place(server, cluster)


def tidy_when_interrupted() -> None:
    """Let SIGINT and SIGTERM end us by SystemExit, so that all is tidied up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a background job ignores ^C by itself
        signal.signal(number, _interrupted)


def _interrupted(number: int, _: object) -> None:
    """End at once; what comes again meanwhile changes nothing."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


@dataclass(frozen=True)
class Run:
    """One BOT on its way."""

    place: Place
    overlay: Overlay
    bot: int
    jobs: int
    say: Callable[[str], None]

    @property
    def server(self) -> Deployment:
        """The server that the BOT is on."""
        return self.place.server

    @property
    def cluster(self) -> Slurm:
        """The cluster that the pilots go to."""
        return self.place.cluster

    def finished(self) -> int:
        """Jobs that have ended."""
        [(done, failed)] = self.server.rows("SELECT done, failed FROM bot WHERE id = %s", self.bot)
        return int(done + failed)

    def reach(self, share: float) -> None:
        """Wait until so much of the BOT is done."""
        wanted = max(1, round(share * self.jobs))
        end = time.monotonic() + _PATIENCE_SECONDS
        while (done := self.finished()) < wanted:
            if time.monotonic() > end:
                raise RunFailed(f"{done} of {self.jobs} jobs are done: {self.overlay.said()}")
            time.sleep(_LOOK_SECONDS)
        self.say(f"{done} of {self.jobs} jobs are done")
