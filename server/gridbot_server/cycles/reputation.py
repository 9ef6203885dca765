"""Keeps what hosts have proven and which outcomes are provisional, as decisions change it.

`assurance.py` and `matching/track_record.py` decide; this reads what they need and writes what
follows.  A change of a host's record wakes the outcomes that rely on it, so that check, verdict and
recall are decisions like all others: a crash between two of them leaves rows of `pending`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from gridbot_server.cycles import widths
from gridbot_server.cycles.transition import Decision, Job, Rules
from gridbot_server.matching.assurance import Credence
from gridbot_server.matching.track_record import (
    SEASON,
    TrackRecord,
    checks_at_the_end,
    coin,
    most_agreements,
)
from gridbot_server.matching.width import CROWDED_PART
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch, fetch_only_value

SQL = sql.load("assurance.sql")

Answer = tuple[JobId, int]  # a replica
CrewPair = tuple[bytes, str, str]  # a program, and two crews in order

_FEW_CATCHES = 3  # of one host that count against its crew


class _CredenceRow(NamedTuple):
    """A success, and what is known of those who gave it."""

    bot: int
    seq: int
    replica: int
    host: int
    crew: str
    program: bytes
    is_vouched: bool
    streak: int
    caught: int
    crew_streak: int
    crew_caught: int
    is_relied_on: bool
    is_due: bool
    due_at: datetime | None
    is_seasoned: bool
    is_canonical: bool

    @property
    def record(self) -> TrackRecord:
        return TrackRecord(self.streak, self.caught)

    @property
    def credence(self) -> Credence:
        return Credence(
            host=self.record,
            crew=TrackRecord(self.crew_streak, self.crew_caught),
            is_vouched=self.is_vouched,
            is_seasoned=self.is_seasoned,
            is_due=self.is_due,
            is_first=self.replica == 1,
        )


class _RecordRow(NamedTuple):
    """The track record of a host or a crew."""

    who: str
    program: bytes
    streak: int
    caught: int


class _AgreementRow(NamedTuple):
    """How often two crews proved each other right while neither was trusted."""

    program: bytes
    one: str
    other: str
    times: int


class _OpenRow(NamedTuple):
    """A replica that an outcome relies on, in a BOT that has nothing else left."""

    bot: int
    seq: int
    replica: int
    host: int
    is_lone: bool
    is_due: bool


class _NumberedEvents(NamedTuple):
    """The last number that a BOT had given to an event."""

    bot: int
    last: int


@dataclass(slots=True)
class Believed:
    """Who gave the answers of a batch's jobs, where strangers did."""

    answers: dict[Answer, _CredenceRow] = field(default_factory=dict)  # by replica


@dataclass(slots=True)
class _Checks:
    """What a batch has shown of a host or crew."""

    right: int = 0
    wrong: int = 0


def believe(conn: Connection, jobs: Mapping[JobId, Job], rules: Mapping[int, Rules]) -> Believed:
    """Give jobs whose answers come from strangers the credence of each, and their coins."""
    assured = [name for name in jobs if rules[name.bot].terms]
    if not assured:
        return Believed()
    secret = fetch_only_value(conn, str, SQL["coins"])
    listed = {"jobs": encode([name._asdict() for name in assured])}
    rows = fetch(conn, _CredenceRow, SQL["credences"], listed)
    found = {(JobId(row.bot, row.seq), row.replica): row for row in rows}
    for name in assured:
        job = jobs[name]
        job.coin = coin(secret, *name)
        job.ended = [
            item._replace(credence=row.credence)
            if (row := found.get((name, item.replica)))
            else item
            for item in job.ended
        ]
        relied_on = [
            (not row.is_canonical, item.replica)
            for item in job.ended
            if (row := found.get((name, item.replica))) and row.is_relied_on
        ]
        job.relied_on = tuple(replica for _, replica in sorted(relied_on))
    return Believed(found)


def follow(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    rules: Mapping[int, Rules],
    believed: Believed,
) -> None:
    """Write what follows from decisions about strangers' answers."""
    assured = {name: item for name, item in decisions.items() if rules[name.bot].terms}
    if not assured:
        return
    rights = _rights(conn, assured, believed)
    _learn(conn, assured, rights, rules, believed)
    widths.grow(conn, Counter(believed.answers[item].host for item in rights))
    _keep(conn, jobs, assured)
    _pass_checks(conn, assured, believed)
    _close(conn, {name.bot for name in assured}, _lone_hosts(assured, believed))


def _rights(
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
            rights += [answer for answer in told if not believed.answers[answer].is_vouched]
            continue
        if not told:
            continue
        if known is None:
            known = _agreements(conn, decisions, believed)
        if name.bot not in limits:
            crews = fetch_only_value(conn, int, SQL["crews_at_work"], {"bot": name.bot})
            limits[name.bot] = most_agreements(crews)
        pairs = _pairs(name, item.provisional, believed)
        fresh = [pair for pair in pairs if known[pair] + made[pair] < limits[name.bot]]
        made.update(fresh)
        crews_of_fresh = {crew for pair in fresh for crew in pair[1:]}
        rights += [answer for answer in told if believed.answers[answer].crew in crews_of_fresh]
    if made:
        rows = [
            {"program": program.hex(), "one": one, "other": other, "times": times}
            for (program, one, other), times in made.items()
        ]
        conn.execute(SQL["add_agreements"], {"pairs": encode(rows)})
    return rights


def _pairs(name: JobId, replicas: Sequence[int], believed: Believed) -> list[CrewPair]:
    rows = [believed.answers[name, replica] for replica in replicas]
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


# -------------------------------------------------------------------------------- track records


def _learn(
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
    keys = sorted({*hosts, *crews})
    named = [{"who": who, "program": program.hex()} for who, program in keys]
    conn.execute(SQL["meet"], {"records": encode(named)})
    rows = fetch(conn, _RecordRow, SQL["lock_records"], {"records": encode(named)})
    old = {(row.who, row.program): TrackRecord(row.streak, row.caught) for row in rows}
    new = {
        **{key: _after(old[key], hosts[key], TrackRecord.after_wrong) for key in hosts},
        **{key: _after(old[key], crews[key], TrackRecord.after_wrong_of_a_host) for key in crews},
    }
    changed = [
        {
            "who": who,
            "program": program.hex(),
            **new[who, program]._asdict(),
            "good": checks.right,
            "wrong": checks.wrong,
        }
        for (who, program), checks in [*hosts.items(), *crews.items()]
    ]
    conn.execute(SQL["keep_records"], {"records": encode(changed)})
    _wake(conn, {key: (old[key], new[key]) for key in hosts}, _strictest(rules.values()))


def _checks(
    decisions: Mapping[JobId, Decision], rights: Sequence[Answer], believed: Believed
) -> tuple[dict[tuple[str, bytes], _Checks], dict[tuple[str, bytes], _Checks]]:
    hosts: dict[tuple[str, bytes], _Checks] = defaultdict(_Checks)
    crews: dict[tuple[str, bytes], _Checks] = defaultdict(_Checks)
    for answer in rights:
        row = believed.answers[answer]
        hosts[f"host {row.host}", row.program].right += 1
        crews[row.crew, row.program].right += 1
    for name, decision in decisions.items():
        for replica in decision.wrong:
            row = believed.answers[name, replica]
            if not row.is_vouched:
                hosts[f"host {row.host}", row.program].wrong += 1
                crew = crews[row.crew, row.program]
                crew.wrong += row.caught < _FEW_CATCHES
    return hosts, crews


def _after(
    record: TrackRecord, checks: _Checks, after_wrong: Callable[[TrackRecord], TrackRecord]
) -> TrackRecord:
    """A record after checks; a wrong answer counts as the last of them, whenever it came."""
    for _ in range(checks.right):
        record = record.after_right()
    for _ in range(checks.wrong):
        record = after_wrong(record)
    return record


def _strictest(rules: Iterable[Rules]) -> float:
    return max(item.terms.assurance for item in rules if item.terms)


def _wake(
    conn: Connection,
    changes: Mapping[tuple[str, bytes], tuple[TrackRecord, TrackRecord]],
    assurance: float,
) -> None:
    """Have outcomes looked at again whose host was caught or became trusted."""
    rows = [
        {"host": int(who.removeprefix("host ")), "program": program.hex()}
        for (who, program), (old, new) in changes.items()
        if new.caught != old.caught or new.doubt <= 1 - assurance < old.doubt
    ]
    if rows:
        conn.execute(SQL["wake_relying"], {"hosts": encode(rows)})


def _pass_checks(conn: Connection, decisions: Mapping[JobId, Decision], believed: Believed) -> None:
    """Season what hosts said, by their later first answers that proved right.

    Checks count in the order of the answers: liars that check each other do so at once, and would
    be believed before an honest host has found out about any.
    """
    rows = [
        {**name._asdict(), "replica": replica, "due_at": row.due_at and row.due_at.isoformat()}
        for name, item in decisions.items()
        for replica in item.right
        if (row := believed.answers[name, replica]).credence.is_first and not row.is_vouched
    ]
    if rows:
        given = {"replicas": encode(rows), "season": SEASON}
        conn.execute(SQL["pass_checks"], given)
        conn.execute(SQL["season"], given)


# ------------------------------------------------------------------------- provisional outcomes


def _keep(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
) -> None:
    changed = {
        name: item
        for name, item in decisions.items()
        if not jobs[name].has_outcome
        and (item.finishes or item.provisional != jobs[name].relied_on)
    }
    gone = [name._asdict() for name in changed if jobs[name].relied_on]
    if gone:
        conn.execute(SQL["forget_provisional"], {"jobs": encode(gone)})
    made = [
        {
            **name._asdict(),
            "replica": replica,
            "is_lone": len(item.provisional) == 1,
            "is_canonical": replica == item.provisional[0],
        }
        for name, item in changed.items()
        for replica in item.provisional
    ]
    if made:
        conn.execute(SQL["add_provisional"], {"replicas": encode(made)})
    _tell(conn, jobs, changed)


def _tell(conn: Connection, jobs: Mapping[JobId, Job], changed: Mapping[JobId, Decision]) -> None:
    """Number the events of these outcomes, and count those that are provisional."""
    events: dict[int, list[dict[str, object]]] = defaultdict(list)
    provisional: Counter[int] = Counter()
    doubts: dict[int, float] = defaultdict(float)
    for name, decision in changed.items():
        was = jobs[name].relied_on
        provisional[name.bot] += bool(decision.provisional) - bool(was)
        for kind, replica in _kinds(was, decision):
            events[name.bot].append({**name._asdict(), "kind": kind, "replica": replica})
        if decision.canonical is not None:
            doubts[name.bot] += max(0.0, 1 - decision.confidence)
    bots = [
        {
            "bot": bot,
            "events": len(events[bot]),
            "provisional": provisional[bot],
            "doubt": doubts[bot],
        }
        for bot in sorted({name.bot for name in changed})
    ]
    if not bots:
        return
    last = dict(fetch(conn, _NumberedEvents, SQL["number_events"], {"bots": encode(bots)}))
    rows = [
        {**event, "n": last[bot] + place}
        for bot, listed in events.items()
        for place, event in enumerate(listed, 1)
    ]
    if rows:
        conn.execute(SQL["add_events"], {"events": encode(rows)})


def _kinds(was: Sequence[int], decision: Decision) -> list[tuple[str, int | None]]:
    """What a change of a job's outcome is told as."""
    told: list[tuple[str, int | None]] = []
    now = decision.canonical or (decision.provisional[0] if decision.provisional else None)
    if was and was[0] != now:
        told.append(("recalled", was[0]))
    if decision.canonical is not None:
        told.append(("confirmed", decision.canonical))
    elif decision.failure is not None:
        told.append(("failed", None))
    elif decision.provisional and (not was or was[0] != now):
        told.append(("provisional", now))
    return told


def _lone_hosts(decisions: Mapping[JobId, Decision], believed: Believed) -> set[int]:
    """Return the hosts whose answers are relied on alone."""
    return {
        believed.answers[name, item.provisional[0]].host
        for name, item in decisions.items()
        if len(item.provisional) == 1
    }


def _close(conn: Connection, bots: Iterable[int], hosts: Iterable[int]) -> None:
    """Have some open answers of hosts settled by which nothing else would be learnt.

    That is so in BOTs that have nothing else left, and where `hosts` have so many that their widths
    leave no room for others.  The rest follows when these have proven right; whoever agreed with
    others is settled as well.
    """
    rows = fetch(conn, _OpenRow, SQL["closing"], {"bots": sorted(bots)})
    if hosts := sorted(hosts):
        given = {"hosts": hosts, "part": CROWDED_PART}
        rows = [*{*rows, *fetch(conn, _OpenRow, SQL["crowded"], given)}]
    if not rows:
        return
    due = {JobId(row.bot, row.seq) for row in rows if not row.is_lone and not row.is_due}
    lone: dict[tuple[int, int], list[_OpenRow]] = defaultdict(list)
    for row in rows:
        if row.is_lone:
            lone[row.bot, row.host].append(row)
    secret = fetch_only_value(conn, str, SQL["coins"])
    for listed in lone.values():
        lacking = checks_at_the_end(len(listed)) - sum(row.is_due for row in listed)
        waiting = sorted(
            (row for row in listed if not row.is_due),
            key=lambda row: coin(secret, row.bot, row.seq),
        )
        due.update(JobId(row.bot, row.seq) for row in waiting[: max(0, lacking)])
    if due:
        conn.execute(SQL["make_due"], {"jobs": encode([name._asdict() for name in sorted(due)])})
