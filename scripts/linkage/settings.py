"""The command line of `scripts/demo`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import grid


@dataclass(frozen=True)
class Settings:
    """What the user asked for, and what the first half of the demo hands to the second."""

    points: int
    keep: bool
    require_fastlink: bool
    fastlink: Path | None
    install_seconds: float | None  # None: the environment is not made yet


def read(arguments: Sequence[str]) -> Settings:
    """Read the command line; exit with code 2 and a usage line when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="A genetic linkage analysis on one server and three local clients, "
        "of which one is killed and one frozen in mid-run.",
    )
    parser.add_argument(
        "--points", type=_points, default=21, metavar="N", help="N x N jobs (default: 21)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the data directory and its logs")
    parser.add_argument(
        "--require-fastlink",
        action="store_true",
        help="fail where Debian's fastlink cannot be had, instead of a pure-Python sweep",
    )
    parser.add_argument("--fastlink", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--install-seconds", type=float, help=argparse.SUPPRESS)
    return Settings(**vars(parser.parse_args(arguments)))


def _points(text: str) -> int:
    try:
        points = int(text)
        grid.axis(points)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return points
