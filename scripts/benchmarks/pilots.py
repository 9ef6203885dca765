"""Short jobs on the slots of a Slurm cluster: by pilots, by Slurm alone, and HyperQueue's slots."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import click

from .harness.command import measurement, quick_option
from .harness.windows import Row

HYPERQUEUE = "hyperqueue"
SYSTEMS = ("gridbot", "array", "sbatch", HYPERQUEUE)
COLUMNS = {
    "jobs": ["jobs"],
    "s each": ["job_seconds"],
    "system": ["system"],
    "rounds": ["rounds"],
    "s after first": ["after_first_seconds"],
    "÷ ideal": ["to_ideal"],
    "over HyperQueue": ["over_hyperqueue"],
    "pilot-hours ÷ ideal": ["pilot_hours_to_ideal"],
}
_SECONDS = (1.0, 0.1)
_QUICK_JOBS = 24

Found = dict[tuple[float, str], list[Row]]


@measurement(COLUMNS)
@click.option("--jobs", type=click.IntRange(8, 1000), default=320, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.01), multiple=True, default=_SECONDS,
              show_default=True, help="Of each job; may be repeated.")  # fmt: skip
@click.option("--system", "systems", type=click.Choice(SYSTEMS), multiple=True, show_default=True,
              default=("gridbot", HYPERQUEUE), help="May be repeated.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@quick_option("One round of few jobs.")
def pilots(
    jobs: int, seconds: Sequence[float], systems: Sequence[str], rounds: int, quick: bool
) -> Iterator[list[Row]]:
    """Short jobs on 8 slots: GridBot's pilots and Slurm's own ways on one real Slurm, HyperQueue.

    Every system has its default options, and all take turns in each round, each time in another
    order. HyperQueue has slots of this machine, because its package has no command for clusters.
    Ideal are jobs * seconds / slots. The clock begins at the first result. The default takes ten
    minutes; with --jobs 1000 a round of 1 s takes five, and ten with `array` and `sbatch`. What was
    measured is also printed after ^C. Needs Slurm's programs and root or Slurm's own user.
    """
    # What starts batch systems is a part of the tests, whose packages other measurements lack.
    from .pilot_systems import measured

    jobs, rounds = (_QUICK_JOBS, 1) if quick else (jobs, rounds)
    found: Found = {(each, system): [] for each in seconds for system in systems}
    for each, system, row in measured(jobs, seconds, systems, rounds):
        found[each, system].append(row)
        yield rows(jobs, found)


def rows(jobs: int, found: Found) -> list[Row]:
    """Sum the rounds up: medians, and how far the rounds lie apart."""
    return [
        _row(jobs, *side, measured, found.get((side[0], HYPERQUEUE), []))
        for side, measured in found.items()
        if measured
    ]


def _row(
    jobs: int, seconds: float, system: str, measured: Sequence[Row], beside: Sequence[Row]
) -> Row:
    figures = {
        name: [row[name] for row in measured if row.get(name) is not None]
        for name in ("after_first_seconds", "to_ideal", "pilot_hours_to_ideal")
    }
    # Of the same rounds: what the machine did meanwhile met both.
    theirs = {row["round"]: row["to_ideal"] for row in beside}
    figures["over_hyperqueue"] = [
        row["to_ideal"] - theirs[row["round"]]
        for row in measured
        if system != HYPERQUEUE and row["round"] in theirs
    ]
    known = {name: values for name, values in figures.items() if values}
    return {
        "jobs": jobs,
        "job_seconds": seconds,
        "system": system,
        "rounds": len(measured),
        **{name: statistics.median(values) for name, values in known.items()},
        "spread": {
            name: (min(values), max(values))
            for name, values in known.items()
            if name != "over_hyperqueue"
        },
        "each": list(measured),
    }
