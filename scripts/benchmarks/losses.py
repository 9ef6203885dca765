"""What is lost when a worker or the server is killed in the midst of short jobs."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Literal

from gridbot import Session

from .harness.command import measurement, quick_option
from .harness.installation import Installation, installation
from .harness.windows import Row
from .peer_losses import JOB, KILL_AFTER_SECONDS, PATIENCE_SECONDS, SYSTEMS
from .peers import environment, run_in

Victim = Literal["worker", "server"]
COLUMNS = {
    "killed": ["killed"],
    "system": ["system"],
    "jobs": ["jobs"],
    "lost": ["lost"],
    "s": ["seconds"],
}
_VICTIMS: tuple[Victim, ...] = ("worker", "server")
_JOBS, _QUICK_JOBS = 100, 40


@measurement(COLUMNS)
@quick_option("Fewer jobs, and GridBot alone.")
def losses(quick: bool) -> list[Row]:
    """Jobs without a result for the caller after kill -9: GridBot, Dask, HyperQueue, joblib.

    Workers have one slot each.  What was killed is started again, where its system can do that.
    """
    count = _QUICK_JOBS if quick else _JOBS
    with installation() as place, place.session() as session:
        rows = [_ours(place, session, victim, count) for victim in _VICTIMS]
    if quick:
        return rows
    with environment() as python:
        return rows + [
            _theirs(python, system, victim, count) for victim in _VICTIMS for system in SYSTEMS
        ]


def _ours(place: Installation, session: Session, victim: Victim, count: int) -> Row:
    workers = [f"{victim}-killed-{number}" for number in range(2)]
    for name in workers:
        place.start_client(name, "--cpus", "1")
    session.submit(JOB).wait(timeout=PATIENCE_SECONDS)
    began = time.perf_counter()
    bot = session.submit(JOB, items=range(count))
    time.sleep(KILL_AFTER_SECONDS)
    if victim == "server":
        place.kill_server()
        place.start()
    else:
        place.kill_client(workers[0])
        place.start_client(workers[0], "--cpus", "1")
    with suppress(TimeoutError):  # what has no result by now is lost
        bot.wait(timeout=PATIENCE_SECONDS)
    seconds = time.perf_counter() - began
    known = len({result.seq for result in bot.results() if result.state == "done"})
    for name in workers:
        place.kill_client(name)
    return _row("gridbot", victim, count, known, seconds)


def _theirs(python: str, system: str, victim: Victim, count: int) -> Row:
    """A program that was killed with its server or worker says nothing: all is lost."""
    began = time.perf_counter()
    ended = run_in(python, "peer_losses.py", system, victim, str(count))
    known = int(json.loads(ended.stdout.splitlines()[-1])) if not ended.returncode else 0
    return _row(system, victim, count, known, time.perf_counter() - began)


def _row(system: str, victim: Victim, jobs: int, known: int, seconds: float) -> Row:
    return {
        "killed": victim,
        "system": system,
        "jobs": jobs,
        "lost": jobs - known,
        "seconds": seconds if known == jobs else None,
    }
