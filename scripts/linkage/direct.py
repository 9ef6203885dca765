"""The same scan without GridBot, one point after another, to compare with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from . import point, sweep
from .grid import Pair


def fastlink_lines(inputs: Path, pairs: Iterable[Pair]) -> list[str]:
    """Return the line of each pair, computed by the programs in the folder `inputs`."""
    with tempfile.TemporaryDirectory(prefix="gridbot-direct-") as scratch:
        return [point.evaluate(one, two, inputs, Path(scratch)) for one, two in pairs]


def sweep_lines(pairs: Iterable[Pair]) -> list[str]:
    """Return the line of each pair of the pure-Python sweep."""
    return [sweep.evaluate(one, two) for one, two in pairs]
