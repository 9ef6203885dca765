"""Writes to rows that several BOTs have in common: of pilots, hosts, crews and volunteers.

A batch changes them all together, in one order, shortly before its commit.  So transitioners that
settle different BOTs wait for each other only then, and never in a circle.  Changes add and
multiply, so that none of two at once is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gridbot_server.credit import ledger
from gridbot_server.cycles import widths
from gridbot_server.cycles.job import Rules
from gridbot_server.cycles.verdicts import NOT_ENDED, NewVerdict
from gridbot_server.matching.width import WidthChange
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode
from gridbot_server.storage.states import RELINQUISHED

SQL = sql.load("cycles.sql")


def write(
    conn: Connection,
    verdicts: Sequence[NewVerdict],
    rules: Mapping[int, Rules],
    agreeing: Mapping[int, int],
    payment: ledger.Payment | None,
) -> None:
    """Count new verdicts for pilots, hosts and crews, and pay what was earned.

    `agreeing` says how many answers of a host others agree with, before their jobs are over.
    """
    if verdicts:
        _tally_pilots(conn, verdicts, rules)
    changes = _width_changes(verdicts, rules)
    for host, growth in agreeing.items():
        known = changes.get(host, WidthChange())
        changes[host] = WidthChange(known.factor, known.growth + growth)
    if verdicts or changes:
        _rate_hosts(conn, verdicts, changes)
        widths.widen_crews(conn, changes)
    if payment:
        ledger.pay(conn, payment)


def _tally_pilots(
    conn: Connection, verdicts: Iterable[NewVerdict], rules: Mapping[int, Rules]
) -> None:
    """Count what clients did and for how long, for those that are pilots.

    A replica that never came back is nobody's failure.
    """
    clients: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"good": 0, "bad": 0, "core_seconds": 0.0, "failure": ""}
    )
    for item in verdicts:
        clients[item.client]["core_seconds"] += item.wall_seconds * rules[item.bot].cpus
        if item.valid:
            clients[item.client]["good"] += 1
        elif item.reason not in NOT_ENDED:
            clients[item.client]["bad"] += 1
            clients[item.client]["failure"] = item.reason
    if clients:
        rows = [{"id": client, **tally} for client, tally in sorted(clients.items())]
        conn.execute(SQL["tally_pilots"], {"clients": encode(rows)})


def _width_changes(
    verdicts: Iterable[NewVerdict], rules: Mapping[int, Rules]
) -> dict[int, WidthChange]:
    """What verdicts on work for strangers do to the widths of hosts.

    What a grid or its host's user took back says nothing of the host.
    """
    changes: dict[int, WidthChange] = {}
    for item in verdicts:
        bot = rules[item.bot]
        if bot.among_strangers and bot.owner != item.owner and item.reason not in RELINQUISHED:
            is_wrong = not item.valid and not item.reason
            changes[item.host] = changes.get(item.host, WidthChange()).after(
                valid=item.valid, failed=not (item.valid or is_wrong), wrong=is_wrong
            )
    return changes


def _rate_hosts(
    conn: Connection, verdicts: Iterable[NewVerdict], changes: Mapping[int, WidthChange]
) -> None:
    hosts: dict[int, dict[str, Any]] = defaultdict(
        lambda: {"good": 0, "bad": 0, "cpu": 0.0, "turnaround": 0.0}
    )
    for host in changes:
        hosts[host] = hosts[host]
    for item in verdicts:
        rating = hosts[item.host]
        rating["good" if item.valid else "bad"] += 1
        if item.valid:
            rating["cpu"] += item.cpu_seconds
            rating["turnaround"] += item.turnaround
    unchanged = WidthChange()
    rows = [
        {"id": host, **rating, **changes.get(host, unchanged)._asdict()}
        for host, rating in hosts.items()
    ]
    conn.execute(SQL["rate_hosts"], {"hosts": encode(rows)})
