"""What a seed's server is asked to do: how much room its buffers have, and which BOTs come when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gridbot_simulator.nemesis.faults import STEPS
from gridbot_simulator.world.chance import stream

_SLOTS = 4, 8, 16
_BOTS, _JOBS = 3, (4, 9)
_QUORUMS = 1, 2, 3
_LAST_COMES = STEPS // 3  # the step


@dataclass(frozen=True, slots=True)
class ComingBot:
    """A BOT that is submitted during the story."""

    step: int
    jobs: int
    quorum: int
    rank: int

    @property
    def policy(self) -> str:
        """Replicas of silent and slow hosts are copied, and all end within a minute.

        Where one answer suffices, that of another kind of hosts would not do.
        """
        kind = "HomogeneousBy = Host.NumCpus;" if self.quorum == 1 else ""
        return (
            f"Rank = {self.rank}; Deadline = 60; {kind}"
            "ReplicationRequirements = NumberOfReplicas < 3 && Job.Age > 15;"
        )


@dataclass(frozen=True, slots=True)
class StoryShape:
    """The size of a story."""

    slots: int  # of each buffer
    bots: Sequence[ComingBot]


def draw(seed: int) -> StoryShape:
    """Return the shape of a seed; the first BOT is there from the beginning."""
    chance = stream(seed, "shape")
    bots = [
        ComingBot(
            step=chance.randrange(_LAST_COMES) if number else 0,
            jobs=chance.randint(*_JOBS),
            quorum=chance.choice(_QUORUMS),
            rank=chance.randrange(3),
        )
        for number in range(_BOTS)
    ]
    return StoryShape(chance.choice(_SLOTS), bots)
