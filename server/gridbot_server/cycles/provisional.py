"""Keeps which outcomes are provisional, tells what becomes of them, and has some checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gridbot_server.cycles import job_rows
from gridbot_server.cycles.credences import Believed
from gridbot_server.cycles.job import Decision, Job
from gridbot_server.matching.assurance import DEFAULT_ASSURANCE
from gridbot_server.matching.track_record import coin, sample_size_at_the_end
from gridbot_server.matching.width import CROWDED_PART, FULL
from gridbot_server.storage import sql
from gridbot_server.storage.counters import NO_GRID, Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch, fetch_only_value

SQL = sql.load("assurance.sql")


class _OpenRow(NamedTuple):
    """A replica that an outcome relies on, which nothing else would settle."""

    bot: int
    seq: int
    replica: int
    host: int
    is_lone: bool
    is_due: bool
    open_part: float  # of its BOT's jobs, if the BOT has nothing else left; else 0


class _NumberedEvents(NamedTuple):
    """The last number that a BOT had given to an event."""

    bot: int
    last: int


def keep(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    believed: Believed,
    counters: Counters,
) -> None:
    """Note on which answers provisional outcomes rely now."""
    changed = {
        name: item
        for name, item in decisions.items()
        if not jobs[name].has_outcome
        and (item.finishes or item.provisional != jobs[name].relied_on)
    }
    gone = [name for name in changed if jobs[name].relied_on]
    if gone:
        conn.execute(SQL["forget_provisional"], job_rows.listed(gone))
    made = [
        {
            "bot": name.bot,
            "seq": name.seq,
            "replica": replica,
            "host": given.standing.host,
            "ended_at": given.ended_at,
            "is_lone": len(item.provisional) == 1,
            "is_canonical": replica == item.provisional[0],
        }
        for name, item in changed.items()
        for replica in item.provisional
        for given in [believed.answers[name, replica]]
    ]
    if made:
        conn.execute(SQL["add_provisional"], {"replicas": encode(made)})
    _tell(conn, jobs, changed, counters)


def _tell(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    changed: Mapping[JobId, Decision],
    counters: Counters,
) -> None:
    """Number the events of these outcomes, and count those that are provisional."""
    events: dict[int, list[dict[str, object]]] = defaultdict(list)
    provisional: Counter[int] = Counter()
    doubts: dict[int, float] = defaultdict(float)
    for name, decision in changed.items():
        was = jobs[name].relied_on
        provisional[name.bot] += bool(decision.provisional) - bool(was)
        for kind, replica in _kinds(was, decision):
            event = {"bot": name.bot, "seq": name.seq, "kind": kind, "replica": replica}
            events[name.bot].append(event)
            if kind == "recalled":
                counters.note(name.bot, NO_GRID, "recalled")
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


def lone_hosts(decisions: Mapping[JobId, Decision], believed: Believed) -> set[int]:
    """Return the hosts whose answers are relied on alone."""
    return {
        believed.answers[name, item.provisional[0]].standing.host
        for name, item in decisions.items()
        if len(item.provisional) == 1
    }


def close(conn: Connection, bots: Mapping[int, float], hosts: Iterable[int]) -> None:
    """Have some open answers of hosts settled by which nothing else would be learnt.

    That is so in BOTs, given with the Assurance of each, that have nothing else left; and where
    `hosts` have so many that their widths leave no room for others.  The rest follows when these
    have proven right, and no more are chosen before; whoever agreed with others is settled as well.
    """
    rows = fetch(conn, _OpenRow, SQL["closing"], {"bots": sorted(bots)})
    if hosts := sorted(hosts):
        given = {"hosts": hosts, "part": CROWDED_PART, "full": FULL, "bots": _bots(rows)}
        rows += fetch(conn, _OpenRow, SQL["crowded"], given)
    due = {JobId(row.bot, row.seq) for row in rows if not row.is_lone and not row.is_due}
    lone: dict[tuple[int, int], list[_OpenRow]] = defaultdict(list)
    for row in rows:
        if row.is_lone:
            lone[row.bot, row.host].append(row)
    secret = fetch_only_value(conn, str, SQL["coins"]) if lone else ""
    for (bot, _), listed in lone.items():
        if any(row.is_due for row in listed):
            continue
        listed.sort(key=lambda row: coin(secret, row.bot, row.seq, row.replica))
        assurance = bots.get(bot, DEFAULT_ASSURANCE)
        count = sample_size_at_the_end(len(listed), listed[0].open_part, assurance)
        due.update(JobId(row.bot, row.seq) for row in listed[:count])
    if due:
        conn.execute(SQL["make_due"], job_rows.listed(sorted(due)))


def _bots(rows: Iterable[_OpenRow]) -> list[int]:
    return sorted({row.bot for row in rows})
