"""Why a BOT does not run, or that nothing is wrong: the document behind `gridbot bot explain`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gridbot_policies.explain import Miss, Obstacle
from gridbot_server.match import Candidate, Demand, Known, judged, obstacle, suits

# Matching hosts that are asked which BOT they would serve first: a bound on the cost.
_ASKED_FOR_RANK = 50


@dataclass(frozen=True, slots=True)
class Standing:
    """How a BOT stands in the queue; `rivals` are the other BOTs that wait to be sent."""

    bot: int
    state: str
    unsent: int
    running: int
    rivals: Sequence[Demand]


@dataclass(frozen=True, slots=True)
class Occupied:
    """Why matching hosts take no job now; those in no count are free."""

    hosts: int
    silent: int  # have not asked for work lately
    full: int  # hold as many replicas as Concurrency allows
    outranked: int  # serve another BOT first, because its Rank is higher there

    @property
    def free(self) -> int:
        """The hosts that may take a job at their next request."""
        return self.hosts - self.silent - self.full - self.outranked


def explanation(
    demand: Demand,
    candidates: Sequence[Candidate],
    standing: Standing,
    is_enough: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Return what rejects which hosts, the nearest misses, and the verdict in a sentence.

    When it `is_enough`, the hosts that are left are not looked at.
    """
    found = judged(candidates, demand, is_enough)
    explained = found.explain(is_enough)
    occupied = _occupied(found.matching, standing.rivals, is_enough)
    return {
        "id": standing.bot,
        "state": standing.state,
        "verdict": _verdict(standing, occupied, obstacle(found)),
        "hosts_known": len(found.verdicts),
        "hosts_left_out": found.is_partial,
        "hosts_matching": occupied.hosts,
        "hosts_silent": occupied.silent,
        "hosts_full": occupied.full,
        "hosts_outranked": occupied.outranked,
        "hosts_free": occupied.free,
        "jobs_unsent": standing.unsent,
        "jobs_running": standing.running,
        "conditions": [_condition(item) for item in explained.obstacles],
        "nearest": [_miss(miss) for miss in explained.nearest],
        "changes": list(_changes(explained.obstacles)),
    }


def _occupied(
    matching: Sequence[Known], rivals: Sequence[Demand], is_enough: Callable[[], bool]
) -> Occupied:
    asking = [known for known in matching if not known.candidate.silent]
    full, free = list[Known](), list[Known]()
    for known in itertools.takewhile(lambda _: not is_enough(), asking):
        (full if _is_full(known) else free).append(known)
    outranked = sum(
        1
        for known in free[:_ASKED_FOR_RANK]
        if any(_outranks(rival, known) for rival in rivals if not is_enough())
    )
    return Occupied(len(matching), len(matching) - len(asking), len(full), outranked)


def _is_full(known: Known) -> bool:
    return known.candidate.running >= known.demand.policies.concurrency(known.ads)


def _outranks(rival: Demand, known: Known) -> bool:
    there = Known(known.candidate, rival)
    return suits(there) and rival.policies.rank(there.ads) > known.demand.policies.rank(known.ads)


def _verdict(standing: Standing, occupied: Occupied, reason: str) -> str:
    """Return the first of the reasons that apply, the plainest first."""
    if standing.state in ("done", "cancelled"):
        return f"the BOT is {standing.state}: nothing of it waits to be sent"
    if standing.state == "open":
        return "the BOT is open: its submission has not been completed"
    if reason:
        return f"no known host can run it now: {reason}"
    if not standing.unsent:
        return f"nothing waits to be sent: {_counted(standing.running, 'replica')} in progress"
    matching = f"{_counted(occupied.hosts, 'host')} can run it"
    if occupied.free:
        return f"nothing is wrong: {matching}, and {occupied.free} may take a job when asking next"
    return f"{matching}, but none is free: {', '.join(_busy(occupied))}"


def _busy(occupied: Occupied) -> Iterator[str]:
    if occupied.full:
        yield f"{occupied.full} hold as many replicas as Concurrency allows"
    if occupied.outranked:
        yield f"{occupied.outranked} serve another BOT first, whose Rank is higher there"
    if occupied.silent:
        yield f"{occupied.silent} have not asked for work for ten minutes"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _condition(found: Obstacle) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "text": found.text,
        "via": found.via,
        "rejects": found.rejects,
        "only": found.only,
        "values": [{"value": value, "hosts": hosts} for value, hosts in found.values],
    }


def _changes(obstacles: Sequence[Obstacle]) -> Iterator[dict[str, Any]]:
    """Yield what could be relaxed; `policy` is the whole text with the change made."""
    for found in obstacles:
        for relaxed in found.relaxed:
            yield {
                "instead_of": found.text,
                "text": relaxed.text,
                "hosts": relaxed.hosts,
                "policy": relaxed.change.get("policy"),
                "submit": relaxed.change.get("submit"),
            }


def _miss(miss: Miss[Known]) -> dict[str, Any]:
    fails = [{"text": text, "has": has} for text, has in miss.fails]
    return {"host": miss.subject.candidate.label, "fails": fails}
