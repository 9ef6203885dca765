"""What a policy would do: simulations of several seeds, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gridbot_simulator.comparison import differences, ranges, told
from gridbot_simulator.world.chance import stream
from gridbot_simulator.world.client import SimulatedHost
from gridbot_simulator.world.jobs import Workload
from gridbot_simulator.world.presets import PRESETS
from gridbot_simulator.world.simulation import Ran, Scenario, Simulation

FIGURES = (
    "makespan_seconds", "tail_seconds", "replicas_percent", "resent_percent", "discarded_percent",
    "cpu_hours",
)  # fmt: skip
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be simulated; raises ValueError with a sentence about what is wrong."""

    jobs: int
    seconds: tuple[float, float]  # that a job takes a host of speed 1, from and to
    hosts: Sequence[tuple[str, int]]  # kinds and numbers
    seeds: int
    are_known: bool = True  # the server has had results of the hosts before

    def __post_init__(self) -> None:
        for kind, _ in self.hosts:
            if kind not in PRESETS:
                known = ", ".join(PRESETS)
                raise ValueError(f"there are no hosts of the kind {kind!r}, only {known}")

    @property
    def document(self) -> dict[str, Any]:
        """As it is told."""
        return {
            "jobs": self.jobs,
            "job_seconds": list(self.seconds),
            "hosts": [{"kind": kind, "hosts": number} for kind, number in self.hosts],
            "hosts_known": self.are_known,
        }


def estimate(
    asked: Mapping[str, Any], policies: Mapping[str, str], tell: Callable[[str], object] = str
) -> dict[str, Any]:
    """Simulate policies, given by their names; return a document that depends on nothing else.

    `asked` has the fields of `Asked`.  `tell` is given a line before each simulation.  Each policy
    meets the same hosts, jobs and failures under a seed, so that all are compared with the first.
    """
    wanted = Asked(**asked)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in policies}
    for seed in range(1, wanted.seeds + 1):
        for name, policy in policies.items():
            tell(f"{name}: seed {seed} of {wanted.seeds}")
            found[name].append(outcome(wanted, policy, seed))
    first, *others = found
    against = {
        name: differences(found[name], found[first], FIGURES, len(policies)) for name in others
    }
    return {
        **wanted.document,
        "policies": [
            {
                "policy": name,
                "figures": ranges(runs, FIGURES),
                "against_first": told(against[name]) if name in against else None,
                "runs": runs,
            }
            for name, runs in found.items()
        ],
    }


def outcome(asked: Asked, policy: str, seed: int) -> dict[str, Any]:
    """Simulate a policy under one seed; return what came of it, with `FIGURES`."""
    return _told(seed, simulate(asked, policy, seed))


def simulate(asked: Asked, policy: str, seed: int) -> Ran:
    """Simulate a policy under one seed."""
    low, high = asked.seconds
    workload = Workload.between(asked.jobs, low, high, stream(seed, "jobs"))
    hosts = _hosts(asked.hosts, seed)
    return Simulation(Scenario(policy, workload, hosts, seed, asked.are_known)).run()


def _hosts(kinds: Sequence[tuple[str, int]], seed: int) -> list[SimulatedHost]:
    hosts: list[SimulatedHost] = []
    for kind, number in kinds:
        model, chance = PRESETS[kind], stream(seed, "traits", kind)
        for place in range(1, number + 1):
            name = f"{kind}-{place}"
            hosts.append(SimulatedHost(len(hosts) + 1, name, model, model.draw(chance)))
    return hosts


def _told(seed: int, ran: Ran) -> dict[str, Any]:
    bot, spent = ran.bot, ran.spent
    has_ended = bot.ended_at is not None
    counts = bot.counts
    repeats = sum(counts[f"sent_{why}"] for why in ("error", "expired", "silent"))
    tail = None if bot.tail_since is None else ran.ended_at - bot.tail_since
    return {
        "seed": seed,
        "has_ended": has_ended,
        "why_not": ran.why_not,
        "makespan_seconds": round(ran.ended_at - ran.begins_at, 1) if has_ended else None,
        "tail_seconds": round(tail, 1) if has_ended and tail is not None else None,
        "done": bot.done,
        "failed": bot.failed,
        "replicas_percent": round(100 * counts["sent_tail"] / bot.size, 2),
        "resent_percent": round(100 * repeats / bot.size, 2),
        "cpu_hours": round(spent.total / _HOUR, 2),
        "discarded_percent": _percent(spent.total - ran.useful, spent.total),
        "aborted_cpu_hours": round(spent.aborted / _HOUR, 2),
        "lost_cpu_hours": round(spent.lost / _HOUR, 2),
        "decisions": ran.decisions,
    }


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0
