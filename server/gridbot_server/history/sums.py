"""The cycles of the history: collect, note the server's figures, sum, remove what is too old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gridbot_server import metrics
from gridbot_server.history import notable
from gridbot_server.history.steps import DAY, HOUR, KEPT, MINUTE
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch, has_row

SQL = sql.load("history.sql")
OPERATION = sql.load("operation.sql")

# No transaction lasts so long (`db.TIMEOUTS`): none is left that could add to what is that old.
SETTLED = timedelta(minutes=6)
# Sums of one pass, after a time in which none were made.
_MOST_STEPS = 24
_ROWS = 20_000  # that are removed in one statement

_OF = {HOUR: MINUTE, DAY: HOUR}  # of which steps the sums are made
_NEXT = {of: step for step, of in _OF.items()}
_SUMS = ("sum_bots", "sum_failures", "sum_server")
_PURGES = ("purge_bots", "purge_failures", "purge_server")


class _Due(NamedTuple):
    """Steps whose sums are due, from `until` on."""

    step: int
    until: int
    steps: int


class _Figure(NamedTuple):
    """A figure of the server's."""

    name: str
    label: str
    value: float


class _Lag(NamedTuple):
    """How long the oldest work that is due to a cycle has waited."""

    cycle: str
    seconds: float


class _Collected(NamedTuple):
    """How many notes were collected, and what of them happened on a grid, for a reason."""

    notes: int
    grid: str
    reason: str
    sent: int
    succeeded: int
    failed_replicas: int
    expired: int
    relinquished: int
    cancelled: int
    done: int
    failed: int
    cpu_seconds: float


class _Totals(NamedTuple):
    """How much there is to do."""

    bots_running: int
    jobs_unsent: int
    replicas_running: int
    jobs_undecided: int
    jobs_set_aside: int


def collect(conn: Connection, limit: int = _ROWS) -> int:
    """Add what writers noted to the minutes of the history; return how many notes there were.

    The metrics are told what that comes to: here, where each note is seen once and has been
    committed, and no host's request waits for it.
    """
    found = fetch(conn, _Collected, SQL["collect"], {"limit": limit})
    for item in found:
        metrics.count_happenings(item.grid, item._asdict())
        metrics.count_failures(item.reason, item.failed_replicas)
    return found[0].notes if found else 0


def run_once(conn: Connection, settled: timedelta = SETTLED) -> int:
    """Bring the history up to date; return how many rows were removed."""
    with conn.transaction():
        if not has_row(conn, SQL["is_looked_at"]):
            _look(conn)
            notable.end_sessions(conn)
            notable.forget(conn)
    while collect(conn) == _ROWS:  # else there would be no end while hosts report
        pass
    _make_sums(conn, settled)
    return _purge(conn)


def _look(conn: Connection) -> None:
    """Note the figures of this minute."""
    (totals,) = fetch(conn, _Totals, SQL["totals"])
    figures = [_Figure(name, "", value) for name, value in totals._asdict().items()]
    figures += fetch(conn, _Figure, SQL["hosts"])
    for lag in fetch(conn, _Lag, OPERATION["lags"]):
        figures.append(_Figure("lag_seconds", lag.cycle, min(lag.seconds, float(DAY))))
    conn.execute(SQL["look"], {"figures": encode([figure._asdict() for figure in figures])})


def _make_sums(conn: Connection, settled: timedelta) -> None:
    """Make the hours, then the days, that are due: hours first, since days are made of them."""
    for step in (HOUR, DAY):
        with conn.transaction():
            due = {item.step: item for item in fetch(conn, _Due, SQL["due"], {"settled": settled})}
            if step not in due:
                continue
            begin = due[step].until
            end = begin + step * min(due[step].steps, _MOST_STEPS)
            if step == DAY and HOUR in due:
                continue  # not all hours of it are made
            values = {"step": step, "of": _OF[step], "begin": begin, "end": end}
            for name in _SUMS:
                conn.execute(SQL[name], values)
            conn.execute(SQL["note_sums"], {"step": step, "end": end})


def _purge(conn: Connection) -> int:
    """Remove the short steps of long ago whose sums are made."""
    removed = 0
    for step, seconds in KEPT.items():
        before = datetime.now(UTC) - timedelta(seconds=seconds)
        for name in _PURGES:
            values = {"step": step, "next": _NEXT[step], "before": before, "limit": _ROWS}
            removed += conn.execute(SQL[name], values).rowcount
    return removed
