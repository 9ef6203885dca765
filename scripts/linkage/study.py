"""What is scanned: fastlink's example families, or a computed cross where fastlink is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import direct, point
from .grid import Pair

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Study:
    """One scan: how its jobs run on a client and how it runs without GridBot."""

    title: str
    labels: tuple[str, str]  # what recombines with what
    program: Path
    inputs: tuple[Path, ...]
    direct_lines: Callable[[Iterable[Pair]], list[str]]

    @property
    def command(self) -> tuple[str, ...]:
        """The command template of the BOT; the columns of the grid fill it."""
        return ("python3", self.program.name, "{theta1}", "{theta2}")


def of_families(folder: Path) -> Study:
    """Return the scan of fastlink's two example families, from the folder `fetch` made."""
    return Study(
        title="LOD score of fastlink's example families",
        labels=("marker p105-599Ha and the disease", "the disease and marker p105-153Ra"),
        program=_HERE / "point.py",
        inputs=tuple(folder / name for name in point.INPUTS),
        direct_lines=partial(direct.fastlink_lines, folder),
    )


def of_cross() -> Study:
    """Return the scan that needs nothing but Python."""
    return Study(
        title="LOD score of 20 offspring of a phase-known cross",
        labels=("first and second locus", "second and third locus"),
        program=_HERE / "sweep.py",
        inputs=(),
        direct_lines=direct.sweep_lines,
    )
