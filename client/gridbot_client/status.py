"""State of a client, read from its folder by another process."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from gridbot_client.storage import Folder
from gridbot_client.work.slots import slots_in


@dataclass(frozen=True, slots=True)
class Status:
    """State of a client: one of five words, with counts and errors."""

    state: str  # not joined, paused, waiting for the server, running, idle
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

    def json(self) -> dict[str, Any]:
        """Document for --json."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Lines for people, the state first."""
        first = self.state
        if self.state == "running":
            first = f"running {self.running}"
        if self.state == "waiting for the server":
            first = f"{self.state} ({self.error}; next try in {self.next_try_seconds:.0f} s)"
        found = [first]
        if self.server:
            found.append(f"server {self.server}, owner {self.owner}, client {self.client}")
            found.append(f"replicas: {self.waiting} waiting, {self.finished} to report")
        if self.sandbox_level is not None:
            found.append(f"sandbox level {self.sandbox_level}: {self.sandbox}")
        if self.requirements:
            found += ["owner's policy:", *_indented(self.requirements)]
        if self.obstacle:
            found += ["not asking for work, because not satisfied:", *_indented(self.obstacle)]
        if self.process is None:
            found.append("the client is not running; to start it: gridbot client run")
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
    state = "running" if running else "idle"
    if identity is None:
        state = "not joined"
    elif folder.paused_flag.exists():
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
    )
