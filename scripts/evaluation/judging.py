"""What the paper found, what the simulations found, and whether that is the same.  Pure.

A claim passes or fails by the means over all seeds.  It is open where a run is missing, or where an
order must hold with 95 % and the seeds do not suffice.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gridbot_simulator.comparison import differences

from .experiments import Era
from .grids import COMMUNITY
from .ranking import Course, spearman
from .runs import BotRun, Run

Runs = Mapping[str, Sequence[Run]]  # of a figure, by names of experiments
_DAY_HOURS = 24.0
LEVELS = (1000, 500, 100, 50, 0)  # jobs left of 1,200: the curves of Figure 7(a)
FIGURE_7A = "50 BOTs"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table."""

    figure: str
    what: str
    paper: str
    ours: str
    tolerance: str
    passed: bool | None  # None: open

    @property
    def word(self) -> str:
        """As it is told."""
        return {True: "pass", False: "fail", None: "open"}[self.passed]


def verdicts(runs: Sequence[Run], era: Era) -> list[Verdict]:
    """Judge all figures of an era of which there are runs."""
    by_figure: defaultdict[str, defaultdict[str, list[Run]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for run in runs:
        # An unmodified server of 2009 is what all are compared with.
        if run.era == era or (run.figure, run.name) == ("5", "naive"):
            by_figure[run.figure][run.name].append(run)
    return [
        verdict
        for figure, judge in _JUDGES.items()
        if figure in by_figure
        for verdict in judge(by_figure[figure])
    ]


# ------------------------------------------------------------------------------------ figures


def _figure_5(runs: Runs) -> Iterator[Verdict]:
    naive, ours = _hours(runs.get("naive")), _hours(runs.get("GridBot"))
    ratio = naive / ours if naive and ours else None
    waits = [_waits(run.bots[0]) for run in runs.get("naive", ())]
    yield Verdict("5", "naive BOINC, hours", "280", _text(naive), "", None)
    yield Verdict("5", "GridBot, hours", "8", _text(ours), "at most 12", _within(ours, 0, 12))
    yield Verdict("5", "naive by GridBot", "35", _text(ratio), "at least 20", _at_least(ratio, 20))
    yield Verdict(
        "5", "the naive tail waits for Deadlines", "steps of 3 days",
        f"{min(waits)} to {max(waits)} waits of a day" if waits else "",
        "at least 2", min(waits) >= 2 if waits else None,
    )  # fmt: skip


def _waits(bot: BotRun) -> int:
    """How often nothing ended for a day."""
    return sum(after - before > _DAY_HOURS for (_, before), (_, after) in pairwise(bot.left))


def _condor(runs: Runs) -> Iterator[Verdict]:
    found = runs["GridBot"]
    hours = _hours(found)
    minutes = None if hours is None else 60 * hours
    copies = _mean([run.bots[0].replicas_percent for run in found])
    yield Verdict(
        "Condor",
        "GridBot, minutes",
        "53 ± 10",
        _text(minutes),
        "40 to 65",
        _within(minutes, 40, 65),
    )
    yield Verdict(
        "Condor", "replicas, %", "less than 1", _text(copies), "at most 2", _within(copies, 0, 2)
    )
    yield Verdict("Condor", "Condor, minutes", "170 ± 41", "not simulated", "", None)


_SHARES = {"Madison": 20, "OSG": 10, "EGEE": 16, "Technion": 5, COMMUNITY: 47}


def _figure_6(runs: Runs) -> Iterator[Verdict]:
    found = next(iter(runs.values()))
    hours = _hours(found)
    days = None if hours is None else hours / _DAY_HOURS
    yield Verdict("6", "days", "15", _text(days), "13 to 17", _within(days, 13, 17))
    straight = _mean([_straightness(run.bots[0]) for run in found])
    yield Verdict(
        "6", "straight line, r²", "almost linear", f"{straight:.4f}", "at least 0.99",
        _at_least(straight, 0.99),
    )  # fmt: skip
    useful: defaultdict[str, float] = defaultdict(float)
    for run in found:
        for grid, cpu in run.useful_cpu_hours.items():
            useful[grid or COMMUNITY] += cpu
    for grid, paper in _SHARES.items():
        share = 100 * useful[grid] / sum(useful.values())
        yield Verdict(
            "6", f"part of {grid}, %", str(paper), _text(share), "± 5 points",
            abs(share - paper) <= 5,
        )  # fmt: skip


def _straightness(bot: BotRun) -> float:
    """r² of jobs left and time, up to the tail phase: the last 60,000 of 2.2 million."""
    points = [(jobs, at) for jobs, at in bot.left if jobs >= bot.jobs * 60_000 / 2_200_000]
    return statistics.correlation(*zip(*points, strict=True)) ** 2


def _figure_7(runs: Runs) -> Iterator[Verdict]:
    orders = {level: _rank_orders(runs[FIGURE_7A], level) for level in LEVELS}
    for level in LEVELS[:2]:
        worst = max(orders[level], default=None)
        yield Verdict(
            "7(a)", f"Spearman, {level} of 1,200 left", "straight by Rank", _order_text(worst),
            "at most -0.99", None if worst is None else worst <= -0.99,
        )  # fmt: skip
    first = _mean(orders[1000])
    for level in LEVELS[-2:]:
        mean = _mean(orders[level])
        yield Verdict(
            "7(a)", f"Spearman, {level} left", "deviates in the tail", _order_text(mean),
            "less order than with 1000 left",
            None if mean is None or first is None else mean > first,
        )  # fmt: skip
    medians = {name: _median_run_hours(found) for name, found in runs.items()}
    known = [hours for hours in medians.values() if hours]
    is_whole = len(known) == len(medians) > 1
    yield Verdict(
        "7(b)", "minutes from 1000 of 1,200 left to the end", "does not depend on BOTs queued",
        ", ".join(f"{name}: {_text(hours and 60 * hours)}" for name, hours in medians.items()),
        "medians within 15 %", max(known) / min(known) <= 1.15 if is_whole else None,
    )  # fmt: skip


def courses(run: Run) -> list[Course]:
    """The BOTs of Figure 7(a), by Rank."""
    return [
        Course(rank, [bot.when_left(bot.jobs - ended - 1) for ended in range(bot.jobs)])
        for rank, bot in enumerate(run.bots, start=1)
    ]


def _rank_orders(runs: Sequence[Run], level: int) -> list[float]:
    """Of each run; none if a BOT did not end, of which nobody knows its place."""
    if any(run.why_not for run in runs):
        return []
    return [
        spearman(
            range(len(run.bots)),
            [bot.when_left(round(bot.jobs * level / 1200)) for bot in run.bots],
        )
        for run in runs
    ]


def _order_text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _median_run_hours(runs: Sequence[Run]) -> float | None:
    """Of all BOTs; None if one did not end."""
    hours = [bot.run_hours for run in runs for bot in run.bots]
    known = [item for item in hours if item is not None]
    return statistics.median(known) if known and len(known) == len(hours) else None


def _figure_8(runs: Runs) -> Iterator[Verdict]:
    minutes = {
        name: hours and 60 * hours for name, found in runs.items() for hours in [_hours(found)]
    }
    yield Verdict(
        "8", "turnaround, minutes", "", _list(minutes), "", None,
    )  # fmt: skip
    yield _proven_order("8", "turnaround", ("B4", "B1", "B3", "B2"), runs)


_FIGURE_9 = {"P1": (4.1, 58, 30), "P2": (3.2, 11, 7), "P3": (4.2, 73, 57), "P4": (5.1, 0, 0),
             "P5": (5.8, 0, 0)}  # fmt: skip


def _figure_9(runs: Runs) -> Iterator[Verdict]:
    found = {name: _hours(runs.get(name)) for name in _FIGURE_9}
    for name, (paper, _, _) in _FIGURE_9.items():
        low, high = 0.75 * paper, 1.25 * paper
        yield Verdict(
            "9", f"{name}, hours", str(paper), _text(found[name]), "± 25 %",
            _within(found[name], low, high),
        )  # fmt: skip
    yield _order("9", "turnaround", ("P2", "P1", "P3", "P4", "P5"), found)
    for place, (what, of) in enumerate((("replicas", _replicas), ("waste", _waste)), start=1):
        parts = {name: of(runs.get(name)) for name in _FIGURE_9}
        first, second = parts["P1"], parts["P2"]
        yield Verdict(
            "9", f"{what}, %", _list({name: item[place] for name, item in _FIGURE_9.items()}),
            _list(parts), "P1 more than 3 times P2",
            None if first is None or second is None else first > 3 * second,
        )  # fmt: skip


_FIGURE_10 = {"R1": (188, 105), "R2": (129, 75), "R3": (49, 25), "R4": (35, 21)}


def _figure_10(runs: Runs) -> Iterator[Verdict]:
    found = runs["R4 from 2000"]
    for place, what in enumerate(("replicas", "waste")):
        parts = {
            name: _mean(
                [
                    (run.bots[bot].replicas_percent, run.bots[bot].waste_percent)[place]
                    for run in found
                ]
            )
            for bot, name in enumerate(_FIGURE_10)
        }
        paper = _list({name: item[place] for name, item in _FIGURE_10.items()})
        judged = _order("10", what, tuple(reversed(_FIGURE_10)), parts)
        yield Verdict("10", f"{what}, %", paper, judged.ours, "R1 > R2 > R3 > R4", judged.passed)
    hours = {name: _bot_hours(found, bot) for bot, name in enumerate(_FIGURE_10)}
    last, others = hours["R4"], [hours[name] for name in ("R1", "R2", "R3")]
    yield Verdict(
        "10", "turnaround, hours", "R4 is the last by far", _list(hours), "R4 the last",
        None if last is None else all(item is not None and item < last for item in others),
    )  # fmt: skip
    late = _bot_hours(runs.get("R4 from 4000", ()), 3)
    yield Verdict(
        "10", "R4 from 4000 jobs on, hours", "1.3", _text(late), "at most half of that from 2000",
        None if last is None or late is None else late <= last / 2,
    )  # fmt: skip


_JUDGES: Mapping[str, Callable[[Runs], Iterator[Verdict]]] = {
    "5": _figure_5, "Condor": _condor, "6": _figure_6, "7": _figure_7, "8": _figure_8,
    "9": _figure_9, "10": _figure_10,
}  # fmt: skip

# ------------------------------------------------------------------------------------ figuring


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _bot_hours(runs: Sequence[Run], bot: int) -> float | None:
    """Mean turnaround of a BOT; None if there is no run, or one that did not end."""
    hours = [run.bots[bot].hours for run in runs]
    return _mean([item for item in hours if item is not None]) if None not in hours else None


def _hours(runs: Sequence[Run] | None) -> float | None:
    return _bot_hours(runs or (), 0)


def _replicas(runs: Sequence[Run] | None) -> float | None:
    return _mean([run.bots[0].replicas_percent for run in runs or ()])


def _waste(runs: Sequence[Run] | None) -> float | None:
    return _mean([run.bots[0].waste_percent for run in runs or ()])


def _within(value: float | None, low: float, high: float) -> bool | None:
    return None if value is None else low <= value <= high


def _at_least(value: float | None, least: float) -> bool | None:
    return None if value is None else value >= least


def _order(
    figure: str, what: str, names: Sequence[str], values: Mapping[str, float | None]
) -> Verdict:
    """Judge whether values rise in the order of names."""
    known = [value for name in names if (value := values[name]) is not None]
    rises = all(one < other for one, other in pairwise(known))
    return Verdict(
        figure, f"order of {what}", " < ".join(names), _list(values), "the same order",
        rises if len(known) == len(names) else None,
    )  # fmt: skip


def _proven_order(figure: str, what: str, names: Sequence[str], runs: Runs) -> Verdict:
    """Judge whether hours rise in the order of names, each step with 95 % over the seeds."""
    told = {
        name: [
            {"seed": run.seed, "has_ended": not run.why_not, "hours": run.bots[0].hours}
            for run in runs.get(name, ())
        ]
        for name in names
    }
    signs = []
    for one, other in pairwise(names):
        item = differences(told[other], told[one], ("hours",), len(names))["hours"]
        sign = "?" if item is None or item.verdict != "real" else "<" if item.mean > 0 else ">"
        signs.append(sign)
    passed = False if ">" in signs else None if "?" in signs else True
    ours = names[0] + "".join(
        f" {sign} {name}" for sign, name in zip(signs, names[1:], strict=True)
    )
    return Verdict(
        figure, f"order of {what}", " < ".join(names), ours, "each with 95 %", passed,
    )  # fmt: skip


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _list(values: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {_text(value)}" for name, value in values.items())
