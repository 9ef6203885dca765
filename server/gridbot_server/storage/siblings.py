"""What must be known of a job's other replicas before a further copy is made, or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode
from gridbot_server.storage.states import FAILURES, GIVEN_BACK

SQL = sql.load("siblings.sql")


def describe(
    conn: Connection, jobs: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return what is known of each job's replicas, those in progress with their hosts' statistics.

    Hosts go with their owners: `holders` have a replica or an output of it, `failed` let it fail.
    """
    listed = encode([{"bot": bot, "seq": seq} for bot, seq in jobs])
    values = {"jobs": listed, "given_back": list(GIVEN_BACK), "failures": list(FAILURES)}
    rows = conn.execute(SQL["siblings"], values).fetchall()
    hosts = _hosts(conn, sorted({row[4] for row in rows}))
    details: dict[tuple[int, int], dict[str, Any]] = {
        job: {"holders": [], "failed": [], "replicas": []} for job in jobs
    }
    for bot, seq, replica, what, host, owner, sent_at in rows:
        detail = details[bot, seq]
        whose = detail["failed" if what == "failed" else "holders"]
        if [host, owner] not in whose:
            whose.append([host, owner])
        if what == "leased":
            detail["replicas"].append(
                {"replica": replica, "sent_at": sent_at, "host": hosts.get(host, {})}
            )
    return details


def _hosts(conn: Connection, hosts: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not hosts:
        return {}
    names = (
        "Name", "Owner", "ErrorRate", "MeanTurnaround", "JobsToday", "Grid", "IsPilot",
    )  # fmt: skip
    rows = conn.execute(SQL["hosts"], {"hosts": list(hosts)})
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}
