"""What there is of a BOT that runs, and of the hosts, as of one moment.

All is read in one transaction that writes nothing, each statement of it bounded in rows and time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.errors import QueryCanceled

from gridbot_client.protocol.messages import Manifest
from gridbot_server.errors import Conflict, ServerBusy
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("prediction.sql")

MOST_CLIENTS = 2000
MOST_JOBS = 20_000  # that were begun and are left
MOST_OTHERS = 50  # other BOTs
_MOST_RUNS = 2000
_MOST_SESSIONS = 20_000
_MOST_LEASES = 20_000  # of other BOTs

Snapshot = dict[str, Any]  # JSON: "bot", and a list of rows for each other statement


def take_snapshot(conn: Connection, bot: int) -> Snapshot:
    """Read what there is of a BOT that the caller has seen.

    Raises Conflict with the reason why its end cannot be predicted.
    """
    try:
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            conn.execute("SET LOCAL statement_timeout = '5s'")
            return _read(conn, bot)
    except QueryCanceled:
        raise ServerBusy("the database is too busy to predict anything now") from None


def _read(conn: Connection, bot: int) -> Snapshot:
    (found,) = rows.rows_by_name(conn, SQL["bot"], {"bot": bot})
    if why := why_unpredictable(found):
        raise Conflict(f"the end of BOT {bot} cannot be predicted: {why}")
    of_bot = {"bot": bot, "most": MOST_JOBS + 1}
    begun = {name: rows.rows_by_name(conn, SQL[name], of_bot) for name in ("leases", "copies")}
    begun["pending"] = rows.rows_by_name(conn, SQL["pending"], of_bot)
    jobs = sorted({item["seq"] for items in begun.values() for item in items})
    of_jobs = {**of_bot, "jobs": jobs, "round": found["round"]}
    begun["ended"] = rows.rows_by_name(conn, SQL["ended"], of_jobs)
    if max(len(jobs), *map(len, begun.values())) > MOST_JOBS:
        raise Conflict(
            f"the end of BOT {bot} cannot be predicted: more than {MOST_JOBS:,} of its jobs are in"
            " progress, or of their replicas, too many to simulate"
        )
    clients = rows.rows_by_name(conn, SQL["clients"], {"bot": bot, "most": MOST_CLIENTS})
    others = _others(conn, found)
    held = {
        "bots": [other["id"] for other in others],
        "clients": [client["id"] for client in clients],
        "most": _MOST_LEASES,
    }
    return {
        "bot": found,
        **begun,
        "kinds": rows.rows_by_name(conn, SQL["kinds"], {"bot": bot, "jobs": jobs}),
        "runs": rows.rows_by_name(conn, SQL["runs"], {"bot": bot, "most": _MOST_RUNS}),
        "clients": clients,
        "sessions": rows.rows_by_name(conn, SQL["sessions"], {"most": _MOST_SESSIONS}),
        "others": others,
        "others_leases": rows.rows_by_name(conn, SQL["others_leases"], held),
    }


def _others(conn: Connection, bot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Other BOTs as load: what their replicas take, and nothing of what they run."""
    wanted = {"bot": bot["id"], "owner": bot["owner"], "most": MOST_OTHERS}
    others = rows.rows_by_name(conn, SQL["others"], wanted)
    for other in others:
        resources = Manifest.from_text(other.pop("manifest")).resources
        other["resources"] = {"cpus": resources.cpus, "memory_mb": resources.memory_mb}
    return others


def why_unpredictable(bot: Mapping[str, Any]) -> str:
    """Say why nobody can know when a BOT ends; "" if one may try.  Pure.

    `bot` is the row of the statement `bot`.
    """
    number, state = bot["id"], bot["state"]
    if state != "running":
        return f"it is {state}" + (": its submission is not complete" if state == "open" else "")
    if bot["growing"]:
        return f"it grows; it ends once it is closed: gridbot bot close {number}"
    if bot["held"]:
        return f"it is held; once it is resumed, it goes on: gridbot bot resume {number}"
    if bot["suspended"]:
        return "it is suspended until its policy is changed"
    if bot["waits_for_signature"]:
        return f"it waits for a signature: gridbot app sign {number}"
    if bot["together"] > 1:
        return "its jobs run together, which is not simulated"
    return ""
