"""Which of the hosts that were seen lately could run a BOT, and why the others could not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.rows import dict_row

from gridbot_client.protocol import Manifest
from gridbot_policies import PolicyError, PolicySet
from gridbot_policies.classad import ParseError, Record, record
from gridbot_server import sql
from gridbot_server.api.access import mine
from gridbot_server.db import Connection
from gridbot_server.dispatch.ads import bot_ad, host_attributes
from gridbot_server.dispatch.layout import BotState
from gridbot_server.explanation import Standing, explanation
from gridbot_server.match import Candidate, Demand, survey
from gridbot_server.services import connection

SQL = sql.load("bots.sql")

# Two thousand hosts take 0.1 s, unless a policy is made to take long.
_MOST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Row:
    """What the database says of a BOT that wants hosts."""

    demand: Demand
    unsent: int
    running: int


def match_of(bot: int) -> dict[str, Any]:
    """Return the `match` document of a BOT. Call it without a connection in hand.

    Policies are evaluated after the connection is given back: that may take a second.
    """
    with connection() as conn:
        queue, candidates = _queue(conn), _candidates(conn)
        wanted = _row(_wants(conn, bot), queue)
    return asdict(survey(candidates, wanted.demand, _patience()))


def explanation_of(bot: int, state: str) -> dict[str, Any]:
    """Return the document that explains how the known hosts suit a BOT."""
    with connection() as conn:
        queue, candidates = _queue(conn), _candidates(conn)
        wanted, others = _wants(conn, bot), _rivals(conn, bot)
    row = _row(wanted, queue)
    rivals = [found.demand for other in others if (found := _readable(other, queue))]
    standing = Standing(bot, state, row.unsent, row.running, rivals)
    return explanation(row.demand, candidates, standing, _patience())


def _patience() -> Callable[[], bool]:
    """Return what tells when a request has thought long enough about a policy."""
    until = time.monotonic() + _MOST_SECONDS
    return lambda: time.monotonic() > until


def _queue(conn: Connection) -> Record:
    row = conn.execute(SQL["queue"]).fetchone()
    assert row is not None, "it counts"
    return record({"BOTsInQueue": row[0], "JobsInQueue": row[1]})


def _candidates(conn: Connection) -> list[Candidate]:
    found = []
    for row in conn.execute(SQL["hosts_seen"], {"mine": mine()}):
        host, said, owner_name, owner, accepts, grid, error_rate, today, turnaround, cpu = row[:10]
        known = {
            "Owner": owner_name,
            "Grid": grid,
            "ErrorRate": error_rate,
            "JobsToday": today,
            "MeanTurnaround": turnaround,
            "RecentCpuTime": cpu,
        }
        ad = host_attributes(said, known, running=0)
        found.append(Candidate(host, ad, owner, accepts, *row[10:]))
    return found


def _wants(conn: Connection, bot: int) -> Mapping[str, Any]:
    with conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(SQL["wants"], {"bot": bot}).fetchone()
    assert row is not None, "the caller has seen the BOT"
    return row


def _rivals(conn: Connection, bot: int) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(SQL["rivals"], {"bot": bot}).fetchall()


def _readable(row: Mapping[str, Any], queue: Record) -> _Row | None:
    """Return another BOT; None if its policy was stored by a version that read it otherwise."""
    try:
        return _row(row, queue)
    except (ParseError, PolicyError):
        return None


def _row(row: Mapping[str, Any], queue: Record) -> _Row:
    now = time.time()
    demand = Demand(
        owner=row["owner"],
        owner_name=row["owner_name"],
        signed=row["signed"],
        manifest=Manifest.from_text(row["manifest"]),
        policies=PolicySet.parse(row["policy"]),
        ad=bot_ad(_state(row), row["name"], row["owner_name"], row["signed"], now),
        queue=queue,
        now=now,
    )
    return _Row(demand, row["unsent"], row["running"])


def _state(row: Mapping[str, Any]) -> BotState:
    return BotState(
        bot=row["id"],
        version=row["policy_version"],
        owner=row["owner"],
        size=row["size"],
        fresh_unsent=row["unsent"],
        copies_unsent=0,  # the ad has the sum of both
        running=row["running"],
        done=row["done"],
        failed=row["failed"],
        tail=row["tail"],
        created_at=row["created_at"],
        mean_turnaround=row["mean_turnaround"],
    )
