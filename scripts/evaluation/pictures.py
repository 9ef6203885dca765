"""Draws the paper's figures from runs: curves of jobs left, parts, places in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import judging, ranks_picture
from .experiments import Era
from .runs import BotRun, Run

_COLOURS = ("#1b3a57", "#e0912f", "#2a7f9e", "#c0392b", "#7a5195")
_LINES = ("-", "--", "-.", ":", (0, (5, 1)))  # told apart in grey, too


def draw(folder: Path, runs: Sequence[Run], era: Era) -> list[Path]:
    """Draw all figures of an era of which there are runs; curves are of the first seed."""
    named: defaultdict[str, dict[str, Run]] = defaultdict(dict)
    for run in runs:
        if run.era == era or (run.figure, run.name) == ("5", "naive"):
            named[run.figure].setdefault(run.name, run)
    path = {figure: folder / f"figure{figure}-{era}.png" for figure in (*named, "7a", "7b")}
    drawn: list[Path] = []
    for figure, found in named.items():
        if figure == "7":
            drawn += _figure_7(path["7a"], path["7b"], found)
        elif figure in ("5", "6", "8", "9", "10"):
            _curves(path[figure], f"Figure {figure}, as in {era}", _bots(figure, found))
            drawn.append(path[figure])
    return drawn


def _bots(figure: str, found: Mapping[str, Run]) -> Mapping[str, BotRun]:
    if figure != "10":
        return {name: run.bots[0] for name, run in found.items()}
    first = next(iter(found.values()))
    return {f"R{number}": bot for number, bot in enumerate(first.bots, start=1)}


def _new() -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(8.0, 4.5), dpi=150)
    axes.grid(color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _curves(path: Path, title: str, bots: Mapping[str, BotRun]) -> None:
    """Jobs left over time."""
    figure, axes = _new()
    for place, (name, bot) in enumerate(bots.items()):
        axes.step(
            [at for _, at in bot.left],
            [jobs for jobs, _ in bot.left],
            where="post",
            label=name,
            color=_COLOURS[place % len(_COLOURS)],
            ls=_LINES[place % len(_LINES)],
        )
    axes.set_xlabel("hours since the submission")
    axes.set_ylabel("jobs left")
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _save(figure, path)


def _figure_7(ranks: Path, times: Path, found: Mapping[str, Run]) -> list[Path]:
    """Times, and places by Rank if all BOTs have ended."""
    run, drawn = found[judging.FIGURE_7A], [times]
    if not run.why_not:
        size = run.bots[0].jobs
        levels = [round(size * level / 1200) for level in judging.LEVELS]
        title, hours = f"Figure 7(a), {size} jobs each", "hours since the submission"
        ranks.parent.mkdir(parents=True, exist_ok=True)
        ranks_picture.draw(ranks, judging.courses(run), levels, title, hours)
        drawn = [ranks, times]
    figure, axes = _new()
    axes.boxplot(
        [
            [60 * bot.run_hours for bot in run.bots if bot.run_hours is not None]
            for run in found.values()
        ],
        tick_labels=list(found),
    )
    axes.set_ylabel("minutes from 1000 of 1,200 jobs left to the end")
    axes.set_ylim(bottom=0)
    axes.set_title("Figure 7(b)", fontsize=11, loc="left")
    _save(figure, times)
    return drawn
