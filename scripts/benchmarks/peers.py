"""Cheap jobs and calls beside other systems: the same work, in turn, on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from gridbot import Executor, Session

from .harness.command import measurement, quick_option
from .harness.installation import BenchFailed, installation
from .harness.windows import Row
from .peer_systems import PROGRAMS, SYSTEMS

PACKAGES = ("cloudpickle", "distributed", "hyperqueue", "joblib")
COLUMNS = {
    "work": ["work"],
    "system": ["system"],
    "s": ["seconds"],
    "ms each": ["ms_each"],
    "to ideal": ["to_ideal"],
}
_COUNTS = {"true": 1000, "sleep": 300, "pow": 10_000}
_IDEAL_SECONDS = {"sleep": 0.1}  # of one job
_PATIENCE_SECONDS = 600.0


@measurement(COLUMNS)
@click.option("--cpus", type=click.IntRange(1), default=2, show_default=True, help="Slots of each.")
@quick_option("A twentieth of the work.")
def peers(cpus: int, quick: bool) -> list[Row]:
    """1,000 x `true`, 300 x `sleep 0.1`, 10,000 x pow: GridBot, Dask, HyperQueue, joblib."""
    counts = {work: count // 20 if quick else count for work, count in _COUNTS.items()}
    with environment() as python, installation() as place, place.session() as session:
        place.start_client("worker", "--cpus", str(cpus))
        session.submit("true").wait(timeout=_PATIENCE_SECONDS)
        return [
            _row(work, system, count, cpus, seconds)
            for work, count in counts.items()
            for system, seconds in [
                ("gridbot", _ours(session, work, count)),
                *((name, _theirs(python, name, work, count, cpus)) for name in SYSTEMS),
            ]
        ]


def _row(work: str, system: str, count: int, cpus: int, seconds: float | None) -> Row:
    ideal = _IDEAL_SECONDS.get(work)
    is_known = seconds is not None and ideal is not None
    return {
        "work": f"{count} x {work}",
        "system": system,
        "seconds": seconds,
        "ms_each": None if seconds is None else 1000 * seconds / count,
        "to_ideal": seconds * cpus / (count * ideal) if is_known else None,  # type: ignore[operator]
    }


def _ours(session: Session, work: str, count: int) -> float:
    if work != "pow":
        began = time.perf_counter()
        session.submit(PROGRAMS[work], items=range(count)).wait(timeout=_PATIENCE_SECONDS)
        return time.perf_counter() - began
    with Executor(session) as executor:
        executor.submit(pow, 2, 3).result(_PATIENCE_SECONDS)
        began = time.perf_counter()
        list(executor.map(pow, range(count), [2] * count))
        return time.perf_counter() - began


def _theirs(python: str, system: str, work: str, count: int, cpus: int) -> float | None:
    """Seconds of another system; None if it fails, which is told."""
    ended = run_in(python, "peer_systems.py", system, work, str(count), str(cpus))
    if ended.returncode:
        print(f"{system}: {ended.stderr.strip()[-500:]}", file=sys.stderr)
        return None
    return float(json.loads(ended.stdout.splitlines()[-1]))


def run_in(python: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this folder in the environment of the other systems.

    What it leaves running, as when it is killed, is ended.
    """
    # -P: modules beside the program would hide the standard library's.
    command = [python, "-P", str(Path(__file__).with_name(program)), *arguments]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=said, stderr=errors, start_new_session=True,
            cwd=Path(python).parent,  # they write into the folder
        )  # fmt: skip
        try:
            code = process.wait(_PATIENCE_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, said.read(), errors.read())


@contextmanager
def environment(packages: Sequence[str] = PACKAGES) -> Iterator[str]:
    """Install other systems where nothing else is; yield the Python."""
    with tempfile.TemporaryDirectory(prefix="gridbot-peers-") as folder:
        python = str(Path(folder) / "bin" / "python")
        for command in (
            [sys.executable, "-m", "venv", folder],
            [python, "-m", "pip", "install", "--quiet", *packages],
        ):
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                raise BenchFailed(f"cannot install the other systems: {ended.stderr[-500:]}")
        yield python
