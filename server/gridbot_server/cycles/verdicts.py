"""Writes verdicts and what BOTs learn from them; for hosts `shared_rows.py` does so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server import metrics
from gridbot_server.cycles.job import Decision, Rules
from gridbot_server.history import notable
from gridbot_server.metrics.traces import TracedReplicas
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import JobId, encode, fetch
from gridbot_server.storage.states import RELINQUISHED, Event

SQL = sql.load("cycles.sql")

# Reasons of replicas whose client did not end them.
NOT_ENDED = frozenset((Event.DEADLINE_PASSED, *RELINQUISHED))

_RECENT_RUNS = 100  # of a BOT, by which the time of its replicas is known


class NewVerdict(NamedTuple):
    """A verdict that was just given."""

    bot: int
    seq: int
    replica: int
    client: int
    host: int
    owner: int
    valid: bool
    reason: str
    cpu_seconds: float
    turnaround: float  # seconds from sending to report, by our clock
    wall_seconds: float  # that it ran, by the host's clock
    lag: float  # seconds since it ended
    first_sent_at: float | None  # s since 1970; null: no first copy


_REPLICA = ("bot", "seq", "replica")
_SLOW = (*_REPLICA, "host", "client", "wall_seconds", "cpu_seconds")


def judge(conn: Connection, decisions: Mapping[JobId, Decision]) -> list[NewVerdict]:
    """Write the verdicts, and what BOTs learn from them; return those that are new."""
    rows = [
        {"bot": bot, "seq": seq, "replica": replica, "valid": valid}
        for (bot, seq), decision in decisions.items()
        for replica, valid in decision.valid.items()
    ]
    if not rows:
        return []
    verdicts = fetch(conn, NewVerdict, SQL["judge"], {"verdicts": encode(rows)})
    _add_turnarounds(conn, verdicts)
    _remember(conn, verdicts)
    return verdicts


def _add_turnarounds(conn: Connection, verdicts: Iterable[NewVerdict]) -> None:
    valid: dict[int, list[NewVerdict]] = defaultdict(list)
    for item in verdicts:
        if item.valid:
            valid[item.bot].append(item)
    if valid:
        sums = [
            {
                "bot": bot,
                "seconds": sum(item.turnaround for item in found),
                "n": len(found),
                "runs": [item.wall_seconds for item in found[:_RECENT_RUNS]],
            }
            for bot, found in valid.items()
        ]
        conn.execute(SQL["add_turnarounds"], {"bots": encode(sums)})


def observe(verdicts: Sequence[NewVerdict], rules: Mapping[int, Rules]) -> None:
    """Let the metrics know how long replicas waited, ran, and were not judged."""
    metrics.VERDICT_LAG.observe_all(max(0.0, item.lag) for item in verdicts)
    metrics.JOB_SECONDS.observe_all(item.wall_seconds for item in verdicts if item.valid)
    metrics.QUEUE_WAIT.observe_all(
        max(0.0, item.first_sent_at - rules[item.bot].created_at)
        for item in verdicts
        if item.first_sent_at is not None
    )


def trace(conn: Connection, verdicts: Iterable[NewVerdict], traced: TracedReplicas) -> None:
    """Tell traces of verdicts that stand."""
    right, wrong = list[ReplicaId](), list[ReplicaId]()
    for item in verdicts:
        (right if item.valid else wrong).append(ReplicaId(item.bot, item.seq, item.replica))
    traced.note_judged(conn, right, wrong)
    traced.tell()


def _remember(conn: Connection, verdicts: Iterable[NewVerdict]) -> None:
    """Keep an example of each failure, and the slowest jobs."""
    examples: dict[tuple[int, str], NewVerdict] = {}
    longest: dict[tuple[int, int], NewVerdict] = {}  # of the answers of each job that agree
    for item in verdicts:
        if item.valid:
            job = item.bot, item.seq
            longest[job] = max(longest.get(job, item), item, key=attrgetter("wall_seconds"))
        elif item.reason and item.reason not in NOT_ENDED:
            examples[item.bot, item.reason] = item
    if examples:
        notable.keep_examples(conn, _picked(_REPLICA, examples.values()))
    of_bots: dict[int, list[NewVerdict]] = defaultdict(list)
    for item in longest.values():
        of_bots[item.bot].append(item)
    if of_bots:
        slowest = [
            item
            for found in of_bots.values()
            for item in nlargest(notable.SLOWEST, found, key=attrgetter("wall_seconds"))
        ]
        notable.keep_slowest(conn, _picked(_SLOW, slowest))


def _picked(names: Sequence[str], items: Iterable[NewVerdict]) -> list[dict[str, Any]]:
    return [{name: getattr(item, name) for name in names} for item in items]
