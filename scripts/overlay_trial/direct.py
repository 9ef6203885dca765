"""The same short jobs through the overlay and by Slurm alone, in one run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.system.batch_systems import call, open_folder

from .measure import Outcome, play
from .place import Place, RunFailed
from .scenarios import Scenario

_MOST_SECONDS = 1800.0
_LOOK_SECONDS = 1.0  # asking costs the controller time
NAME = "direct"
_SBATCH = f"sbatch --job-name={NAME} --ntasks=1 --mem=400M --time=5"

SHORT = Scenario("many short jobs, also each submitted to Slurm by itself", most_hours=1.25)


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


@dataclass(frozen=True, kw_only=True)
class Direct:
    """Jobs without an overlay: seconds since the first command was given."""

    submission_seconds: float  # until the last sbatch had returned
    first_seconds: float  # until the first result
    makespan_seconds: float  # until the last


def compare(
    place: Place, jobs: int, seconds: float, say: Callable[[str], None]
) -> tuple[Outcome, Comparison]:
    """Run them through the overlay, then one by one."""
    outcome = play(NAME, SHORT, place, jobs, seconds, say)
    say(f"{jobs} times sbatch")
    alone = one_by_one(place, jobs, seconds)
    return outcome, Comparison(
        jobs=jobs,
        job_seconds=seconds,
        overlay_seconds=outcome.makespan_seconds,
        slurm_seconds=alone.makespan_seconds,
        slurm_submission_seconds=alone.submission_seconds,
    )


def one_by_one(place: Place, jobs: int, seconds: float) -> Direct:
    """Submit each job with a command of its own, from one shell, as a scientist would."""
    wrap = f'--output=%s/$i --wrap "{_job(seconds, "$i")}"'
    loop = f"i=0; while [ $i -lt {jobs} ]; do {_SBATCH} {wrap} || exit; i=$((i + 1)); done"
    return _run(place, loop, jobs)


def as_array(place: Place, jobs: int, seconds: float) -> Direct:
    """Submit all jobs as one array."""
    wrap = f"--output=%s/%%a --wrap '{_job(seconds, '$SLURM_ARRAY_TASK_ID')}'"
    return _run(place, f"{_SBATCH} --array=0-{jobs - 1} {wrap}", jobs)


def _job(seconds: float, number: str) -> str:
    return f"sleep {seconds:g}; echo $(({number} * {number}))"


def _run(place: Place, submission: str, jobs: int) -> Direct:
    """Run a shell line that submits jobs, and has `%s` for the folder of what they print."""
    with open_folder(NAME) as folder:
        began = time.time()
        call("sh", "-c", submission % folder, env=place.cluster.env, seconds=_MOST_SECONDS)
        submitted = time.time()
        while place.cluster.run("squeue", "--noheader", f"--name={NAME}").strip():
            if time.time() - began > _MOST_SECONDS:
                raise RunFailed(f"Slurm did not run {jobs} jobs within {_MOST_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)
        ends = result_times(folder, jobs)
    return Direct(
        submission_seconds=submitted - began,
        first_seconds=ends[0] - began,
        makespan_seconds=ends[-1] - began,
    )


def result_times(folder: Path, jobs: int) -> list[float]:
    """When each of the jobs printed its square into a file of a folder, the earliest first.

    RunFailed if not each did.
    """
    printed = {path: path.read_text() for path in folder.iterdir()}
    if Counter(printed.values()) != Counter(f"{number**2}\n" for number in range(jobs)):
        raise RunFailed(f"{len(printed)} of {jobs} jobs printed something, not each its square")
    return sorted(path.stat().st_mtime for path in printed)
