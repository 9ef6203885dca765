"""The host request path with few and with many BOTs, each with the five policies of Figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from gridbot import Session

from .harness.command import measurement, several
from .harness.host_requests import COLUMNS, Size, beside_first, sized
from .harness.stages import COMMAND, Server, Subject, prepared
from .harness.windows import Row
from .policies import FIGURE_3

_ENDED_SHARE = 0.04  # of many BOTs, at the end
# Of a larger buffer where BOTs are more, as PERFORMANCE.md advises.
_USUAL_SLOTS, _SLOTS_PER_BOT = 4096, 4


@measurement(COLUMNS)
@several("--bots", (1, 10, 50, 500), "BOTs in the queue")
@sized(rounds=5, seconds=3.0, requests=2000)
def bots(bots: Sequence[int], size: Size, quick: bool) -> list[Row]:
    """The cost of a request as BOTs with five policies each become more."""
    with ExitStack() as stack:
        subjects = []
        for count in (1, 10) if quick else bots:
            settings = {"buffer_slots": max(_USUAL_SLOTS, _SLOTS_PER_BOT * count)}
            place, known, load = stack.enter_context(prepared(settings=settings))
            with place.session() as session:
                _submit(session, count, size.jobs() * size.rounds)
            stage = Server(place, load, known=known)
            stage.calm_down()
            subjects.append(Subject(stage, size.plan(stage.port), {"bots": count}))
        return beside_first(subjects, size.rounds)


def _submit(session: Session, count: int, jobs: int) -> None:
    """Submit BOTs of which Rank picks one after the other: few of many will have ended."""
    each = min(jobs, jobs // (count * _ENDED_SHARE))
    for number in range(1, count + 1):
        policy = FIGURE_3.format(share=10 + number % 40, number=number, seconds=2000 + number)
        session.submit(COMMAND, range(round(each)), policy=policy)
