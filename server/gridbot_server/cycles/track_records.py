"""Lets hosts' track records follow what proved right or wrong, and wakes what relies on them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gridbot_server.cycles.credences import Answer, AnswererStanding, Believed, Given
from gridbot_server.cycles.job import Decision, Rules
from gridbot_server.matching.track_record import SEASON, TrackRecord, most_agreements
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch

SQL = sql.load("assurance.sql")

CrewPair = tuple[bytes, str, str]  # a program, and two crews in order
_Holder = tuple[str, bytes]  # whose record it is, and of which program

_FEW_CATCHES = 3  # of one host that count against its crew


class _AgreementRow(NamedTuple):
    """How often two crews proved each other right while neither was trusted."""

    program: bytes
    one: str
    other: str
    times: int


@dataclass(slots=True)
class _Checks:
    """What a batch has shown of a host or crew, and what was known before."""

    before: TrackRecord
    right: int = 0
    wrong: int = 0


def rights_of(
    conn: Connection, decisions: Mapping[JobId, Decision], believed: Believed
) -> list[Answer]:
    """Return the answers that count as proven right: those that are sure, and some that are not.

    Of what strangers agree on while none of them is trusted, so much counts as cannot make a ring
    of colluding crews trusted.
    """
    known: Counter[CrewPair] | None = None
    made: Counter[CrewPair] = Counter()
    rights: list[Answer] = []
    limits: dict[int, int] = {}
    for name, item in decisions.items():
        told = [(name, replica) for replica in item.right]
        if not item.provisional or item.is_backed:
            rights += [
                answer for answer in told if not believed.answers[answer].standing.is_vouched
            ]
            continue
        if not told:
            continue
        if known is None:
            known = _agreements(conn, decisions, believed)
        if name.bot not in limits:
            at_work = believed.at_work[name.bot]
            limits[name.bot] = most_agreements(at_work.crews, at_work.are_gathering)
        pairs = _pairs(name, item.provisional, believed)
        fresh = [pair for pair in pairs if known[pair] + made[pair] < limits[name.bot]]
        made.update(fresh)
        crews_of_fresh = {crew for pair in fresh for crew in pair[1:]}
        rights += [
            answer for answer in told if believed.answers[answer].standing.crew in crews_of_fresh
        ]
    if made:
        rows = [
            {"program": program.hex(), "one": one, "other": other, "times": times}
            for (program, one, other), times in made.items()
        ]
        conn.execute(SQL["add_agreements"], {"pairs": encode(rows)})
    return rights


def _pairs(name: JobId, replicas: Sequence[int], believed: Believed) -> list[CrewPair]:
    rows = [believed.answers[name, replica].standing for replica in replicas]
    return [
        (one.program, min(one.crew, other.crew), max(one.crew, other.crew))
        for place, one in enumerate(rows)
        for other in rows[place + 1 :]
    ]


def _agreements(
    conn: Connection, decisions: Mapping[JobId, Decision], believed: Believed
) -> Counter[CrewPair]:
    """Return how often the crews of provisional agreements have proven each other right."""
    pairs = {
        pair
        for name, item in decisions.items()
        if item.right
        for pair in _pairs(name, item.provisional, believed)
    }
    rows = [{"program": program.hex(), "one": one, "other": other} for program, one, other in pairs]
    found = fetch(conn, _AgreementRow, SQL["agreements"], {"pairs": encode(rows)})
    return Counter({(row.program, row.one, row.other): row.times for row in found})


def learn(
    conn: Connection,
    decisions: Mapping[JobId, Decision],
    rights: Sequence[Answer],
    rules: Mapping[int, Rules],
    believed: Believed,
) -> None:
    """Let records follow what proved right or wrong, and wake what relies on them."""
    hosts, crews = _checks(decisions, rights, believed)
    if not hosts:
        return
    new = {
        **{key: _after(checks, TrackRecord.after_wrong) for key, checks in hosts.items()},
        **{key: _after(checks, TrackRecord.after_wrong_of_a_host) for key, checks in crews.items()},
    }
    every = {**hosts, **crews}
    changed = [
        {
            "who": who,
            "program": program.hex(),
            **new[who, program]._asdict(),
            "good": checks.right,
            "wrong": checks.wrong,
        }
        for (who, program), checks in every.items()
    ]
    conn.execute(SQL["keep_records"], {"records": encode(changed)})
    records = {key: (checks.before, new[key]) for key, checks in every.items()}
    _wake(conn, records, _strictest(rules.values()))


def _checks(
    decisions: Mapping[JobId, Decision], rights: Sequence[Answer], believed: Believed
) -> tuple[dict[_Holder, _Checks], dict[_Holder, _Checks]]:
    """Return what the batch has shown of hosts, and of their crews."""
    hosts: dict[_Holder, _Checks] = {}
    crews: dict[_Holder, _Checks] = {}

    def of(row: AnswererStanding) -> tuple[_Checks, _Checks]:
        host, crew = (f"host {row.host}", row.program), (row.crew, row.program)
        if host not in hosts:
            hosts[host] = _Checks(row.record)
        if crew not in crews:
            crews[crew] = _Checks(row.crew_record)
        return hosts[host], crews[crew]

    for answer in rights:
        for checks in of(believed.answers[answer].standing):
            checks.right += 1
    for name, decision in decisions.items():
        for replica in decision.wrong:
            row = believed.answers[name, replica].standing
            if not row.is_vouched:
                of_host, of_crew = of(row)
                of_host.wrong += 1
                of_crew.wrong += row.caught < _FEW_CATCHES
    return hosts, crews


def _after(checks: _Checks, after_wrong: Callable[[TrackRecord], TrackRecord]) -> TrackRecord:
    """A record after checks; a wrong answer counts as the last of them, whenever it came."""
    record = checks.before.after_right(checks.right)
    for _ in range(checks.wrong):
        record = after_wrong(record)
    return record


def _strictest(rules: Iterable[Rules]) -> float:
    return max(item.terms.assurance for item in rules if item.terms)


def _wake(
    conn: Connection,
    changes: Mapping[_Holder, tuple[TrackRecord, TrackRecord]],
    assurance: float,
) -> None:
    """Have outcomes looked at again whose host was caught, or it or its crew became trusted."""
    rows: list[dict[str, object]] = []
    for (who, program), (old, new) in changes.items():
        host = _host(who)
        is_caught = host is not None and new.caught != old.caught
        if is_caught or new.doubt <= 1 - assurance < old.doubt:
            crew = None if host else who
            rows.append({"host": host, "crew": crew, "program": program.hex()})
    if rows:
        conn.execute(SQL["wake_relying"], {"who": encode(rows)})


def _host(who: str) -> int | None:
    """Return the host whose record it is; None for a crew's."""
    kind, _, number = who.partition(" ")
    return int(number) if kind == "host" else None


def pass_checks(conn: Connection, decisions: Mapping[JobId, Decision], believed: Believed) -> None:
    """Season what hosts said, by their later first answers that proved right.

    Checks count in the order of the answers: liars that check each other do so at once, and would
    be believed before an honest host has found out about any.
    """
    checks: dict[tuple[int, bytes], list[Given]] = defaultdict(list)
    for name, item in decisions.items():
        if 1 in item.right:
            first = believed.answers[name, 1]
            who = first.standing
            if not who.is_vouched:
                checks[who.host, who.program].append(first)
    rows = [
        {
            "host": host,
            "program": program.hex(),
            "given": sorted(each.ended_at for each in answers),
            "due": sorted(max(each.ended_at, each.due_at or each.ended_at) for each in answers),
        }
        for (host, program), answers in checks.items()
    ]
    if rows:
        conn.execute(SQL["pass_checks"], {"checks": encode(rows), "season": SEASON})
