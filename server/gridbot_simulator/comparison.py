"""Figures of simulations over seeds: their ranges, and which differences of two policies are real.

Theory of operation
===================

Under one seed all policies meet the same hosts, jobs and failures.  Outcomes are therefore compared
in pairs, seed by seed: what the seed does to both cancels out.  The interval of a difference is
Student's t interval over the pairs.  Several differences are told at once, so each gets a share of
the 5 % of error (Bonferroni): the chance that any of them is called real wrongly stays below 5 %.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles, stdev
from typing import Any, Literal

Run = Mapping[str, Any]  # with `seed`, `has_ended`, and figures
Verdict = Literal["real", "open", "too few seeds"]

LEAST_SEEDS = 5  # with fewer, nothing is called real
_ERROR = 0.05  # chance that any difference of one comparison is called real wrongly
_MOST_WANTED = 1000  # seeds


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much more one figure is under a policy than under another, in the figure's unit."""

    seeds: int  # under which both have ended
    mean: float
    low: float | None  # of the interval; None where one pair has no spread
    high: float | None
    percent: float | None  # the mean, of the other policy's mean; None if that is 0
    seeds_wanted: int | None  # that would tell, if all goes on as it is; None if they are too many

    @property
    def verdict(self) -> Verdict:
        """Whether the difference is real, or might be chance."""
        if self.seeds < LEAST_SEEDS or self.low is None or self.high is None:
            return "too few seeds"
        return "real" if self.low > 0 or self.high < 0 else "open"

    @property
    def document(self) -> dict[str, Any]:
        """As it is told."""
        return {
            "seeds": self.seeds,
            "mean": _rounded(self.mean),
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "percent": _rounded(self.percent),
            "verdict": self.verdict,
            "seeds_wanted": self.seeds_wanted,
        }


def differences(
    runs: Sequence[Run], others: Sequence[Run], figures: Sequence[str], policies: int = 2
) -> dict[str, PairedDifference | None]:
    """Compare the runs of a policy with those of another one, seed by seed.

    A figure is None if under no seed both have it.  `policies` is how many are compared in all:
    the more, the more it takes to call a difference real.
    """
    by_seed = {run["seed"]: run for run in others if run["has_ended"]}
    pairs = [
        (run, by_seed[run["seed"]]) for run in runs if run["has_ended"] and run["seed"] in by_seed
    ]
    error = _ERROR / (len(figures) * max(1, policies - 1))
    return {
        figure: _difference(
            [
                (one[figure], other[figure])
                for one, other in pairs
                if one[figure] is not None and other[figure] is not None
            ],
            error,
        )
        for figure in figures
    }


def told(found: Mapping[str, PairedDifference | None]) -> dict[str, dict[str, Any] | None]:
    """Differences of figures as a document."""
    return {name: None if item is None else item.document for name, item in found.items()}


def _difference(pairs: Sequence[tuple[float, float]], error: float) -> PairedDifference | None:
    if not pairs:
        return None
    found = [one - other for one, other in pairs]
    mean, base = fmean(found), fmean(other for _, other in pairs)
    percent = 100 * mean / base if base else None
    if len(found) < 2:
        return PairedDifference(len(found), mean, None, None, percent, LEAST_SEEDS)
    spread = stdev(found)
    half = t_quantile(error, len(found) - 1) * spread / math.sqrt(len(found))
    wanted = _seeds_wanted(mean, spread, error)
    return PairedDifference(len(found), mean, mean - half, mean + half, percent, wanted)


def _seeds_wanted(mean: float, spread: float, error: float) -> int | None:
    """The least number of seeds whose interval would leave out 0, with this mean and spread."""
    seeds = LEAST_SEEDS
    while seeds <= _MOST_WANTED:
        if t_quantile(error, seeds - 1) * spread / math.sqrt(seeds) < abs(mean):
            return seeds
        seeds = math.ceil(seeds * 1.25)
    return None


def t_quantile(error: float, degrees: int) -> float:
    """Return what the size of Student's t exceeds with a chance of `error`."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 1 - error else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """The chance that the size of Student's t is at most sqrt(degrees) * tan(angle).

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    is_odd = degrees % 2
    cosine = math.cos(angle)
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for power in range(2 + is_odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total


def ranges(runs: Sequence[Run], figures: Sequence[str]) -> dict[str, dict[str, float] | None]:
    """Return the median and the 80 % range of each figure; None where no run has ended."""
    ended = [run for run in runs if run["has_ended"]]
    return {
        figure: _range([run[figure] for run in ended if run[figure] is not None])
        for figure in figures
    }


def _range(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    if len(values) == 1:
        return {"median": values[0], "low": values[0], "high": values[0]}
    tenths = quantiles(values, n=10, method="inclusive")
    found = {"median": median(values), "low": tenths[0], "high": tenths[-1]}
    return {name: round(value, 2) for name, value in found.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
