"""Why a BOT does not run, or that nothing is wrong: the document behind `gridbot bot explain`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gridbot_policies.classad.source import edited
from gridbot_policies.explain.rejections import VALUES, Judged, Miss, Obstacle, Rejections
from gridbot_policies.explain.relax import Relaxed
from gridbot_server.matching.hosts import (
    BotRequirements,
    HostClient,
    Known,
    commonest_obstacle,
    judged,
    owner_accepts,
    owner_clauses,
    sentence,
    stock_hosts,
    suits,
)

# Matching hosts that are asked which BOT they would serve first: a bound on the cost.
_ASKED_FOR_RANK = 50


@dataclass(frozen=True, slots=True)
class WaitingKind:
    """Further copies that wait for hosts of one kind, because HomogeneousBy binds their jobs."""

    kind: str
    copies: int


@dataclass(frozen=True, slots=True)
class SilentHolder:
    """A host that missed its contacts, and how many jobs it alone has."""

    id: int
    name: str | None  # None: the asker may not know it
    jobs: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How a BOT stands in the queue; `rivals` are the other BOTs that wait to be sent."""

    bot: int
    state: str
    unsent: int
    running: int
    rivals: Sequence[BotRequirements]
    suspended: str | None = None  # why it gets no work until its policy is changed
    kinds: Sequence[WaitingKind] = ()
    growing: bool = False
    held: str | None = None  # why nothing of it is sent until it is resumed
    silent: Sequence[SilentHolder] = ()


@dataclass(frozen=True, slots=True)
class Occupied:
    """Why matching hosts take no job now; those in no count are free."""

    hosts: int
    silent: int  # missed their contacts, or have not asked for work lately
    full: int  # hold as many replicas as Concurrency allows
    outranked: int  # serve another BOT first, because its Rank is higher there
    undecided: int  # have owners' Requirements about what is known only while the host asks
    undecided_by: Sequence[tuple[str, int]]  # which these are, and of how many hosts

    @property
    def free(self) -> int:
        """The hosts that may take a job at their next request."""
        return self.hosts - self.silent - self.full - self.outranked - self.undecided


def explanation(
    demand: BotRequirements,
    candidates: Sequence[HostClient],
    standing: Standing,
    is_enough: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Return what rejects which hosts, the nearest misses, and the verdict in a sentence.

    When it `is_enough`, the hosts that are left are not looked at.
    """
    return _document(demand, candidates, standing, is_enough, commonest_obstacle)


def host_explanation(
    demand: BotRequirements,
    clients: Sequence[HostClient],
    standing: Standing,
    is_enough: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Return the same about one host alone, which is called by its name; `host` says what it is."""
    host = clients[0]
    document = _document(demand, clients, standing, is_enough, _all_obstacles, host.label)
    return {
        **document,
        "host": {
            "id": host.host,
            "name": host.label,
            "is_boinc": host.is_stock,
            "client_version": host.attributes.get("ClientVersion"),
            "platform": host.attributes.get("Platform"),
        },
    }


def _document(
    demand: BotRequirements,
    candidates: Sequence[HostClient],
    standing: Standing,
    is_enough: Callable[[], bool],
    reason: Callable[[Judged[Known]], str],
    host: str = "",
) -> dict[str, Any]:
    found = judged(candidates, demand, is_enough)
    explained = found.explain(is_enough)
    occupied = _occupied(found.matching, standing.rivals, is_enough)
    stock, stock_matching = stock_hosts(found)
    kinds = _kinds(standing, found.matching)
    return {
        "id": standing.bot,
        "state": standing.state,
        "verdict": _verdict(standing, occupied, reason(found), host)
        + _lack_of_kin(kinds)
        + _silence(standing.silent),
        "held": standing.held,
        "suspended": standing.suspended,
        "hosts_known": len(found.verdicts),
        "hosts_left_out": found.is_partial,
        "hosts_matching": occupied.hosts,
        "hosts_stock": stock,
        "hosts_stock_matching": stock_matching,
        "hosts_silent": occupied.silent,
        "hosts_full": occupied.full,
        "hosts_outranked": occupied.outranked,
        "hosts_undecided": occupied.undecided,
        "hosts_free": occupied.free,
        "signed_for_boinc": bool(demand.stock_platforms),
        "boinc_unsuitable": demand.boinc_unsuitable,
        "jobs_unsent": standing.unsent,
        "jobs_running": standing.running,
        "silent": [asdict(item) for item in standing.silent],
        "homogeneous": kinds,
        "conditions": [_condition(item) for item in explained.obstacles],
        "nearest": [_miss(miss) for miss in explained.nearest],
        "changes": list(_changes(explained, demand.policies.text)),
    }


def _kinds(standing: Standing, matching: Sequence[Known]) -> list[dict[str, Any]]:
    """What waits for which kind of hosts, and how many of these could run it."""
    if not standing.kinds:
        return []
    hosts: dict[str, set[int]] = {}
    for known in matching:
        kind = known.demand.policies.kind(known.ads)
        hosts.setdefault(kind, set()).add(known.candidate.host)
    return [
        {"kind": item.kind, "copies": item.copies, "hosts": len(hosts.get(item.kind, ()))}
        for item in standing.kinds
    ]


def _lack_of_kin(kinds: Sequence[dict[str, Any]]) -> str:
    """Name the kinds of which there is no second host: the first has had its replica."""
    lacking = [item for item in kinds if item["hosts"] < 2]
    return "".join(
        f"; {_counted(item['copies'], 'further replica')} must go to another host with"
        f" HomogeneousBy = {item['kind']}, of which {_counted(item['hosts'], 'host')} can run it"
        for item in lacking[:VALUES]
    )


def _silence(hosts: Sequence[SilentHolder]) -> str:
    """Name the silent hosts that alone have jobs."""
    return "".join(
        f"; {_counted(item.jobs, 'job')} {'was' if item.jobs == 1 else 'were'} sent to"
        f" {f'host {item.id}' if item.name is None else item.name}, silent for"
        f" {_minutes(item.silent_seconds)}, and {'waits' if item.jobs == 1 else 'wait'} for another"
        f" client: gridbot host forget {item.id}, if it does not come back"
        for item in hosts[:VALUES]
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _all_obstacles(found: Judged[Known]) -> str:
    """Return all that the hosts fail, each in a sentence."""
    return "; ".join(
        sentence(condition, verdict.subject)
        for verdict in found.verdicts
        for condition in verdict.failed[:VALUES]
    )


def _occupied(
    matching: Sequence[Known], rivals: Sequence[BotRequirements], is_enough: Callable[[], bool]
) -> Occupied:
    asking = [known for known in matching if not known.candidate.silent]
    full, free = list[Known](), list[Known]()
    for known in itertools.takewhile(lambda _: not is_enough(), asking):
        (full if _is_full(known) else free).append(known)
    outranked, undecided = 0, list[Known]()
    for place, known in enumerate(free):
        asked = rivals if place < _ASKED_FOR_RANK else ()
        if any(_outranks(rival, known) for rival in asked if not is_enough()):
            outranked += 1
        elif not is_enough() and owner_accepts(known) is None:
            undecided.append(known)
    by = Counter(clause for known in undecided for clause in owner_clauses(known, None))
    silent = len(matching) - len(asking)
    return Occupied(
        len(matching), silent, len(full), outranked, len(undecided), by.most_common(VALUES)
    )


def _is_full(known: Known) -> bool:
    return known.candidate.running >= known.demand.policies.concurrency(known.ads)


def _outranks(rival: BotRequirements, known: Known) -> bool:
    there = Known(known.candidate, rival)
    return suits(there) and rival.policies.rank(there.ads) > known.demand.policies.rank(known.ads)


def _verdict(standing: Standing, occupied: Occupied, reason: str, host: str) -> str:
    """Return the first reason that applies; `host` names the only host asked about, or is ""."""
    if standing.state in ("done", "cancelled"):
        return f"the BOT is {standing.state}: it has no unsent jobs"
    if standing.state == "open":
        return "the BOT is open: its submission is not complete"
    if standing.held:
        return f"the BOT is held until it is resumed: {standing.held}"
    if standing.suspended:
        return "the BOT is suspended until its policy is changed"
    if standing.growing and not standing.unsent and not standing.running:
        return "the BOT is growing: it has no unsent jobs until some are appended"
    if reason:
        return f"{f'{host} cannot' if host else 'no known host can'} run it now: {reason}"
    if not standing.unsent:
        return f"no unsent jobs: {_counted(standing.running, 'replica')} in progress"
    matching = f"{host or _counted(occupied.hosts, 'host')} can run it"
    if not occupied.free:
        takes = "gets no job now" if host else "none is certain to get a job now"
        return f"{matching}, but {takes}: {', '.join(_busy(occupied, host))}"
    unsure = "".join(f"; {text}" for text in _undecided(occupied, host))
    free = "" if host else f"{occupied.free} "
    return f"no problem: {matching}, and {free}may get a job at the next request{unsure}"


def _busy(occupied: Occupied, host: str) -> Iterator[str]:
    if occupied.full:
        number = _subject(occupied.full, host, "holds", "hold")
        yield f"{number} as many replicas as Concurrency allows"
    if occupied.outranked:
        number = _subject(occupied.outranked, host, "serves", "serve")
        yield f"{number} another BOT first, whose Rank is higher there"
    if occupied.silent:
        number = _subject(occupied.silent, host, "has", "have")
        yield f"{number} not asked for work lately"
    yield from _undecided(occupied, host)


def _undecided(occupied: Occupied, host: str) -> Iterator[str]:
    """Count the hosts whose owner's policy depends on load or clock."""
    if occupied.undecided:
        number = _subject(occupied.undecided, host, "takes", "take")
        whose = "its owner's" if occupied.undecided == 1 else "their owners'"
        clauses = " and ".join(clause for clause, _ in occupied.undecided_by)
        told = f": {clauses}" if clauses else ""
        yield f"{number} it only while {whose} Requirements are satisfied, by load or clock{told}"


def _subject(number: int, host: str, verb: str, plural: str) -> str:
    return f"it {verb}" if host else f"{number} {verb if number == 1 else plural}"


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


def _changes(found: Rejections[Known], policy: str) -> Iterator[dict[str, Any]]:
    """Yield what could be relaxed; `policy` is the whole text with the change made."""
    single = [relaxed for obstacle in found.obstacles for relaxed in obstacle.relaxed]
    for relaxed in (*single, *found.together):
        yield _change(relaxed, policy)


def _change(relaxed: Relaxed, policy: str) -> dict[str, Any]:
    changes = relaxed.changes
    edits = dict(change.edit for change in changes if change.edit)
    return {
        "conditions": len(changes),
        "instead_of": _joined(change.instead_of for change in changes),
        "text": _joined(change.text for change in changes),
        "hosts": relaxed.hosts,
        "policy": edited(policy, edits) if edits else None,
        "submit": " ".join(change.submit for change in changes if change.submit) or None,
    }


def _joined(texts: Iterable[str]) -> str:
    """Join conditions; what a policy says twice is one change."""
    return " and ".join(dict.fromkeys(texts))


def _miss(miss: Miss[Known]) -> dict[str, Any]:
    fails = [{"text": text, "has": has} for text, has in miss.fails]
    return {"host": miss.subject.candidate.label, "fails": fails}
