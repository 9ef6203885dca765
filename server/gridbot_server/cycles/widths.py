"""Lets widths follow verdicts: `matching/width.py` says how, this writes it down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gridbot_server.cycles.job import Decision, Job, Rules
from gridbot_server.matching.width import WidthChange
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch

SQL = sql.load("cycles.sql")


class _Crew(NamedTuple):
    """Who answers for a host, and whether its width is known."""

    host: int
    crew: str
    is_known: bool


def forget(
    conn: Connection,
    jobs: Mapping[JobId, Job],
    decisions: Mapping[JobId, Decision],
    rules: Mapping[int, Rules],
) -> None:
    """Forget replicas that count against a width no more: they are judged, or nobody waits.

    What one host alone answered is not judged yet, nor what strangers agree on of whom none is
    trusted; else hosts that collude and answer at once could take a whole BOT.
    """
    rows = [
        {"bot": name.bot, "seq": name.seq, "replica": replica}
        for name, decision in decisions.items()
        if rules[name.bot].among_strangers
        for replica in _settled(jobs[name], decision)
    ]
    if rows:
        conn.execute(SQL["forget_unjudged"], {"replicas": encode(rows)})


def _settled(job: Job, decision: Decision) -> Iterable[int]:
    is_over = job.has_outcome or decision.finishes
    is_proven = decision.is_backed and len(decision.provisional) > 1
    believed = decision.provisional if is_proven else ()
    return {*decision.valid, *believed, *(job.leased if is_over else ())}


def widen_crews(conn: Connection, changes: Mapping[int, WidthChange]) -> None:
    """WidthChange the widths of the crews of hosts as those of the hosts."""
    if not changes:
        return
    of_crews: dict[str, WidthChange] = {}
    crews = fetch(conn, _Crew, SQL["crews"], {"hosts": list(changes)})
    for item in crews:
        change, known = changes[item.host], of_crews.get(item.crew, WidthChange())
        factor = max(1e-6, known.factor * change.factor)
        of_crews[item.crew] = WidthChange(factor, known.growth + change.growth)
    if new := sorted({item.crew for item in crews if not item.is_known}):
        conn.execute(SQL["meet_crews"], {"names": new})
    rows = [{"name": name, **change._asdict()} for name, change in of_crews.items()]
    conn.execute(SQL["widen_crews"], {"crews": encode(rows)})
