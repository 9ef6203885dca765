"""Which of the hosts that were seen lately could run a BOT, and why the others could not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg.rows import dict_row

from gridbot_client.protocol.messages import Manifest
from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import ParseError, Record, record
from gridbot_server.api.access import mine
from gridbot_server.buffer.layout import BotSnapshot
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http.services import connection
from gridbot_server.matching.ads import bot_ad, host_attributes
from gridbot_server.matching.explanation import Standing, explanation, host_explanation
from gridbot_server.matching.hosts import Candidate, Demand, survey
from gridbot_server.matching.stock_platforms import stock_platforms
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

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
        queue, candidates = queue_ad(conn), _candidates(conn)
        wanted = _row(_wants(conn, bot), queue)
    return asdict(survey(candidates, wanted.demand, _patience()))


def explanation_of(bot: int, state: str, host: str | None = None) -> dict[str, Any]:
    """Return the document that explains how the known hosts suit a BOT, or one of them alone.

    `host` is its number or its name.  Raises ObjectNotFound for one that is unknown to the asker.
    """
    with connection() as conn:
        queue, candidates = queue_ad(conn), _candidates(conn, host)
        wanted, others = _wants(conn, bot), _rivals(conn, bot)
    row = _row(wanted, queue)
    rivals = [found.demand for other in others if (found := _readable(other, queue))]
    standing = Standing(bot, state, row.unsent, row.running, rivals)
    if host is None:
        return explanation(row.demand, candidates, standing, _patience())
    return host_explanation(row.demand, _clients_of(host, candidates), standing, _patience())


def _clients_of(host: str, found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Make sure that the clients that were found for a number or a name are of one host."""
    numbers = sorted({client.host for client in found})
    if not numbers:
        raise ObjectNotFound(f"no host {host[:100]!r} of which you may know has asked for work")
    if len(numbers) > 1:
        listed = ", ".join(map(str, numbers[:10]))
        raise RequestError(f"several hosts are called {host[:100]!r}; give a number: {listed}")
    return found


def _patience() -> Callable[[], bool]:
    """Return what tells when a request has thought long enough about a policy."""
    until = time.monotonic() + _MOST_SECONDS
    return lambda: time.monotonic() > until


def queue_ad(conn: Connection) -> Record:
    """Return the Queue ad."""
    row = conn.execute(SQL["queue"]).fetchone()
    assert row is not None, "it counts"
    return record({"BOTsInQueue": row[0], "JobsInQueue": row[1]})


def _candidates(conn: Connection, named: str | None = None) -> list[Candidate]:
    found = []
    for row in conn.execute(SQL["hosts_seen"], {"mine": mine(), "host": named}):
        host, said, owner_name, owner, accepts, grid, dedicated, venue, *measured = row[:12]
        error_rate, today, turnaround, cpu = measured
        known = {
            "Owner": owner_name,
            "Grid": grid,
            "IsPilot": grid is not None,
            "IsDedicated": dedicated,
            "Venue": venue or None,
            "ErrorRate": error_rate,
            "JobsToday": today,
            "MeanTurnaround": turnaround,
            "RecentCpuTime": cpu,
        }
        ad = host_attributes(said, known, running=0)
        found.append(Candidate(host, ad, owner, accepts, *row[12:]))
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
    except (ParseError, SemanticError):
        return None


def _row(row: Mapping[str, Any], queue: Record) -> _Row:
    now = time.time()
    manifest = Manifest.from_text(row["manifest"])
    demand = Demand(
        bot=row["id"],
        owner=row["owner"],
        owner_name=row["owner_name"],
        signed=row["signed"],
        manifest=manifest,
        policies=PolicySet.parse(row["policy"]),
        ad=bot_ad(state_of(row), row["name"], row["owner_name"], row["signed"], now),
        queue=queue,
        now=now,
        stock_platforms=stock_platforms(manifest) if row["signed_for_boinc"] else (),
        boinc_unsuitable=row["boinc_unsuitable"],
    )
    return _Row(demand, row["unsent"], row["running"])


def state_of(row: Mapping[str, Any]) -> BotSnapshot:
    """Return the state of a BOT, of which one of the queries gave a row."""
    return BotSnapshot(
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
