"""Tables of the evaluation, in Markdown.  Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .experiments import Era
from .judging import Verdict
from .runs import Run


def of_verdicts(judged: Mapping[Era, Sequence[Verdict]]) -> str:
    """A line for each claim, a column for each era."""
    claims: defaultdict[tuple[str, str, str, str], dict[Era, Verdict]] = defaultdict(dict)
    for era, items in judged.items():
        for item in items:
            claims[item.figure, item.what, item.paper, item.tolerance][era] = item
    lines = [
        (figure, what, paper, *(_told(found.get(era)) for era in judged), tolerance)
        for (figure, what, paper, tolerance), found in claims.items()
    ]
    return _table(("figure", "what", "paper", *(f"as {era}" for era in judged), "tolerance"), lines)


def _told(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    return f"{verdict.ours}: **{verdict.word}**" if verdict.tolerance else verdict.ours


def of_cpu(runs: Iterable[Run]) -> str:
    """CPU-hours of each experiment, means over the seeds."""
    named: defaultdict[tuple[str, str, str, float], list[Run]] = defaultdict(list)
    for run in runs:
        named[run.figure, run.name, run.era, run.scale].append(run)
    heads = (
        "figure", "run", "era", "scale", "seeds", "not ended", "jobs failed", "hours", "CPU-hours",
        "aborted", "lost", "answers discarded, %",
    )  # fmt: skip
    return _table(heads, (_cpu_line(key, found) for key, found in named.items()))


def _cpu_line(key: tuple[str, str, str, float], runs: Sequence[Run]) -> Iterator[str]:
    figure, name, era, scale = key
    yield from (figure, name, era, f"{scale:g}", str(len(runs)))
    yield str(sum(bool(run.why_not) for run in runs))
    yield str(sum(bot.failed for run in runs for bot in run.bots))
    hours = [max(bot.hours or 0.0 for bot in run.bots) for run in runs if not run.why_not]
    yield f"{statistics.fmean(hours):.2f}" if hours else ""
    for spent in (
        [run.cpu_hours for run in runs],
        [run.aborted_cpu_hours for run in runs],
        [run.lost_cpu_hours for run in runs],
        [statistics.fmean(bot.waste_percent for bot in run.bots) for run in runs],
    ):
        yield f"{statistics.fmean(spent):,.1f}"


def _table(heads: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
