"""The same short jobs through the overlay and each submitted to Slurm by itself, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from .measure import Outcome, play
from .place import Place, RunFailed
from .scenarios import Scenario

_MOST_SECONDS = 1800.0
_LOOK_SECONDS = 1.0  # asking costs the controller time
_NAME = "direct"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Makespans of the same jobs, in seconds."""

    jobs: int
    job_seconds: float
    overlay_seconds: float
    slurm_seconds: float
    slurm_submission_seconds: float  # of which: until the last sbatch had returned

    @property
    def ratio(self) -> float:
        """How many times as fast the overlay was."""
        return self.slurm_seconds / self.overlay_seconds


def compare(
    place: Place, jobs: int, seconds: float, say: Callable[[str], None]
) -> tuple[Outcome, Comparison]:
    """Run them through the overlay, then one by one."""
    outcome = play(_NAME, Scenario("many short jobs"), place, jobs, seconds, say)
    say(f"{jobs} times sbatch")
    submission, makespan = _submitted_one_by_one(place, jobs, seconds)
    return outcome, Comparison(
        jobs=jobs,
        job_seconds=seconds,
        overlay_seconds=outcome.makespan_seconds,
        slurm_seconds=makespan,
        slurm_submission_seconds=submission,
    )


def _submitted_one_by_one(place: Place, jobs: int, seconds: float) -> tuple[float, float]:
    """Submit each job with a command of its own, from one shell, as a scientist would."""
    began = time.monotonic()
    sbatch = f"sbatch --job-name={_NAME} --ntasks=1 --mem=400M --time=5 --output=/dev/null"
    wrap = f"sleep {seconds:g}; echo $(($i * $i))"
    loop = f'i=0; while [ $i -lt {jobs} ]; do {sbatch} --wrap "{wrap}" || exit; i=$((i + 1)); done'
    place.cluster.run("sh", "-c", loop)
    submission = time.monotonic() - began
    counted = ("squeue", "--noheader", f"--name={_NAME}")
    while place.cluster.run(*counted).strip():
        if time.monotonic() - began > _MOST_SECONDS:
            raise RunFailed(f"Slurm did not run {jobs} jobs within {_MOST_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    makespan = time.monotonic() - began
    listed = place.cluster.run(*counted, "--states=COMPLETED").splitlines()
    if len(listed) != jobs:
        raise RunFailed(f"Slurm completed {len(listed)} of {jobs} jobs")
    return submission, makespan
