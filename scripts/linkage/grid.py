"""The grid of recombination fractions, as the CSV that `gridbot submit --items` reads."""

from __future__ import annotations

import csv
from pathlib import Path

# A fraction of 0 allows no recombination at all: one recombinant makes the likelihood 0.
_SMALLEST = 0.001
_LARGEST = 0.5  # unlinked

Pair = tuple[str, str]

UNLINKED: Pair = ("0.500", "0.500")


def axis(points: int) -> list[str]:
    """Return `points` evenly spaced fractions from almost 0 to 1/2, with three decimals."""
    if not 11 <= points <= 101:
        raise ValueError(f"an axis has 11 to 101 points, not {points}")
    steps = (_LARGEST * i / (points - 1) for i in range(points))
    return [f"{max(step, _SMALLEST):.3f}" for step in steps]


def pairs(points: int) -> list[Pair]:
    """Return every pair of fractions of the square grid, the second one fastest."""
    values = axis(points)
    return [(theta1, theta2) for theta1 in values for theta2 in values]


def write_csv(path: Path, points: int) -> None:
    """Write the grid with the columns theta1 and theta2."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("theta1", "theta2"))
        rows.writerows(pairs(points))
