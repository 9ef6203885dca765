"""State of a client, read from its folder by another process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gridbot_client.storage import Folder
from gridbot_client.work.progress import progress_of
from gridbot_client.work.slots import ReplicaSlot, slots_in

_MOST_JOBS = 20  # that are listed
_REFUSED_SECONDS = 3600.0  # no fault of the network is waited out for as long


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A replica that runs."""

    bot: int
    job: int
    seconds: float  # since it was started
    progress: float | None = None  # from 0 to 1, as its program says

    def line(self) -> str:
        """For people."""
        minutes, seconds = divmod(round(self.seconds), 60)
        since = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        done = "" if self.progress is None else f", {100 * self.progress:.0f} % done"
        return f"  job {self.job} of BOT {self.bot}, for {since}{done}"


@dataclass(frozen=True, slots=True)
class Status:
    """State of a client: one of six words, with counts and errors."""

    state: str  # not joined, paused, suspended, waiting for the server, running, idle
    server: str | None
    owner: str | None
    client: int | None
    process: int | None  # process id; None if no client uses the folder
    running: int
    waiting: int
    finished: int  # replicas whose report is not acknowledged
    error: str
    next_try_seconds: float
    folder: str
    requirements: str  # the owner's policy, "" without one
    obstacle: str  # condition of it that does not hold now, "" if all hold
    sandbox_level: int | None  # of the walls around tasks; None before the first run
    sandbox: str  # the same in words
    jobs: tuple[RunningJob, ...] = ()
    transfer_obstacle: str = ""  # why nothing may be transferred now, "" if it may
    suspended: str = ""  # why what runs stands still, "" if it does not

    def json(self) -> dict[str, Any]:
        """Document for --json."""
        return asdict(self)

    @property
    def is_idle(self) -> bool:
        """Whether the client runs and has nothing to do."""
        is_kept_back = self.obstacle or self.transfer_obstacle
        return self.process is not None and self.state == "idle" and not is_kept_back

    def _next_try(self) -> str:
        """When the server is asked again; hours mean that it refuses this client."""
        if self.next_try_seconds < _REFUSED_SECONDS:
            return f"{self.next_try_seconds:.0f} s"
        hours = self.next_try_seconds / 3600
        return f"{hours:.1f} h, or sooner with gridbot client resume; ask who runs the server"

    def lines(self, idle: str = "idle") -> list[str]:
        """Lines for people, the state first: `idle` if it is that."""
        first = idle if self.is_idle else self.state
        if self.process is None and self.state == "idle":
            first = "stopped"
        if self.state == "running":
            first = f"running {self.running}"
        if self.state == "suspended":
            first = f"{self.state}: {self.suspended}; {self.running} in memory"
        if self.state == "waiting for the server":
            first = f"{self.state} ({self.error}; next try in {self._next_try()})"
        found = [first, *(job.line() for job in self.jobs[:_MOST_JOBS])]
        if self.server:
            found.append(f"server {self.server}, owner {self.owner}, client {self.client}")
            found.append(f"replicas: {self.waiting} waiting, {self.finished} to report")
        if self.sandbox_level is not None:
            found.append(f"sandbox level {self.sandbox_level}: {self.sandbox}")
        if self.requirements:
            found += ["owner's policy:", *_indented(self.requirements)]
        if self.obstacle:
            found += ["not asking for work, because not satisfied:", *_indented(self.obstacle)]
        if self.transfer_obstacle:
            found.append(f"not asking for work, as nothing may move now: {self.transfer_obstacle}")
        if self.process is None:
            found.append("the client is not running; to start it: gridbot client start")
        return found


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.strip().splitlines()]


def status_of(folder: Folder) -> Status:
    """State of the client of a folder, running or not."""
    identity, backoff, process = folder.identity(), folder.backoff(), folder.holder()
    slots = list(slots_in(folder.slots)) if folder.slots.is_dir() else []
    finished = sum(slot.is_finished for slot in slots)
    started = sum(slot.was_started and not slot.is_finished for slot in slots)
    running = started if process is not None else 0
    suspended = folder.suspended()
    state = "running" if running else "idle"
    if identity is None:
        state = "not joined"
    elif process is not None and suspended:
        state = "suspended"
    elif folder.is_paused(time.time()):
        state = "paused"
    elif backoff.failures:
        state = "waiting for the server"
    return Status(
        state=state,
        server=identity.url if identity else None,
        owner=identity.owner if identity else None,
        client=identity.client if identity else None,
        process=process,
        running=running,
        waiting=len(slots) - finished - running,
        finished=finished,
        error=backoff.error,
        next_try_seconds=backoff.remaining(time.time()),
        folder=str(folder.path),
        requirements=folder.policy(),
        obstacle=folder.obstacle() if process is not None else "",
        sandbox_level=folder.sandbox().get("SandboxLevel"),
        sandbox=folder.sandbox().get("Sandbox", ""),
        jobs=tuple(_jobs(slots)) if running else (),
        suspended=suspended if process is not None else "",
        transfer_obstacle=folder.transfer_obstacle() if process is not None else "",
    )


def _jobs(slots: Iterable[ReplicaSlot]) -> Iterator[RunningJob]:
    for slot in slots:
        if not slot.is_finished and (started := slot.started_at()) is not None:
            seconds = max(0.0, time.time() - started)
            yield RunningJob(slot.id.bot, slot.id.seq, seconds, progress_of(slot.place()))
