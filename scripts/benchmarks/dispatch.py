"""The host request path: requests that report the last jobs and ask for more, beside the floor."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product

from gridbot import Session

from . import boinc_hosts, floor
from .generator import Plan
from .policies import FIGURE_3
from .stages import COMMAND, HOSTS, Server, Stock, Subject, bare, measure, prepared, server
from .windows import Row, median_row, ratios

JOBS_PER_RPC, CONCURRENCY = 5, 16  # where only one of each is measured
ASKING_HOSTS = 2000  # of a crowd, that take turns

_WARM_UP = 300  # requests
_COMPARED = ("rpc_per_s", "p99_ms", "server_us_per_rpc")
_ENDED_SHARE = 0.04  # of many BOTs, at the end


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    seconds: float  # of each measurement, at most
    requests: int  # in each measurement, at most

    def plan(
        self, port: int, jobs_per_rpc: int = JOBS_PER_RPC, concurrency: int = CONCURRENCY,
        hosts: int = 0,
    ) -> Plan:  # fmt: skip
        """A measurement of this size."""
        return Plan(
            port, concurrency, jobs_per_rpc, self.seconds, self.requests, hosts, warm_up=_WARM_UP
        )

    @property
    def requests_with_warm_up(self) -> int:
        """Of one measurement, at most."""
        return self.requests + _WARM_UP

    @property
    def jobs(self) -> int:
        """What one measurement can take out of the queue, at the usual jobs per request."""
        return self.requests_with_warm_up * JOBS_PER_RPC


def dispatch(
    size: Size, jobs_per_rpc: Sequence[int], concurrency: Sequence[int], jobs: int
) -> list[Row]:
    """Every size of request at every concurrency, each beside the floor in the same round."""
    with server(jobs, least=jobs // 2) as ours, bare(ours.data) as web:
        plans = [size.plan(ours.port, *cell) for cell in product(jobs_per_rpc, concurrency)]
        pairs = [(Subject(ours, plan), Subject(web, _bare(plan, web.port))) for plan in plans]
        found = measure([subject for pair in pairs for subject in pair], size.rounds)
    return [_beside_floor(*pair) for pair in zip(found[::2], found[1::2], strict=True)]


def floors(size: Size, jobs_per_rpc: Sequence[int], concurrency: Sequence[int]) -> list[Row]:
    """The floor alone."""
    with server(jobs=1, least=0) as ours, bare(ours.data) as web:
        cells = product(jobs_per_rpc, concurrency)
        subjects = [Subject(web, _bare(size.plan(0, *cell), web.port)) for cell in cells]
        return [median_row(rows) for rows in measure(subjects, size.rounds)]


def boinc(
    size: Size, jobs_per_rpc: Sequence[int], concurrency: Sequence[int], jobs: int
) -> list[Row]:
    """The same from stock BOINC clients, of a BOT that is signed for them."""
    with (
        prepared(0, "--sign-on-submit", owners=1) as (place, known, load),
        place.session() as session,
    ):
        made = place.gridbot("token", "create", "volunteer1", "--scope", "join", "--json")
        key = json.loads(made)["token"]
        stock = Stock(session, jobs, jobs // 2)

        def fill() -> bool:
            is_new = stock.fill()
            if is_new:  # uploads are no scheduler requests: they are there before
                known.add_uploads(stock.bot, jobs, boinc_hosts.OUTPUT)
            return is_new

        ours = Server(place, load, fill, known)
        with bare(ours.data) as web:
            cells = product(jobs_per_rpc, concurrency)
            asked = [
                replace(size.plan(ours.port, *cell), path=boinc_hosts.PATH, key=key)
                for cell in cells
            ]
            pairs = [(Subject(ours, plan), Subject(web, _bare(plan, web.port))) for plan in asked]
            found = measure([subject for pair in pairs for subject in pair], size.rounds)
    return [_beside_floor(*pair) for pair in zip(found[::2], found[1::2], strict=True)]


def _bare(plan: Plan, port: int) -> Plan:
    return replace(plan, port=port, path=floor.PATH)


def _beside_floor(rows: Sequence[Row], floors: Sequence[Row]) -> Row:
    return {
        **median_row(rows),
        "to_floor": {name: ratios(rows, floors, name) for name in _COMPARED},
        "floor": {name: statistics.median(row[name] for row in floors) for name in _COMPARED},
    }


def queue(size: Size, levels: Sequence[int]) -> list[Row]:
    """The same request with few and with many jobs queued; each level stays within a tenth."""
    with ExitStack() as stack:
        subjects = []
        for level in levels:
            least = level * 9 // 10 + size.jobs
            stage = stack.enter_context(server(level + size.jobs, least))
            subjects.append(Subject(stage, size.plan(stage.port), {"queued": level}))
        return _beside_first(measure(subjects, size.rounds))


def bots(size: Size, counts: Sequence[int]) -> list[Row]:
    """The same request with few and with many BOTs, each with the five policies of Figure 3."""
    with ExitStack() as stack:
        subjects = []
        for count in counts:
            place, known, load = stack.enter_context(prepared())
            with place.session() as session:
                _submit(session, count, size.jobs * size.rounds)
            stage = Server(place, load, known=known)
            stage.calm_down()
            subjects.append(Subject(stage, size.plan(stage.port), {"bots": count}))
        return _beside_first(measure(subjects, size.rounds))


def _submit(session: Session, count: int, jobs: int) -> None:
    """Submit BOTs of which Rank picks one after the other: few of many will have ended."""
    each = min(jobs, jobs // (count * _ENDED_SHARE))
    for number in range(1, count + 1):
        policy = FIGURE_3.format(share=10 + number % 40, number=number, seconds=2000 + number)
        session.submit(COMMAND, range(round(each)), policy=policy)


def hosts(size: Size, known_hosts: Sequence[int]) -> list[Row]:
    """The same request from hosts among few and among many known ones; last, many of them ask."""
    with ExitStack() as stack:
        subjects = []
        for known in known_hosts:
            stage = stack.enter_context(server(2 * size.jobs, size.jobs, max(known, HOSTS)))
            labels = {"known_hosts": known, "asking_hosts": CONCURRENCY}
            subjects.append(Subject(stage, size.plan(stage.port), labels))
        crowd = min(ASKING_HOSTS, known_hosts[-1])
        plan = size.plan(stage.port, hosts=crowd)
        subjects.append(Subject(stage, plan, {**labels, "asking_hosts": crowd}))
        return _beside_first(measure(subjects, size.rounds))


def _beside_first(found: Sequence[Sequence[Row]]) -> list[Row]:
    return [
        {
            **median_row(rows),
            "to_first": {name: ratios(rows, found[0], name) for name in _COMPARED},
        }
        for rows in found
    ]
