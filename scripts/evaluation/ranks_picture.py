"""Draws Figure 7(a): the BOTs by their Rank, and when each had so many jobs left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from .ranking import Course

# From dark to light, as a BOT empties; told apart without colours too.
_LOOKS = (("#1b3a57", "o"), ("#2a7f9e", "s"), ("#e0912f", "^"), ("#7a5195", "v"),
          ("#c0392b", "D"))  # fmt: skip


def draw(
    path: Path, courses: Sequence[Course], levels: Sequence[int], title: str, time: str
) -> None:
    """Write the picture as PNG; a few BOTs are shown enlarged, where the curves lie apart.

    `time` says what the courses' times are.
    """
    by_rank = sorted(courses, key=lambda course: course.rank)
    figure, axes = plt.subplots(figsize=(8.0, 5.0), dpi=150)
    _curves(axes, by_rank, levels)
    axes.set_xlabel("BOTs by increasing Rank")
    axes.set_ylabel(time)
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlim(by_rank[0].rank - 1, by_rank[-1].rank + 1)
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    middle = len(by_rank) // 2
    _enlarge(axes, by_rank[max(0, middle - 2) : middle + 3], levels)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _curves(axes: Axes, courses: Sequence[Course], levels: Sequence[int]) -> None:
    for left, (colour, marker) in zip(levels, _LOOKS, strict=True):
        axes.plot(
            [course.rank for course in courses],
            [course.when_left(left) for course in courses],
            label=f"{left} jobs left" if left else "done",
            color=colour,
            marker=marker,
            markersize=3,
            lw=1.1,
        )


def _enlarge(axes: Axes, courses: Sequence[Course], levels: Sequence[int]) -> None:
    """Show some BOTs once more in the lower left corner, which the falling curves leave empty."""
    inset = axes.inset_axes((0.06, 0.08, 0.36, 0.36))
    _curves(inset, courses, levels)
    inset.set_xticks([course.rank for course in courses])
    inset.tick_params(labelsize=7)
    inset.grid(color="#eeeeee", lw=0.5)
    axes.indicate_inset_zoom(inset, edgecolor="#888888")
