"""Decisions of the client: start, ask for work, wait, exit.  Pure: state and time are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gridbot_client.protocol.messages import ReplicaId, Resources

# Most replicas in one request; the server bounds them by the policy's Concurrency, too.
WANT_PER_CPU = 32
# With more unreported replicas the client asks for none: its uploads or reports do not get through.
MOST_HELD = 2000
# Interval at which the owner's policy is evaluated again.
LOOK_AGAIN_SECONDS = 60.0


class Stage(StrEnum):
    """Stage of a replica on this client."""

    WAITING = "waiting"
    RUNNING = "running"  # its inputs are fetched or its process runs: it takes room
    UPLOADING = "uploading"
    FINISHED = "finished"  # the report waits for the next request
    REPORTED = "reported"  # sent, but not acknowledged: goes along with later requests


UNFINISHED = (Stage.WAITING, Stage.RUNNING)


@dataclass(frozen=True, slots=True)
class Room:
    """CPUs, memory and GPUs for all replicas together."""

    cpus: int
    memory_mb: int
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """One replica, with the fields that decisions need."""

    id: ReplicaId
    resources: Resources
    stage: Stage
    seconds: float | None = None  # that it is likely to take; None: nobody knows


def to_start(items: Sequence[LocalReplica], room: Room) -> list[ReplicaId]:
    """List the waiting replicas that fit into the room, oldest first.

    FIFO without overtaking, so that small replicas do not starve a large one.  A replica larger
    than the room runs alone, but none starts without its GPUs.
    """
    running = _of(items, Stage.RUNNING)
    cpus = sum(item.resources.cpus for item in running)
    memory = sum(item.resources.memory_mb for item in running)
    gpus = sum(item.resources.gpus for item in running)
    started: list[ReplicaId] = []
    for item in _of(items, Stage.WAITING):
        cpus += item.resources.cpus
        memory += item.resources.memory_mb
        gpus += item.resources.gpus
        fits = cpus <= room.cpus and memory <= room.memory_mb
        if gpus > room.gpus or (not fits and (running or started)):
            break
        started.append(item.id)
    return started


def wanted(items: Sequence[LocalReplica], room: Room, lookahead_seconds: float) -> int:
    """Number of replicas to ask for; 0 while waiting ones can keep all CPUs busy for some time.

    One of which nobody knows how long it takes is taken to last long enough.
    """
    if len(items) >= MOST_HELD:
        return 0
    waiting = (
        item.resources.cpus * min(lookahead_seconds, item.seconds or lookahead_seconds)
        for item in _of(items, Stage.WAITING)
    )
    if sum(waiting) >= room.cpus * lookahead_seconds:
        return 0
    return max(0, WANT_PER_CPU * room.cpus - len(_of(items, Stage.UPLOADING)))


def has_idle_cpus(items: Sequence[LocalReplica], room: Room) -> bool:
    """Whether CPUs are left over with all started that is here."""
    return sum(item.resources.cpus for item in items if item.stage in UNFINISHED) < room.cpus


def free_gpus(items: Sequence[LocalReplica], room: Room) -> int:
    """GPUs that no replica here uses or waits for."""
    promised = sum(item.resources.gpus for item in items if item.stage in UNFINISHED)
    return max(0, room.gpus - promised)


def next_request_seconds(asked_seconds: float, *, may_ask: bool) -> float:
    """Seconds until the next request: those that the server asked for.

    For a client whose owner's policy forbids work they are at least the interval of evaluating
    that policy.
    """
    return asked_seconds if may_ask else max(asked_seconds, LOOK_AGAIN_SECONDS)


def request_in(
    items: Sequence[LocalReplica], ask_at: float, blocked_until: float, now: float
) -> float:
    """Seconds until a request is due; zero or negative when it is due now.

    A report is due at once, other requests at `ask_at`; neither before `blocked_until`.
    """
    due = now if _of(items, Stage.FINISHED) else ask_at
    return max(due, blocked_until) - now


def may_leave(items: Sequence[LocalReplica], idle_seconds: float, limit: float | None) -> bool:
    """True if the client holds no replica and was idle for `limit` seconds; None: never."""
    return not items and limit is not None and idle_seconds >= limit


def _of(items: Sequence[LocalReplica], stage: Stage) -> list[LocalReplica]:
    return [item for item in items if item.stage is stage]
