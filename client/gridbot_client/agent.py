"""What the client does next: start, ask, wait or leave; pure, state and time come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gridbot_client.protocol.messages import ReplicaId, Resources

# What is asked for at once; the server bounds it by the policy's Concurrency.
WANT_PER_CPU = 32
# Beyond this the client takes nothing new: its uploads or reports do not get through.
MOST_HELD = 2000
# How often a client looks whether its owner lets it ask for work again.
LOOK_AGAIN_SECONDS = 60.0


class Stage(StrEnum):
    """Where a replica is on this client."""

    WAITING = "waiting"
    RUNNING = "running"  # its inputs are fetched or its process runs: it takes room
    UPLOADING = "uploading"
    FINISHED = "finished"  # the report waits for the next request
    REPORTED = "reported"  # sent, but not acknowledged: goes along with later requests


UNFINISHED = (Stage.WAITING, Stage.RUNNING)


@dataclass(frozen=True, slots=True)
class Room:
    """What replicas may use together."""

    cpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Item:
    """One replica as far as decisions go."""

    id: ReplicaId
    resources: Resources
    stage: Stage


def to_start(items: Sequence[Item], room: Room) -> list[ReplicaId]:
    """List the waiting replicas that there is room for, oldest first.

    None overtakes an older one, so a wide replica is not starved by narrow ones; one that is
    larger than the room runs alone, because waiting would not help it.
    """
    running = _of(items, Stage.RUNNING)
    cpus = sum(item.resources.cpus for item in running)
    memory = sum(item.resources.memory_mb for item in running)
    started: list[ReplicaId] = []
    for item in _of(items, Stage.WAITING):
        cpus += item.resources.cpus
        memory += item.resources.memory_mb
        fits = cpus <= room.cpus and memory <= room.memory_mb
        if not fits and (running or started):
            break
        started.append(item.id)
    return started


def wanted(items: Sequence[Item], room: Room) -> int:
    """How many replicas to ask for: none while what waits can fill the machine."""
    if len(items) >= MOST_HELD:
        return 0
    if sum(item.resources.cpus for item in _of(items, Stage.WAITING)) >= room.cpus:
        return 0
    return max(0, WANT_PER_CPU * room.cpus - len(_of(items, Stage.UPLOADING)))


def next_request_seconds(asked_seconds: float, *, may_ask: bool) -> float:
    """Seconds until the next request: what the server asked for, unless that is in vain.

    It expects one that asked for nothing to be about to want more; a client whose owner
    refuses work is not.
    """
    return asked_seconds if may_ask else max(asked_seconds, LOOK_AGAIN_SECONDS)


def request_in(items: Sequence[Item], ask_at: float, blocked_until: float, now: float) -> float:
    """Seconds until a request is due; not positive when it is due now.

    A report goes at once, all else when the server expects it (`ask_at`); backoff bounds both.
    """
    due = now if _of(items, Stage.FINISHED) else ask_at
    return max(due, blocked_until) - now


def may_leave(items: Sequence[Item], idle_seconds: float, limit: float | None) -> bool:
    """Whether a client that exits when idle for `limit` seconds may do so: it holds nothing."""
    return not items and limit is not None and idle_seconds >= limit


def _of(items: Sequence[Item], stage: Stage) -> list[Item]:
    return [item for item in items if item.stage is stage]
