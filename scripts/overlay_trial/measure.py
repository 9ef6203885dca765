"""Runs a BOT through a scenario, and measures and judges what came of it."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tests.system.deployment import Deployment, eventually
from tests.system.overlays import overlay

from gridbot_overlay.decide.model import Pilot
from gridbot_server.storage import invariants

from .place import CPUS, GRID, NODES, Place, Run
from .scenarios import Scenario
from .slots import Life, curve, most

# One pilot for each CPU; what a scenario says itself holds.
USUAL = ("--walltime", "30m", "--max-running", str(NODES * CPUS))
_MOST_SECONDS = 900.0
_PILOTS_LEAVE_SECONDS = 240.0  # one that waits after a failure stays longest
_FORMAT = "Name:80,State:20,StartTime:24,EndTime:24,SubmitTime:24"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one scenario showed; `faults` says what was not as it must be."""

    scenario: str
    jobs: int
    job_seconds: float
    makespan_seconds: float  # from the submission to the last outcome
    first_result_seconds: float
    leaving_seconds: float  # from the last outcome to an empty queue
    pilots: int  # that ran
    most_pilots: int  # at one time; Slurm tells whole seconds
    submissions: int
    pilot_hours: float
    ideal_hours: float  # jobs times their seconds
    burnt: int  # replicas that failed
    lost: int  # replicas that were sent and had to be sent again for want of an answer
    twice: int  # jobs that were done more than once
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Times:
    """When a BOT was submitted, and when it had results, seconds since 1970."""

    submitted: float
    first: float
    last: float


@dataclass(frozen=True)
class Course:
    """A BOT's times, as in Outcome, and what stayed of its pilots."""

    first_seconds: float
    makespan_seconds: float
    leaving_seconds: float
    faults: tuple[str, ...]


def play(
    name: str, scenario: Scenario, place: Place, jobs: int, seconds: float,
    say: Callable[[str], None],
) -> Outcome:  # fmt: skip
    """Submit a BOT of `jobs` jobs, let it happen, and wait until the pilots have left."""
    seconds = max(seconds, scenario.least_jobs_seconds)
    with overlay(place.server, name, with_defaults=True) as made:
        made.add_slurm(GRID, place.cluster, *USUAL, *scenario.options)
        if scenario.faults:
            made.lose_replies(scenario.faults)
        made.start()
        run = Run(place, made, submit(place.server, jobs, seconds), jobs, say)
        course = follow(run, scenario.happens, lambda: squeue(run))
        lives, sent = lives_of(place, made.prefix), made.pilots(GRID)
    return outcome(name, run, seconds, course, lives, sent, scenario.most_burnt)


def follow(
    run: Run, happens: Callable[[Run], None] = lambda _: None, queue: Callable[[], str] = str
) -> Course:
    """Let it happen, wait until BOT and pilots have ended and `queue` is empty; end the overlay."""
    began = time.monotonic()
    happens(run)
    run.reach(1.0)
    wait_done(run)
    found, ended = times(run), time.monotonic()
    faults = tuple(_unless_gone(run, queue))
    leaving = time.monotonic() - ended
    run.overlay.end()
    makespan = found.last - found.submitted
    run.say(f"the BOT took {makespan:.0f} s, {time.monotonic() - began:.0f} s with all")
    return Course(found.first - found.submitted, makespan, leaving, faults)


def outcome(
    name: str, run: Run, seconds: float, course: Course, lives: Sequence[Life],
    sent: Sequence[Pilot], most_burnt: float | None = None,
) -> Outcome:  # fmt: skip
    """Sum up a BOT that has ended, and judge it."""
    endings = _endings(run)
    return Outcome(
        scenario=name,
        jobs=run.jobs,
        job_seconds=seconds,
        makespan_seconds=course.makespan_seconds,
        first_result_seconds=course.first_seconds,
        leaving_seconds=course.leaving_seconds,
        pilots=len(lives),
        most_pilots=most(curve(lives)),
        submissions=len({pilot.tag for pilot in sent}),
        pilot_hours=sum(life.ended - life.begun for life in lives) / 3600,
        ideal_hours=run.jobs * seconds / 3600,
        burnt=endings["error"],
        lost=endings["expired"],
        twice=max(0, endings["success"] - run.jobs),
        faults=(*course.faults, *judged(run, sent, most_burnt)),
    )


def submit(server: Deployment, jobs: int, seconds: float, policy: str = "", *options: str) -> int:
    """Submit a BOT whose job I sleeps and prints I times I; return its number."""
    script = f"sleep {seconds:g}; echo $(($1 * $1))"
    command = ("sh", "-c", script, "job", "{}")
    return server.submit(
        "--range", f"0:{jobs}", "--attempts", "5", *options, "--", *command, policy=policy
    )


def wait_done(run: Run) -> None:
    """Wait until the BOT has ended."""
    state = "SELECT state FROM bot WHERE id = %s"
    eventually(
        lambda: run.server.rows(state, run.bot) == [("done",)], _MOST_SECONDS, "the BOT's end"
    )


def times(run: Run) -> Times:
    """Read from the server when a BOT was submitted and had its outcomes."""
    query = """
        SELECT extract(epoch FROM b.created_at)::float8,
               extract(epoch FROM min(o.made_at))::float8,
               extract(epoch FROM max(o.made_at))::float8
          FROM bot b JOIN outcome o ON o.bot = b.id WHERE b.id = %s GROUP BY b.id"""
    [row] = run.server.rows(query, run.bot)
    return Times(*row)


def _unless_gone(run: Run, queue: Callable[[], str]) -> Iterable[str]:
    """Wait until pilots have left and the queue is empty; say what stays."""
    try:
        run.overlay.wait_left(_PILOTS_LEAVE_SECONDS)
        eventually(lambda: not queue(), _PILOTS_LEAVE_SECONDS, "an empty queue")
    except AssertionError as error:
        yield f"{error}; queue: {queue() or 'empty'}; lives: {run.overlay.processes()}"


def squeue(run: Run) -> str:
    """List what the cluster has of pilots and other jobs; empty if nothing."""
    return run.cluster.run("squeue", "--noheader", "--all", "--array").strip()


def judged(run: Run, sent: Sequence[Pilot], most_burnt: float | None = None) -> Iterable[str]:
    """Yield what is not as it must be."""
    with run.server.session() as session:
        results = list(session.bot(run.bot).results())
    printed = Counter(result.stdout for result in results)
    if printed != Counter(f"{number**2}\n" for number in range(run.jobs)):
        yield f"{len(results)} results are not those of the {run.jobs} jobs: {_sample(printed)}"
    with run.server.database() as conn:
        yield from map(str, invariants.check(conn, idle=False))
    burnt = _endings(run)["error"]
    if most_burnt is not None and burnt >= most_burnt * run.jobs:
        yield f"{burnt} of {run.jobs} jobs were burnt"
    if not sent:
        yield "there was no pilot"
    log = run.overlay.log.read_text()
    if "Traceback" in log:
        yield f"the constructor's log tells of an exception: {log[-2000:]}"


def _sample(printed: Counter[str]) -> str:
    return ", ".join(f"{text!r} {count} times" for text, count in printed.most_common(3))


def _endings(run: Run) -> Counter[str]:
    query = "SELECT how, count(*) FROM ended WHERE bot = %s GROUP BY how"
    return Counter(dict(run.server.rows(query, run.bot)))


def lives_of(place: Place, prefix: str) -> list[Life]:
    """Read from Slurm when it ran which pilot; a pilot that was queued again counts once."""
    rows = _listed(place, prefix)
    return [Life(*map(_time, row[2:4])) for row in rows if "N/A" not in row[2:4]]


def first_submitted(place: Place, prefix: str) -> float:
    """Read from Slurm when it had taken the first pilot: it tells the second in which that was."""
    return min(_time(row[4]) for row in _listed(place, prefix)) + 1


def _listed(place: Place, prefix: str) -> list[list[str]]:
    listing = ("--noheader", "--all", "--array", "--states=all", f"--Format={_FORMAT}")
    lines = place.cluster.run("squeue", *listing).splitlines()
    return [line.split() for line in lines if line.startswith(prefix)]


def seen_lives(pilots: Iterable[Pilot]) -> list[Life]:
    """Give the lives of pilots as the constructor saw them, which looks once a second."""
    return [
        Life(pilot.started_at, pilot.ended_at)
        for pilot in pilots
        if pilot.started_at is not None and pilot.ended_at is not None
    ]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def tell(line: str) -> None:
    """Show how far it is, on stderr."""
    print(f"{time.strftime('%H:%M:%S')}   {line}", file=sys.stderr, flush=True)
