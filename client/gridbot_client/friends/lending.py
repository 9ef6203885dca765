"""Which idle CPUs are lent to which friend, and when they are taken back.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gridbot_client import agent
from gridbot_client.agent import UNFINISHED, LocalReplica, Room, Stage
from gridbot_client.backoff import BackOff
from gridbot_client.protocol.manifest import Resources
from gridbot_client.protocol.messages import ReplicaId

LEAST_MEMORY_MB = 128  # of a guest
# How long a friend is not asked again after its guest left: without work, or by an error.
_RESTS = BackOff(least=60.0)


@dataclass(frozen=True, slots=True)
class Friend:
    """A further server, in the order in which they are asked."""

    name: str  # of its folder
    url: str
    share: int = 100  # most of this machine's CPUs that it gets, in per cent


@dataclass(frozen=True, slots=True)
class Loan:
    """What a friend's guest may use."""

    friend: str
    cpus: int
    memory_mb: int

    @property
    def item(self) -> LocalReplica:
        """The same as something that runs here."""
        resources = Resources(cpus=self.cpus, memory_mb=self.memory_mb)
        return LocalReplica(ReplicaId(0, 0, 0), resources, Stage.RUNNING)


def to_lend(
    friends: Iterable[Friend], loans: Sequence[Loan], used: Resources, room: Room
) -> list[Loan]:
    """What to lend to these friends, who are asked in their order.

    `used` is what home has used lately at most, and `loans` are those of now.
    """
    cpus = room.cpus - used.cpus - sum(loan.cpus for loan in loans)
    memory_mb = room.memory_mb - used.memory_mb - sum(loan.memory_mb for loan in loans)
    found = list[Loan]()
    for friend in friends:
        some = min(cpus, max(1, room.cpus * friend.share // 100))
        part = memory_mb * some // cpus if cpus > 0 else 0
        if some < 1 or part < LEAST_MEMORY_MB:
            break
        found.append(Loan(friend.name, some, part))
        cpus, memory_mb = cpus - some, memory_mb - part
    return found


def to_take_back(loans: Sequence[Loan], items: Sequence[LocalReplica], room: Room) -> list[Loan]:
    """Loans that end so that the next replica of home can start: the last made first.

    None if it can start beside them, or not without them either.
    """
    left, ended = list(loans), list[Loan]()
    while left and not agent.to_start([*(loan.item for loan in left), *items], room):
        ended.append(left.pop())
    return ended if ended and (left or agent.to_start(items, room)) else []


@dataclass(slots=True)
class LateUse:
    """What home has used in the last seconds at most."""

    seconds: float
    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)  # since when: CPUs, memory

    def note(self, items: Iterable[LocalReplica], now: float) -> Resources | None:
        """Note what is used now; the most of late, None while that is not known."""
        unfinished = [item.resources for item in items if item.stage in UNFINISHED]
        used = (sum(each.cpus for each in unfinished), sum(each.memory_mb for each in unfinished))
        if not self._seen or self._seen[-1][1:] != used:
            self._seen.append((now, *used))
        begin = now - self.seconds
        while len(self._seen) > 1 and self._seen[1][0] <= begin:
            self._seen.popleft()
        if self._seen[0][0] > begin:
            return None
        cpus = max(seen[1] for seen in self._seen)
        return Resources(cpus=cpus, memory_mb=max(seen[2] for seen in self._seen))


@dataclass(frozen=True, slots=True)
class Rest:
    """When a friend may be asked again, seconds on the caller's clock."""

    until: float = 0.0
    failures: int = 0  # in a row

    def after(self, now: float, *, has_failed: bool) -> Rest:
        """The rest after its guest has left by itself."""
        failures = self.failures + 1 if has_failed else 0
        return Rest(now + _RESTS.seconds(failures + 1), failures)
