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
    nodes: int = 1  # equal machines that have these, as a pilot of several nodes


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """One replica, with the fields that decisions need."""

    id: ReplicaId
    resources: Resources
    stage: Stage
    seconds: float | None = None  # that it is likely to take; None: nobody knows
    nodes: tuple[int, ...] = (0,)  # on which it runs, of those of a pilot


def to_start(items: Sequence[LocalReplica], room: Room) -> dict[ReplicaId, tuple[int, ...]]:
    """Choose the waiting replicas that fit into the room, oldest first, and on which nodes.

    FIFO without overtaking, so that small replicas do not starve a large one.  A replica larger
    than a node has as many as it needs for itself, all at most; but none starts without its GPUs.
    """
    running, free = _of(items, Stage.RUNNING), _FreeNodes(room)
    for item in running:
        free.take(item.resources, item.nodes)
    gpus = sum(item.resources.gpus for item in running)
    started = dict[ReplicaId, tuple[int, ...]]()
    for item in _of(items, Stage.WAITING):
        gpus += item.resources.gpus
        nodes = free.fitting(item.resources)
        if gpus > room.gpus or not nodes:
            break
        free.take(item.resources, nodes)
        started[item.id] = nodes
    return started


class _FreeNodes:
    """What is left of each node; a negative number where more was taken than there is."""

    def __init__(self, room: Room) -> None:
        # Preferences may leave fewer cores than there are nodes.
        self._cpus, self._memory_mb = (
            max(1, whole // room.nodes) for whole in (room.cpus, room.memory_mb)
        )
        self._free = {node: (self._cpus, self._memory_mb) for node in range(room.nodes)}
        self._used = set[int]()

    def fitting(self, resources: Resources) -> tuple[int, ...]:
        """Nodes for a replica; none if there is no room now.

        One that shares a node gets the fullest that has room, so that others stay whole.
        """
        cpus, memory_mb = resources.cpus, resources.memory_mb
        count = max(-(-cpus // self._cpus), -(-memory_mb // self._memory_mb), 1)
        if count > 1:
            count = min(count, len(self._free))
            unused = [node for node in self._free if node not in self._used]
            return tuple(unused[:count]) if len(unused) >= count else ()
        able = [
            node for node, free in self._free.items() if cpus <= free[0] and memory_mb <= free[1]
        ]
        return (min(able, key=self._free.__getitem__),) if able else ()

    def take(self, resources: Resources, nodes: tuple[int, ...]) -> None:
        """Give a replica its nodes: its part of one, or the whole of each of several."""
        for node in nodes:
            cpus, memory_mb = self._free[node]
            left = (cpus - resources.cpus, memory_mb - resources.memory_mb)
            self._free[node] = left if len(nodes) == 1 else (0, 0)
            self._used.add(node)


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
