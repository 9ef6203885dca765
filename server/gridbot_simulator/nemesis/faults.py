"""What may go wrong, and when: the list of faults of a seed.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gridbot_simulator.world.chance import stream

STEPS = 240  # in which faults come
_RATE = 0.16  # of steps that have one
_MOST_POINTS = 30  # that most passes cross


class FaultKind(StrEnum):
    """A kind of fault; the value of a `Fault` means what is said here."""

    KILL = "the process dies"
    ERROR = "a statement fails, and its connection is lost"
    LOST_COMMIT = "a commit arrives, but not its answer"
    INTERRUPT = "another process goes first"  # value: which
    LOST_REQUEST = "a request is lost"
    LOST_REPLY = "a reply is lost"
    REPEAT = "a request comes once more, later"  # value: s
    DELAY = "a request takes long"  # value: s
    CLOCK = "the database's clock is set"  # value: s
    DAMAGE = "a buffer is damaged"  # value: the machine
    OUTAGE = "the database is away"  # value: steps
    RESTORE = "a backup is restored"
    HOST_LOST = "a host loses all that its client had"  # value: the host
    SLEEP = "a host sleeps"  # value: s
    CANCEL = "the owner cancels a BOT"  # value: the BOT


AT_POINTS = frozenset((FaultKind.KILL, FaultKind.ERROR, FaultKind.LOST_COMMIT, FaultKind.INTERRUPT))
"""Those that strike within a step."""

_WEIGHTS = {
    FaultKind.KILL: 9, FaultKind.ERROR: 3, FaultKind.LOST_COMMIT: 3, FaultKind.INTERRUPT: 9,
    FaultKind.LOST_REQUEST: 2, FaultKind.LOST_REPLY: 5, FaultKind.REPEAT: 4, FaultKind.DELAY: 3,
    FaultKind.CLOCK: 2, FaultKind.DAMAGE: 1, FaultKind.OUTAGE: 1, FaultKind.RESTORE: 1,
    FaultKind.HOST_LOST: 1.5,
    FaultKind.SLEEP: 2.5, FaultKind.CANCEL: 0.2,
}  # fmt: skip
_JUMPS = (-60, -3, 3, 40, 90, 600)  # s by which clocks are set


@dataclass(frozen=True, order=True, slots=True)
class Fault:
    """One fault: in which step, at which of the points that are crossed in it, and what it means.

    Faults of messages wait for the next message.
    """

    step: int
    kind: FaultKind
    point: int = 0
    value: int = 0

    def __str__(self) -> str:
        at = f", point {self.point}" if self.kind in AT_POINTS else ""
        return f"step {self.step}{at}: {self.kind} ({self.kind.name} {self.value})"


def draw(seed: int) -> Sequence[Fault]:
    """Return the faults of a seed, in order."""
    chance = stream(seed, "faults")
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    found = []
    for step in range(STEPS):
        if chance.random() >= _RATE:
            continue
        (kind,) = chance.choices(kinds, weights)
        # Points are many in some passes and few in others: early ones are more likely.
        point = int(_MOST_POINTS * chance.random() ** 2)
        value = chance.randrange(1000)
        if kind is FaultKind.CLOCK:
            value = chance.choice(_JUMPS)
        found.append(Fault(step, kind, point, value))
    return found
