"""The job where fastlink cannot be had: the same scan for a cross that needs no pedigree program.

`python3 sweep.py THETA1 THETA2` prints the line that point.py prints, for 20 offspring of a
phase-known cross with three loci: without interference their likelihood is a product.
"""

from __future__ import annotations

import math
import sys

# Offspring by where they recombined; the likelihood is highest at 0.15 and 0.20.
_NEITHER, _FIRST, _SECOND, _BOTH = 14, 2, 3, 1


def log10_likelihood(theta1: float, theta2: float) -> float:
    """Return log10 of the probability of the offspring, the order left out."""
    return (
        _NEITHER * math.log10((1 - theta1) * (1 - theta2))
        + _FIRST * math.log10(theta1 * (1 - theta2))
        + _SECOND * math.log10((1 - theta1) * theta2)
        + _BOTH * math.log10(theta1 * theta2)
    )


def evaluate(theta1: str, theta2: str) -> str:
    """Return the line for one point; raise ValueError where the likelihood is none."""
    first, second = float(theta1), float(theta2)
    return f"{first:.3f} {second:.3f} {log10_likelihood(first, second):.6f}"


def main(arguments: list[str]) -> int:
    try:
        theta1, theta2 = arguments
        print(evaluate(theta1, theta2))
    except ValueError as error:
        print(f"usage: python3 sweep.py THETA1 THETA2, between 0 and 1: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
