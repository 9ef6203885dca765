"""The systems of `pilots`: the same jobs by each, and how long they took."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.system.batch_systems import open_folder

from scripts.overlay_trial.direct import SHORT, Direct, as_array, one_by_one, result_times
from scripts.overlay_trial.measure import play, tell
from scripts.overlay_trial.place import (
    CPUS,
    NODES,
    Place,
    RunFailed,
    place,
    tidy_when_interrupted,
)

from .harness.installation import BenchFailed
from .harness.windows import Row
from .peers import environment, run_in

SLOTS = NODES * CPUS
_HYPERQUEUE = "hyperqueue"


@dataclass(frozen=True)
class Span:
    """What one system took, in seconds; `pilot_seconds` are those of all its pilots together."""

    after_first: float  # from the first result to the last
    pilot_seconds: float | None = None


System = Callable[[Place, int, float], Span]


def measured(
    jobs: int, seconds: Sequence[float], systems: Sequence[str], rounds: int
) -> Iterator[tuple[float, str, Row]]:
    """Measure each system with jobs of each length, in turn, on a new cluster in each round.

    Yields the seconds of a job, the system, and what was measured, as soon as that is known.
    """
    tidy_when_interrupted()
    try:
        with _known(systems) as known:
            for each, number in itertools.product(seconds, range(rounds)):
                with place() as here:
                    for system in _turns(systems, number):
                        tell(f"--- round {number + 1}: {jobs} jobs of {each:g} s by {system}")
                        row = _row(jobs, each, known[system](here, jobs, each), number)
                        yield each, system, row
                        tell(f"{row['to_ideal']:.3f} times the ideal after the first result")
    except RunFailed as error:
        raise BenchFailed(str(error)) from error


@contextmanager
def _known(wanted: Sequence[str]) -> Iterator[Mapping[str, System]]:
    """Give all that need no preparation, and HyperQueue if it is wanted."""
    slurms: dict[str, System] = {
        "gridbot": _gridbot,
        "array": partial(_direct, as_array),
        "sbatch": partial(_direct, one_by_one),
    }
    if _HYPERQUEUE not in wanted:
        yield slurms
        return
    with environment((_HYPERQUEUE,)) as python:
        yield {**slurms, _HYPERQUEUE: partial(_hyperqueue, python)}


def _turns(systems: Sequence[str], number: int) -> Sequence[str]:
    """The order of a round: each begins with another system."""
    first = number % len(systems)
    return [*systems[first:], *systems[:first]]


def _row(jobs: int, seconds: float, span: Span, number: int) -> Row:
    work = jobs * seconds
    return {
        "round": number,
        "after_first_seconds": span.after_first,
        "to_ideal": span.after_first * SLOTS / work,
        "pilot_hours_to_ideal": span.pilot_seconds and span.pilot_seconds / work,
    }


def _gridbot(here: Place, jobs: int, seconds: float) -> Span:
    found = play(f"pilots-{seconds:g}", SHORT, here, jobs, seconds, tell)
    if found.faults:
        raise RunFailed("; ".join(found.faults))
    after_first = found.makespan_seconds - found.first_result_seconds
    return Span(after_first, 3600 * found.pilot_hours)


def _direct(
    way: Callable[[Place, int, float], Direct], here: Place, jobs: int, seconds: float
) -> Span:
    found = way(here, jobs, seconds)
    return Span(found.makespan_seconds - found.first_seconds)


def _hyperqueue(python: str, _: Place, jobs: int, seconds: float) -> Span:
    with open_folder(_HYPERQUEUE) as folder:
        given = (str(folder), str(jobs), f"{seconds:g}", str(SLOTS))
        ended = run_in(python, "peer_slots.py", *given)
        if ended.returncode:
            raise RunFailed(f"HyperQueue: {ended.stderr[-500:]}")
        ends = result_times(folder, jobs)
    return Span(ends[-1] - ends[0])
