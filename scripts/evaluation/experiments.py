"""The paper's experiments (section 7), over the one model of hosts.  Pure.

What the paper does not say is assumed for all of them alike, before any is simulated: a policy
without a Deadline, or without a Concurrency, has that of the paper's Figure 3.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gridbot_policies import PolicySet, examples
from gridbot_simulator.world.chance import stream
from gridbot_simulator.world.jobs import Workload
from gridbot_simulator.world.simulation import BEGINS_AT, SLOTS, Scenario, SimulatedBot

from .grids import COLLABORATIVE, COMMUNITY, hosts

Era = Literal["2009", "now"]
ERAS: Mapping[Era, str] = {
    "2009": "copies of finished jobs run on; only Deadlines find what is lost with a host",
    "now": "copies of finished jobs are aborted; silent hosts are found within minutes",
}
ALL = (*COLLABORATIVE, COMMUNITY)
SMALL_SCALE = (
    0.1  # of hosts, jobs and the scheduling buffer, where a figure is not simulated at full scale
)
_MORNING = BEGINS_AT + 8 * 3600  # no day ends amid a BOT of some hours: JobsToday is of that day
_DAYS = 86_400
_LEAST_SLOTS = 64

_FIGURE_3 = {
    "Concurrency": "Concurrency = 2 * Host.NumCpus;",
    "Deadline": "Deadline = Concurrency * 2000;",
}
_NAIVE = f"Deadline = {3 * _DAYS};\nReplicationRequirements = false;\n"
# Against Condor: "a 10 minute Deadline", "replication [...] if the failure rate of the running host
# was above 10%".  Assumed: 3 replicas at most, as in Figure 3, and no bundles.
_SHORT = """
Concurrency = 1;
Deadline = 600;
ReplicationRequirements = NumberOfReplicas < 3 && Job.Replica1.Host.ErrorRate > 0.1;
"""
_FIGURE_7_BOTS = (1, 10, 20, 30, 40, 50)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of a BOT: seconds on a usual CPU, the most frequent one if they are not even."""

    count: int
    low: float
    high: float
    mode: float | None = None

    def draw(self, scale: float, chance: random.Random) -> Workload:
        """Draw so large a part of them."""
        count = max(1, round(scale * self.count))
        if self.mode is None:
            return Workload.between(count, self.low, self.high, chance)
        mode = self.mode
        return Workload([chance.triangular(self.low, self.high, mode) for _ in range(count)])


@dataclass(frozen=True, slots=True)
class Experiment:
    """BOTs that are submitted at once; `policies` has one for each."""

    figure: str
    name: str
    grids: Sequence[str]
    jobs: Jobs
    policies: Sequence[str]
    eras: Sequence[Era] = ("2009", "now")
    usual_scale: float = SMALL_SCALE
    left_at: int | None = None  # of JobsLeft, what a policy compares it with; follows the scale

    def eras_of(self, wanted: Sequence[Era]) -> Sequence[Era]:
        """Those of these eras in which it is simulated; the only one if it has but one."""
        return self.eras if len(self.eras) == 1 else wanted

    def scenario(self, era: Era, scale: float, seed: int) -> Scenario:
        """What is simulated."""
        first, *others = (
            SimulatedBot(
                self._policy(text, scale), self.jobs.draw(scale, stream(seed, "jobs", bot))
            )
            for bot, text in enumerate(self.policies)
        )
        return Scenario(
            first.policy, first.workload, hosts(self.grids, scale, seed), seed,
            begins_at=_MORNING, further=others, answers_today=1,
            aborts=era == "now", finds_silent=era == "now",
            slots=max(_LEAST_SLOTS, round(scale * SLOTS)),
        )  # fmt: skip

    def _policy(self, text: str, scale: float) -> str:
        if self.left_at is not None:
            text = text.replace("JobsLeft < 2000", f"JobsLeft < {round(scale * self.left_at)}")
        policy = PolicySet.parse(text)
        said = {"Concurrency": policy.has_concurrency, "Deadline": policy.has_deadline}
        return "\n".join([text, *(_FIGURE_3[name] for name in said if not said[name])])


# "2.2 million jobs ranging from 20 to 40 minutes", "115 CPU years": 27.5 minutes in the mean.
_MANY = Jobs(2_200_000, 1200, 2400, mode=1350)
_MEDIUM = Jobs(30_000, 600, 900)
_SMALL = Jobs(1200, 120, 240)  # "three minutes", assumed: from two to four


def _ranked(bots: int) -> Sequence[str]:
    return [f"Rank = {rank};\nConcurrency = 1;" for rank in range(1, bots + 1)]


EXPERIMENTS: Sequence[Experiment] = (
    Experiment("5", "naive", ALL, _MEDIUM, [_NAIVE], eras=("2009",)),
    # Its policy is not given; Figure 10's that does best.
    Experiment("5", "GridBot", ALL, _MEDIUM, [examples.text("r2")]),
    Experiment("Condor", "GridBot", ("Madison",), Jobs(3000, 30, 300), [_SHORT], usual_scale=1.0),
    Experiment("6", "2.2 M jobs", ALL, _MANY, [examples.text("throughput")]),
    *(
        Experiment("7", f"{bots} BOTs", COLLABORATIVE, _SMALL, _ranked(bots))
        for bots in _FIGURE_7_BOTS
    ),
    *(
        Experiment("8", name.upper(), COLLABORATIVE, _SMALL, [examples.text(name)], usual_scale=1.0)
        for name in ("b1", "b2", "b3", "b4")
    ),
    *(
        Experiment("9", name.upper(), COLLABORATIVE, _MEDIUM, [examples.text(name)])
        for name in ("p1", "p2", "p3", "p4", "p5")
    ),
    *(
        Experiment(
            "10", f"R4 from {left}", ALL, _MEDIUM,
            [examples.text(name) for name in ("r1", "r2", "r3", "r4")], left_at=left,
        )
        for left in (2000, 4000)
    ),
)  # fmt: skip
FIGURES = tuple(dict.fromkeys(item.figure for item in EXPERIMENTS))
