"""How many of the hosts that were seen lately could run a BOT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from psycopg.rows import dict_row

from gridbot_client.protocol import Manifest
from gridbot_policies import PolicySet
from gridbot_policies.classad import Record, record
from gridbot_server import sql
from gridbot_server.db import Connection
from gridbot_server.dispatch.ads import host_attributes
from gridbot_server.match import Candidate, Demand, survey

SQL = sql.load("bots.sql")

_ANY_QUEUE = record({"BOTsInQueue": 1, "JobsInQueue": 1})


def match_of(conn: Connection, bot: int) -> dict[str, Any]:
    """Return the `match` document of a BOT."""
    return asdict(survey(_candidates(conn), _demand(conn, bot), _ANY_QUEUE))


def _candidates(conn: Connection) -> Iterator[Candidate]:
    for row in conn.execute(SQL["hosts_seen"]):
        host, said, owner_name, owner, accepts, grid, error_rate, today, turnaround, cpu = row
        known = {
            "Owner": owner_name,
            "Grid": grid,
            "ErrorRate": error_rate,
            "JobsToday": today,
            "MeanTurnaround": turnaround,
            "RecentCpuTime": cpu,
        }
        yield Candidate(host, host_attributes(said, known, running=0), owner, accepts)


def _demand(conn: Connection, bot: int) -> Demand:
    with conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(SQL["wants"], {"bot": bot}).fetchone()
    assert row is not None, "the caller has seen the BOT"
    return Demand(
        owner=row["owner"],
        owner_name=row["owner_name"],
        signed=row["signed"],
        manifest=Manifest.from_text(row["manifest"]),
        policies=PolicySet.parse(row["policy"]),
        ad=_bot_ad(row),
    )


def _bot_ad(row: Mapping[str, Any]) -> Record:
    left = row["size"] - row["done"] - row["failed"]
    return record(
        {
            "Id": row["id"],
            "Name": row["name"],
            "Owner": row["owner_name"],
            "JobsTotal": row["size"],
            "JobsLeft": left,
            "JobsDone": row["done"],
            "JobsFailed": row["failed"],
            "JobsUnsent": left,
            "JobsRunning": 0,
            "Tail": row["tail"],
            "MeanTurnaround": row["mean_turnaround"],
            "Age": row["age"],
        }
    )
