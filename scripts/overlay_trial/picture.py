"""Draws who has the slots of a cluster over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from .slots import Curve, Life, at, curve

_COLOURS = ("#2a7f9e", "#e0912f")  # told apart in grey, too


def draw(
    path: Path,
    jobs: Mapping[str, Sequence[Life]],
    pilots: Sequence[Life],
    submitted: Mapping[str, float],
    *,
    slots: int,
) -> None:
    """Write the picture as PNG: slots that run jobs of each BOT, and slots that pilots hold.

    The clock begins when the first BOT is submitted.
    """
    began = min(submitted.values())
    curves = {name: curve(lives) for name, lives in jobs.items()}
    held = curve(pilots)
    steps = {moment for each in (*curves.values(), held) for moment, _ in each}
    moments = sorted({began, *steps})
    figure, axes = plt.subplots(figsize=(8.0, 4.0), dpi=150)
    _draw_slots(axes, curves, held, moments, began)
    _mark(axes, {name: moment - began for name, moment in submitted.items()}, slots)
    _finish(axes, slots)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def _draw_slots(
    axes: Axes, curves: Mapping[str, Curve], held: Curve, moments: Sequence[float], began: float
) -> None:
    """Stack the BOTs' jobs on each other, and draw the pilots as a line over them."""
    seconds = [moment - began for moment in moments]
    below = [0] * len(moments)
    for (name, each), colour in zip(curves.items(), _COLOURS, strict=True):
        above = [low + at(each, moment) for low, moment in zip(below, moments, strict=True)]
        axes.fill_between(
            seconds, below, above, step="post", color=colour, lw=0, label=f"{name} BOT's jobs"
        )
        below = above
    pilots = [at(held, moment) for moment in moments]
    axes.step(seconds, pilots, where="post", color="#1b3a57", lw=1.3, label="pilots")


def _mark(axes: Axes, submitted: Mapping[str, float], slots: int) -> None:
    """Mark when each BOT was submitted, above the slots."""
    for name, second in submitted.items():
        axes.axvline(second, color="#888888", lw=0.9, ls="--")
        axes.annotate(
            f"{name} BOT\nsubmitted", (second, slots + 0.2),
            xytext=(3, 0), textcoords="offset points", fontsize=8,
        )  # fmt: skip


def _finish(axes: Axes, slots: int) -> None:
    axes.set_xlabel("seconds since the first submission")
    axes.set_ylabel("slots")
    axes.set_xlim(left=-2)
    axes.set_ylim(0, slots + 1.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", ncols=3, fontsize=8)
