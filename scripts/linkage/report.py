"""What the scan found: LOD scores, where they peak, and whether another run agrees."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from .grid import UNLINKED, Pair


def likelihoods(lines: Iterable[str]) -> dict[Pair, str]:
    """Return log10 likelihoods as printed, by pair; raise ValueError on a bad or second line."""
    found: dict[Pair, str] = {}
    for line in lines:
        match line.split():
            case [theta1, theta2, value] if _is_number(value):
                pair = (theta1, theta2)
            case _:
                raise ValueError(f"not a line of two fractions and a likelihood: {line!r}")
        if pair in found:
            raise ValueError(f"two lines for theta1 = {theta1}, theta2 = {theta2}")
        found[pair] = value
    return found


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False


def lod_scores(values: Mapping[Pair, str]) -> dict[Pair, Decimal]:
    """Return LOD = log10 L(theta1, theta2) - log10 L(1/2, 1/2), exact in the printed digits."""
    unlinked = Decimal(values[UNLINKED])
    return {pair: Decimal(value) - unlinked for pair, value in values.items()}


def maximum(scores: Mapping[Pair, Decimal]) -> tuple[Pair, Decimal]:
    """Return the pair with the highest score (the first of equals) and the score."""
    pair = max(scores, key=lambda key: scores[key])
    return pair, scores[pair]


def differences(values: Mapping[Pair, str], direct: Mapping[Pair, str]) -> list[str]:
    """Name every pair whose two likelihoods are not the same text, or that one run lacks."""
    return [
        f"theta1 = {pair[0]}, theta2 = {pair[1]}: "
        f"{values.get(pair, 'nothing')} here, {direct.get(pair, 'nothing')} directly"
        for pair in sorted(values.keys() | direct.keys())
        if values.get(pair) != direct.get(pair)
    ]


def write_table(path: Path, scores: Mapping[Pair, Decimal]) -> None:
    """Write theta1, theta2, lod as CSV, in the order of the grid."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("theta1", "theta2", "lod"))
        rows.writerows((*pair, scores[pair]) for pair in sorted(scores))


def draw(path: Path, scores: Mapping[Pair, Decimal], title: str, labels: tuple[str, str]) -> None:
    """Draw the surface as filled contours with its maximum marked; needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 6), layout="constrained")
    axes = figure.add_subplot()
    first, second = _axis(scores, 0), _axis(scores, 1)
    surface = [[float(scores[theta1, theta2]) for theta1 in first] for theta2 in second]
    x, y = [float(theta) for theta in first], [float(theta) for theta in second]
    filled = axes.contourf(x, y, surface, levels=30, cmap="viridis")
    axes.contour(x, y, surface, levels=[0, 1, 2, 3], colors="white", linewidths=0.8)
    (theta1, theta2), score = maximum(scores)
    axes.plot(
        float(theta1), float(theta2), "r*", markersize=16, markeredgecolor="white", clip_on=False
    )
    axes.set_title(f"{title}\nmaximum {score:.2f} at θ₁ = {theta1}, θ₂ = {theta2}")
    axes.set_xlabel(f"θ₁, {labels[0]}")
    axes.set_ylabel(f"θ₂, {labels[1]}")
    figure.colorbar(filled, label="LOD score (white lines: 0, 1, 2, 3)")
    figure.savefig(path, dpi=130)


def _axis(scores: Mapping[Pair, Decimal], which: int) -> Sequence[str]:
    return sorted({pair[which] for pair in scores})
