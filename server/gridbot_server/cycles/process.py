"""The daemons process: runs the cycles, each on its own schedule (APScheduler, `rhythm.py`).

One process of all that share a database leads: it holds an advisory lock, and runs every cycle.
The others wait for that lock, and meanwhile run the transitioner for their part of the BOTs.  Every
write is guarded all the same, so a second leader would do no harm.

Reports call the transitioner, many times a second under load.  So the thread that hears of them
makes its passes itself, and while it rests it hears nothing: a pass takes all that has come.  The
same thread looks at what is due, at the clock and at the lock, so that a long pass, or a database
that lets it wait, delays these; the cycles keep their own rhythm meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

import psycopg
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from gridbot_server.cycles import transitioner
from gridbot_server.cycles.clock import ClockWatch
from gridbot_server.cycles.rhythm import IDLE_SECONDS, MUCH, Rhythm, Turns
from gridbot_server.cycles.schedule import Schedule, due, schedules, transitions
from gridbot_server.settings import Settings
from gridbot_server.storage import db, sql
from gridbot_server.storage.rows import fetch_value
from gridbot_server.supervision.entry import run_process

log = logging.getLogger(__name__)
# It warns whenever a pass takes longer than its interval, which is how a busy cycle works.
logging.getLogger("apscheduler").setLevel(logging.ERROR)

SQL = sql.load("cycles.sql")

_LEADER_LOCK = 7_216_004_884
_DUE_SECONDS = 3600  # a pass that could not start in time is late, not void
_LOOK_SECONDS = 0.5  # between two looks at what is due, the clock and the connection


class Daemon:
    """Runs one cycle on a connection of its own."""

    def __init__(self, dsn: str, schedule: Schedule, found: Callable[[], None]) -> None:
        self._dsn, self._schedule = dsn, schedule
        self._found = found  # called when a pass has found something
        self._conn: db.PostgresConnection | None = None

    def run(self) -> None:
        """Make passes until one finds little."""
        while self.make_pass() >= MUCH and self._schedule.goes_on:
            pass

    def make_pass(self) -> int:
        """Return how much a pass has found; an error is logged, so that no cycle ends with it."""
        name = self._schedule.name
        try:
            if self._conn is None or self._conn.closed:
                self._conn = db.connect(self._dsn, f"gridbot-{name}", autocommit=True)
            found = self._schedule.cycle(self._conn)
        except psycopg.OperationalError as error:
            log.warning("%s: the database is away: %s", name, str(error).strip())
            return 0
        except Exception:
            log.exception("%s failed; it goes on at its next turn", name)
            return 0
        if found:
            self._found()
        return found

    def close(self) -> None:
        """Let nothing of it be left, once no pass will follow."""
        self._schedule.close()
        if self._conn is not None:
            self._conn.close()


class _Trigger(BaseTrigger):  # type: ignore[misc]  # the library has no types
    """When the scheduler makes the next pass of a cycle."""

    def __init__(self, seconds: float, rhythm: Rhythm) -> None:
        self._seconds, self._rhythm = seconds, rhythm

    def get_next_fire_time(self, _previous: datetime | None, now: datetime) -> datetime:
        return now + timedelta(seconds=self._rhythm.pause(self._seconds))


def run(settings: Settings, stop: threading.Event) -> None:
    """Run the transitioner for a part of the BOTs, as the leader all cycles, until told to stop."""
    dsn = settings.dsn_or_embedded
    while not stop.is_set():
        try:
            with db.connect(dsn, "gridbot-leader", autocommit=True) as conn:
                while not stop.is_set():
                    leads = _lead(conn)
                    if leads:
                        log.info("leading the cycles")
                        transitioner.try_again(conn)
                    others = schedules(settings) if leads else []
                    _run_cycles(transitions(settings), others, dsn, conn, stop)
        except psycopg.OperationalError as error:
            log.warning("the database is away: %s", str(error).strip())
            stop.wait(1.0)


def _lead(conn: db.PostgresConnection) -> bool:
    return fetch_value(conn, bool, SQL["lead"], {"lock": _LEADER_LOCK}) is True


class _Scheduled:
    """The cycles that a leader runs beside its transitioner, each in a thread of a scheduler."""

    def __init__(self, cycles: Sequence[Schedule], dsn: str) -> None:
        self.rhythm = Rhythm(time.monotonic)
        self._hurried = [item.name for item in cycles if item.seconds < IDLE_SECONDS]
        self._daemons = {item.name: Daemon(dsn, item, self.note_find) for item in cycles}
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(max(1, len(cycles)))}, timezone="UTC"
        )
        for item in cycles:
            self._scheduler.add_job(
                self._daemons[item.name].run, _Trigger(item.seconds, self.rhythm),
                max_instances=1, coalesce=True, misfire_grace_time=_DUE_SECONDS, id=item.name,
            )  # fmt: skip
        self._scheduler.start()

    def note_find(self) -> None:
        """Let cycles that wait for long in an idle server run now: something has been found."""
        if self.rhythm.is_idle:
            self.call(self._hurried)
        self.rhythm.note_find()

    def call(self, names: Collection[str] | None = None) -> None:
        """Let cycles of these names, or all, run now."""
        call(self._scheduler, names)

    def close(self) -> None:
        """End all, once their passes have ended."""
        self._scheduler.shutdown(wait=True)
        for daemon in self._daemons.values():
            daemon.close()


def _run_cycles(
    own: Schedule,
    others: Sequence[Schedule],
    dsn: str,
    conn: db.PostgresConnection,
    stop: threading.Event,
) -> None:
    """Run its `own` transitioner until told to stop, or this process has become the leader.

    A leader has `others`, too.  Ends as well when the connection is lost that holds the lock, or
    waits for it.
    """
    scheduled = _Scheduled(others, dsn)
    decides = Daemon(dsn, own, scheduled.note_find)
    turns, watch, looks_at = Turns(own.seconds, scheduled.rhythm), ClockWatch(), 0.0
    try:
        conn.execute(SQL["listen"])
        while not stop.is_set():
            _await_turn(turns, looks_at, conn, stop, scheduled.note_find)
            began = time.monotonic()
            if turns.due_at <= began:
                count = decides.make_pass()
                turns.note_pass(began, time.monotonic(), count)
            if time.monotonic() < looks_at:
                continue
            looks_at = time.monotonic() + _LOOK_SECONDS
            if others:
                scheduled.call(due(conn))
            elif _lead(conn):
                return
            if watch.was_set_back():  # no cycle would be due before the old time comes again
                log.warning("the clock was set back: all cycles run now")
                scheduled.call()
    finally:
        scheduled.close()
        decides.close()


def _await_turn(
    turns: Turns,
    looks_at: float,
    conn: db.PostgresConnection,
    stop: threading.Event,
    found: Callable[[], None],
) -> None:
    """Wait until the transitioner's turn, or the next look; reports call it earlier."""
    seconds = max(0.0, min(turns.due_at, looks_at) - time.monotonic())
    if turns.is_called:
        stop.wait(seconds)
        seconds = 0.0
    if _was_told_of_reports(conn, seconds) and not turns.is_called:
        found()  # by whichever process has their BOT
        turns.call()


def _was_told_of_reports(leader: db.PostgresConnection, seconds: float) -> bool:
    """Wait for a web process that has taken reports; what several say is heard as one."""
    return any(True for _ in leader.notifies(timeout=seconds, stop_after=1))


def call(scheduler: BaseScheduler, names: Collection[str] | None = None) -> None:
    """Let jobs of a scheduler, or all, run now, and then in their own rhythm."""
    for job in scheduler.get_jobs():
        if names is None or job.id in names:
            job.modify(next_run_time=datetime.now(UTC))


def main() -> None:
    """Run the daemons of the server whose data directory is given."""
    run_process("daemons", run)


if __name__ == "__main__":
    main()
