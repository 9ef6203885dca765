"""Sends every captured request whole, cut and mutated, and judges what comes back."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote

from gridbot_server.boinc.protocol.tags import BoincError

from .captured import SCHEDULER, UPLOAD, Captured
from .damage import cut, mutated
from .hosts import NotServed, Project, acknowledged, ours, replicas, reported
from .wire import Answer, Wire

# A new host for so many requests: an old one's replicas have ended, one way or another.
_REQUESTS_PER_HOST = 50
_STATUS = re.compile(rb"<status>-?\d</status>")


@dataclass(frozen=True, slots=True)
class Amount:
    """How often each request is damaged, and the seed of all chance."""

    cuts: int
    mutations: int
    seed: int

    @property
    def requests(self) -> int:
        """How many requests come of one captured one."""
        return 1 + self.cuts + self.mutations


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that was sent, how it was damaged, and what came of it."""

    name: str
    way: str  # whole, cut, broken off, mutated
    path: str
    answer: Answer | None  # none where the client hung up and was told nothing
    fault: str  # empty if all is well


def run(
    project: Project,
    connect: Callable[[], Wire],
    requests: Sequence[Captured],
    amount: Amount,
    jobs: int,
) -> Iterator[list[Sent]]:
    """Send them all, `jobs` captured requests at a time; what became of each."""

    def replay(captured: Captured) -> list[Sent]:
        wire = connect()
        try:
            return list(_sent(project, wire, captured, amount))
        except NotServed as error:
            return [Sent(captured.name, "whole", captured.path, None, str(error))]
        finally:
            wire.close()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(replay, requests)
        finally:
            pool.shutdown(cancel_futures=True)


def _sent(project: Project, wire: Wire, captured: Captured, amount: Amount) -> Iterator[Sent]:
    rng = random.Random(f"{amount.seed} {captured.name}")
    host = None
    for number in range(amount.requests):
        if captured.method == "GET":
            yield _page(project, wire, captured, number, amount, rng)
            continue
        if host is None or number % _REQUESTS_PER_HOST == 0:
            host = project.host(wire, replicas(captured))
        body = ours(captured, project, host)
        way, answer = _posted(wire, project.path + captured.path, body, number, amount, rng)
        yield Sent(captured.name, way, captured.path, answer, judge(captured, body, way, answer))


def _posted(
    wire: Wire, target: str, body: bytes, number: int, amount: Amount, rng: random.Random
) -> tuple[str, Answer | None]:
    if number == 0:
        return "whole", wire.ask("POST", target, body)
    if number > amount.cuts:
        return "mutated", wire.ask("POST", target, mutated(body, rng))
    if number % 2:
        return "cut", wire.ask("POST", target, cut(body, rng))
    return "broken off", wire.break_off("POST", target, cut(body, rng), len(body))


def _page(
    project: Project,
    wire: Wire,
    captured: Captured,
    number: int,
    amount: Amount,
    rng: random.Random,
) -> Sent:
    path, way = captured.path.encode(), "whole"
    if number > amount.cuts:
        path, way = mutated(path, rng), "mutated"
    elif number:
        path, way = cut(path, rng), "cut"
    # From everywhere: one address alone would soon be refused to look for more accounts.
    source = f"198.51.{rng.randrange(256)}.{rng.randrange(256)}"
    target = project.path + quote(path, safe="/?&=%")
    answer = wire.ask("GET", target, source=source)
    return Sent(captured.name, way, captured.path, answer, judge(captured, b"", way, answer))


def judge(captured: Captured, body: bytes, way: str, answer: Answer | None) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if answer is None:
        return ""
    if answer.status == 0:
        return f"no answer within {answer.seconds:.0f} s"
    if answer.status >= 500:
        return f"status {answer.status}: {answer.body[:200]!r}"
    if captured.path == SCHEDULER and (way == "whole" or answer.status == 200):
        return _reply_fault(body, way, answer)
    if captured.path == UPLOAD and way == "whole" and not _STATUS.search(answer.body):
        return f"no answer to an upload: {answer.body[:200]!r}"
    return ""


def _reply_fault(body: bytes, way: str, answer: Answer) -> str:
    try:
        acks = acknowledged(answer.body)
    except BoincError as error:
        return f"no whole reply: {error}"
    missing = reported(body) - acks if way == "whole" else set()
    return f"not acknowledged: {', '.join(sorted(missing))}" if missing else ""
