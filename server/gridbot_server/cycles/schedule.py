"""Every cycle of a server, and how often it makes a pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg

from gridbot_client.boot import since_boot
from gridbot_server.credit import export
from gridbot_server.cycles import (
    checkpoints,
    collector,
    deadline,
    gangs,
    live_output,
    parts,
    password_links,
    replication,
    retention,
    transitioner,
)
from gridbot_server.cycles.comparing import Comparing
from gridbot_server.cycles.notices import cycle as notices
from gridbot_server.cycles.silence import PASS_SECONDS, Silence
from gridbot_server.cycles.storages.cycle import StorageTurns
from gridbot_server.history import sums
from gridbot_server.matching.spending import Spending
from gridbot_server.metrics.traces import TracedReplicas, Tracing
from gridbot_server.settings import Settings
from gridbot_server.storage import db, growing, sql, store_record
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_values

log = logging.getLogger(__name__)

SQL = sql.load("cycles.sql")

_SELDOM_SECONDS = 10.0  # between passes of a cycle that is called when it is due

Cycle = Callable[[db.PostgresConnection], int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One cycle: what it does, how often, and whether it goes on at once while it finds much."""

    name: str
    seconds: float  # between passes
    cycle: Cycle
    goes_on: bool = True
    close: Callable[[], None] = lambda: None  # when no pass will follow


def transitions(settings: Settings) -> Schedule:
    """The transitioner, of which each process runs one, for its part of the BOTs."""
    division, tracing = parts.Division(), Tracing.of(settings)
    traced = None if tracing is None else TracedReplicas(tracing)
    # A pass has its price however little it finds: some jobs at once, and nobody waits long.
    return Schedule(
        "transitioner",
        0.2,
        lambda conn: transitioner.run_once(conn, division.part(conn), traced=traced),
        close=lambda: None if tracing is None else tracing.close(),
    )


def schedules(settings: Settings) -> list[Schedule]:
    """Every cycle of the server but the transitioner, for the process that leads."""
    spending, silence = Spending(), Silence(settings.silent_seconds)
    deadlines = deadline.DeadlineCycle()
    watch = notices.ServerWatch(lambda: notices.trouble_of(settings))
    storages = StorageTurns(settings)
    comparing = Comparing(
        settings.open_store(),
        settings.comparison_workers,
        settings.run / "comparisons",
    )
    return [
        Schedule("comparison", 0.2, comparing.run_once, close=comparing.close),
        Schedule("gangs", _SELDOM_SECONDS, gangs.run_once),
        Schedule(
            "deadline",
            _SELDOM_SECONDS,
            lambda conn: deadlines.run_once(conn, since_boot()),
        ),
        Schedule(
            "replication",
            1.0,
            lambda conn: replication.run_once(conn, time.time(), spending),
            False,
        ),
        Schedule(
            "silence",
            PASS_SECONDS,
            lambda conn: silence.run_once(conn, since_boot()),
            False,
        ),
        Schedule("sweep", _SELDOM_SECONDS, deadline.sweep_cancelled),
        Schedule(
            "checkpoints",
            10.0,
            lambda conn: checkpoints.run_once(conn, settings.open_store(), datetime.now(UTC)),
        ),
        Schedule("storages", 2.0, storages.run_once, False),
        Schedule("deletion", 1.0, retention.run_once, False),  # half of the time at most
        Schedule("live output", 10.0, live_output.run_once, False),
        Schedule("retention", 60.0, lambda conn: retain(settings, conn), False),
        Schedule(
            "store",
            60.0,
            lambda conn: store_record.keep(conn, settings.open_store()),
            False,
            close=lambda: keep_store_record(settings),
        ),
        Schedule("history", 2.0, sums.collect),
        Schedule("sums", 20.0, sums.run_once, False),
        Schedule("notices", 2.0, lambda conn: notices.run_once(conn, settings), False),
        Schedule(
            "password links", 2.0, lambda conn: password_links.run_once(conn, settings), False
        ),
        Schedule("watch", 30.0, watch.run_once, False),
        Schedule("purger", 600.0, lambda conn: purge(settings, conn), False),
        Schedule(
            "statistics",
            min(60.0, settings.statistics_seconds),
            lambda conn: export_statistics(settings, conn),
            False,
        ),
    ]


def due(conn: Connection) -> Collection[str]:
    """Return the cycles that are to be called: what they look for is seldom there, and is now."""
    return fetch_values(conn, str, SQL["due"])


def purge(settings: Settings, conn: db.PostgresConnection) -> int:
    """Remove open submissions and partial uploads of yesterday, and pilots that are over."""
    store = settings.open_store()
    removed = store.purge_partials(store.now())
    with conn.transaction():
        removed += conn.execute(SQL["purge_open"]).rowcount
        removed += conn.execute(SQL["purge_pilots"]).rowcount
        return removed + conn.execute(SQL["purge_keys"]).rowcount


def retain(settings: Settings, conn: db.PostgresConnection) -> int:
    """Delete BOTs that were kept long enough, groups without a BOT, and a part of the files that
    nothing refers to.

    Growing BOTs that nobody has used for long are closed.
    """
    store, days = settings.open_store(), settings.keep_ended_days
    deleted = retention.delete_kept_too_long(conn, days) if days else 0
    closed = growing.close_idle(conn)
    emptied = retention.remove_empty_groups(conn)
    return closed + deleted + emptied + collector.run_once(conn, store, store.now())


def keep_store_record(settings: Settings) -> None:
    """Let the store know how far the database has come, when no further minute follows."""
    try:
        with db.connect(settings.dsn_or_embedded, "gridbot-store", autocommit=True) as conn:
            store_record.keep(conn, settings.open_store())
    except psycopg.OperationalError as error:
        log.warning("the store learns at the next start how far the database is: %s", error)


def export_statistics(settings: Settings, conn: db.PostgresConnection) -> int:
    """Write the statistics anew when they are due, whenever the server was started."""
    period = float(settings.statistics_seconds)
    return export.run_once(conn, settings.statistics, period, time.time())
