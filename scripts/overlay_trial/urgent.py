"""An urgent BOT that arrives while a broad one has all slots: how fast the overlay follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.system.deployment import eventually
from tests.system.overlays import overlay

from . import picture
from .measure import (
    USUAL,
    Outcome,
    first_submitted,
    follow,
    judged,
    lives_of,
    outcome,
    squeue,
    submit,
    times,
)
from .place import CPUS, GRID, NODES, Place, Run, RunFailed
from .slots import Life, curve, reached

NAME = "urgent"
BROAD, URGENT = (160, 4.0), (16, 2.0)  # jobs, and the seconds of each
_ARRIVES = 0.4  # of the broad BOT is done
_PRIORITY = ("--priority", "10")
_SLOTS = NODES * CPUS


@dataclass(frozen=True, kw_only=True)
class Responses:
    """How fast the overlay followed the BOTs, in seconds."""

    first_pilot: float  # from the broad BOT's submission until Slurm had a pilot, at most
    grown: float  # to the moment when all slots ran jobs
    first_urgent: float  # from the urgent BOT's submission to its first result
    last_urgent: float  # to its last
    shrunk: float  # from the broad BOT's last result to an empty queue


def play(place: Place, plot: Path, say: Callable[[str], None]) -> tuple[Outcome, Responses]:
    """Submit both to an overlay that has no pilot yet; draw into `plot` who had the slots."""
    with overlay(place.server, NAME, with_defaults=True) as made:
        made.add_slurm(GRID, place.cluster, *USUAL)
        made.start()
        eventually(lambda: made.status(GRID)["looked_seconds_ago"] is not None, what="a look")
        broad = Run(place, made, submit(place.server, *BROAD), BROAD[0], say)
        broad.reach(_ARRIVES)
        say("an urgent BOT is submitted")
        bot = submit(place.server, *URGENT, "", *_PRIORITY)
        urgent = Run(place, made, bot, URGENT[0], say)
        course = follow(broad, queue=lambda: squeue(broad))
        pilots, sent = lives_of(place, made.prefix), made.pilots(GRID)
        first_pilot = first_submitted(place, made.prefix)
    found = outcome(NAME, broad, BROAD[1], course, pilots, sent)
    found = replace(
        found,
        ideal_hours=sum(number * seconds for number, seconds in (BROAD, URGENT)) / 3600,
        faults=(*found.faults, *judged(urgent, sent)),
    )
    began, arrived = times(broad), times(urgent)
    jobs = {"broad": _replicas(broad), "urgent": _replicas(urgent)}
    moments = {"broad": began.submitted, "urgent": arrived.submitted}
    picture.draw(plot, jobs, pilots, moments, slots=_SLOTS)
    say(f"{plot} shows who had the slots")
    return found, Responses(
        first_pilot=first_pilot - began.submitted,
        grown=_grown([*jobs["broad"], *jobs["urgent"]]) - began.submitted,
        first_urgent=arrived.first - arrived.submitted,
        last_urgent=arrived.last - arrived.submitted,
        shrunk=course.leaving_seconds,
    )


def _grown(jobs: list[Life]) -> float:
    moment = reached(curve(jobs), _SLOTS)
    if moment is None:
        raise RunFailed(f"there were never {_SLOTS} jobs that ran at the same time")
    return moment


def _replicas(run: Run) -> list[Life]:
    """When its replicas ran, by the time at which the server heard of their end."""
    query = """
        SELECT extract(epoch FROM ended_at)::float8, wall_seconds::float8
          FROM ended WHERE bot = %s AND wall_seconds IS NOT NULL"""
    return [Life(ended - wall, ended) for ended, wall in run.server.rows(query, run.bot)]
