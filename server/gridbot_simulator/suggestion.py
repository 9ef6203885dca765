"""Which policy suits a BOT: simulations of candidates, the frontier, and a check of the choice.

Theory of operation
===================

All candidates are simulated under two seeds.  Those that are clearly dominated are dropped: another
one takes less time and less CPU time, each by more than `_MARGIN`.  The rest, and the present
policy, are simulated under all seeds.  On the frontier are those of which no other is better in
both.  Its knee is the one with the least product of makespan and CPU time: there a percent of one
costs a percent of the other.  The policy that was best under some seeds had luck with them, too:
the choice is compared with the present policy under seeds that took no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import fmean, median
from typing import Any, Literal

from gridbot_simulator.candidates import PRESENT, candidates
from gridbot_simulator.comparison import Run, differences, ranges, told
from gridbot_simulator.estimate import FIGURES, Asked, outcome

Preference = Literal["time", "cost", "balance"]
Point = tuple[float, float]  # makespan in seconds, CPU hours

_SCREENED = 2  # seeds
_MARGIN = 0.03  # of both figures
_MOST_FAILED = 0.01  # of the jobs, more than under the present policy


def suggest(
    asked: Mapping[str, Any], policy: str, prefer: Preference, tell: Callable[[str], object] = str
) -> dict[str, Any]:
    """Simulate candidates for a BOT; return a document that depends on nothing else.

    `asked` has the fields of `Asked`; `policy` is the present one, "" for the default.  `tell` is
    given a line before each simulation.  Raises ValueError if the BOT ends under no candidate.
    """
    wanted, texts = Asked(**asked), candidates(policy)
    screened = min(_SCREENED, wanted.seeds)
    found = _simulated(wanted, texts, range(1, screened + 1), tell)
    rest = undominated(_points(found, wanted.jobs), _MARGIN)
    kept = {name: text for name, text in texts.items() if name in rest or name == PRESENT}
    for name, runs in _simulated(wanted, kept, range(screened + 1, wanted.seeds + 1), tell).items():
        found[name] += runs

    points = _points({name: found[name] for name in kept}, wanted.jobs)
    if not points:
        raise ValueError(f"the BOT ends under no policy that was tried: {_why_not(found)}")
    frontier = {name: points[name] for name in undominated(points)}
    chosen = choose(frontier, prefer)
    return {
        **wanted.document,
        "seeds": wanted.seeds,
        "prefer": prefer,
        "candidates": [
            {
                "policy": name,
                "text": texts[name],
                "seeds": len(runs),
                "figures": ranges(runs, FIGURES),
                "on_frontier": name in frontier,
            }
            for name, runs in found.items()
        ],
        "knee": choose(frontier, "balance"),
        "chosen": {
            "policy": chosen,
            "text": texts[chosen],
            "against_present": _checked(wanted, texts, chosen, tell),
        },
    }


def _simulated(
    asked: Asked, texts: Mapping[str, str], seeds: range, tell: Callable[[str], object]
) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in texts}
    for at, (seed, name) in enumerate(product(seeds, texts), 1):
        tell(f"{at} of {len(seeds) * len(texts)}: {name}, seed {seed}")
        found[name].append(outcome(asked, texts[name], seed))
    return found


def _checked(
    asked: Asked, texts: Mapping[str, str], chosen: str, tell: Callable[[str], object]
) -> dict[str, Any] | None:
    """Compare the choice with the present policy under further seeds; None if it is that."""
    if chosen == PRESENT:
        return None
    both = {name: texts[name] for name in (PRESENT, chosen)}
    seen = _simulated(asked, both, range(asked.seeds + 1, 2 * asked.seeds + 1), tell)
    return told(differences(seen[chosen], seen[PRESENT], FIGURES))


def _points(found: Mapping[str, Sequence[Run]], jobs: int) -> dict[str, Point]:
    """Return where the candidates lie under which the BOT ends as well as it does at present."""
    allowed = fmean(run["failed"] for run in found[PRESENT]) + _MOST_FAILED * jobs
    return {
        name: (
            median(run["makespan_seconds"] for run in runs),
            median(run["cpu_hours"] for run in runs),
        )
        for name, runs in found.items()
        if all(run["has_ended"] for run in runs) and fmean(run["failed"] for run in runs) <= allowed
    }


def undominated(points: Mapping[str, Point], margin: float = 0.0) -> list[str]:
    """Return those that no other one beats in both figures, by more than a part of them.

    Without a margin these are the frontier.  Of equals the first stays.
    """
    limits = {
        name: (time * (1 - margin), cost * (1 - margin)) for name, (time, cost) in points.items()
    }
    order = {name: at for at, name in enumerate(points)}

    def beats(other: str, name: str) -> bool:
        is_within = all(one <= most for one, most in zip(points[other], limits[name], strict=True))
        return is_within and (points[other] != points[name] or order[other] < order[name])

    return [name for name in points if not any(beats(other, name) for other in points)]


def choose(points: Mapping[str, Point], prefer: Preference) -> str:
    """Return the one that is preferred; of equals the first."""
    score: dict[Preference, Callable[[str], float]] = {
        "time": lambda name: points[name][0],
        "cost": lambda name: points[name][1],
        "balance": lambda name: points[name][0] * points[name][1],
    }
    return min(points, key=score[prefer])


def _why_not(found: Mapping[str, Sequence[Run]]) -> str:
    return next(
        (run["why_not"] for runs in found.values() for run in runs if run["why_not"]),
        "too many jobs fail",
    )
