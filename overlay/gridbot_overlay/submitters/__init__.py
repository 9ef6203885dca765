"""One module for each kind of batch system; nothing outside this folder knows how one is spoken to.

To add one: write a module with a class that has the methods of `Submitter`, and its line in KINDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from gridbot_overlay.decide.model import CheckResult, Grid, PilotOrder, Sighting


class GridError(Exception):
    """The batch system refused or could not be asked; the message holds its own words.

    `is_lasting` means that asking again will not help before somebody changes something.
    """

    def __init__(self, message: str, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_lasting = is_lasting


class Submitter(Protocol):
    """Speaks with one batch system.  Every call ends in bounded time or raises GridError."""

    def submit(self, order: PilotOrder) -> list[str]:
        """Submit the pilots and return their native ids, in the order of their index.

        Their script is one of sh.  It finds GRIDBOT_PILOT_TAG, GRIDBOT_PILOT_INDEX and
        GRIDBOT_NATIVE_ID set, and of the constructor's environment hardly anything.

        When the reply gets lost (GridError), the pilots may or may not be there: `pilots`
        finds them by the order's tag.
        """
        ...

    def pilots(self, prefix: str) -> list[Sighting]:
        """Return the pilots whose tag begins with `prefix`: queued, held, running, lately ended.

        Those that are no longer named have ended, too: no system remembers for ever, and some
        forget at once what is cancelled before it starts.

        Raises GridError where the list cannot be had: "nothing there" and "could not ask"
        must never be mixed up.
        """
        ...

    def cancel(self, native_ids: Sequence[str]) -> None:
        """Take pilots out of the system; those that are gone already are no error."""
        ...

    def tail(self, native_id: str, tag: str) -> str:
        """Return the last 4 kB of what the pilot wrote to stderr, "" when there is nothing yet."""
        ...

    def check(self) -> list[CheckResult]:
        """Compare the grid's configuration with what the system allows, and submit nothing."""
        ...


def _of(module: str, name: str) -> Callable[[Grid, Path], Submitter]:
    """Name a class without importing it: most operators have one kind of grid."""

    def make(grid: Grid, folder: Path) -> Submitter:
        made: Submitter = getattr(import_module(f"{__name__}.{module}"), name)(grid, folder)
        return made

    return make


# Grid.kind -> what makes its submitter, from the grid and a folder of the constructor's for it.
KINDS: dict[str, Callable[[Grid, Path], Submitter]] = {
    "arc": _of("arc", "Arc"),
    "ec2": _of("ec2", "Ec2"),
    "gram": _of("gram", "Gram"),
    "grid_engine": _of("grid_engine", "GridEngine"),
    "htcondor": _of("htcondor", "HTCondor"),
    "kubernetes": _of("kubernetes", "Kubernetes"),
    "local": _of("local", "Local"),
    "pbs": _of("pbs", "Pbs"),
    "slurm": _of("slurm", "Slurm"),
    "slurmrestd": _of("slurmrestd", "Slurmrestd"),
    "ssh": _of("ssh", "Ssh"),
}
