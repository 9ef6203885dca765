"""The daemons process: runs the cycles, each on its own schedule (APScheduler, `rhythm.py`).

One process of all that share a database leads: it holds an advisory lock, and runs every cycle.
The others wait for that lock, and meanwhile run the transitioner for their part of the BOTs.  Every
write is guarded all the same, so a second leader would do no harm.
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
from gridbot_server.cycles.rhythm import IDLE_SECONDS, Rhythm
from gridbot_server.cycles.schedule import TRANSITIONER, Schedule, schedules, transitions
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
# So much found in one pass calls for the next one at once.  Less waits for its turn: under a steady
# load, passes without a pause would each find very little, at nearly the price of a full one.
_MUCH = 1000

_LISTEN_SECONDS = 0.5  # between two looks at the clock and the connection
# A pass for which reports call does not follow the last one at once, but after a pause that is so
# many times as long as that took: a long one while there is much to do, since the next pass then
# finds more at little more than the price of this one; a short one for who waits for a few jobs.
_REST, _SHORT_REST = 19, 3
_FEW = 16  # found in a pass


class Daemon:
    """Runs one cycle on a connection of its own."""

    def __init__(self, dsn: str, schedule: Schedule, found: Callable[[], None]) -> None:
        self._dsn, self._schedule = dsn, schedule
        self._found = found  # called when a pass has found something
        self._conn: db.PostgresConnection | None = None
        self.rests_until = datetime.now(UTC)  # the next turn that is not in its rhythm

    def run(self) -> None:
        """Make passes until one finds little, and rest in proportion."""
        began = time.monotonic()
        share = _REST if self._run() > _FEW else _SHORT_REST
        rest = min(self._schedule.seconds, share * (time.monotonic() - began))
        self.rests_until = datetime.now(UTC) + timedelta(seconds=rest)

    def close(self) -> None:
        """Let nothing of it be left, once no pass will follow."""
        self._schedule.close()
        if self._conn is not None:
            self._conn.close()

    def _run(self) -> int:
        """The outermost loop, so that nothing ends it; returns how much was found."""
        name, found = self._schedule.name, 0
        try:
            if self._conn is None or self._conn.closed:
                self._conn = db.connect(self._dsn, f"gridbot-{name}", autocommit=True)
            while count := self._schedule.cycle(self._conn):
                found += count
                self._found()
                if count < _MUCH or not self._schedule.goes_on:
                    break
        except psycopg.OperationalError as error:
            log.warning("%s: the database is away: %s", name, str(error).strip())
        except Exception:
            log.exception("%s failed; it goes on at its next turn", name)
        return found


class _Turns(BaseTrigger):  # type: ignore[misc]  # the library has no types
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
                    listed = schedules(settings) if leads else [transitions(settings)]
                    _run_cycles(listed, dsn, conn, stop, leads=leads)
        except psycopg.OperationalError as error:
            log.warning("the database is away: %s", str(error).strip())
            stop.wait(1.0)


def _lead(conn: db.PostgresConnection) -> bool:
    return fetch_value(conn, bool, SQL["lead"], {"lock": _LEADER_LOCK}) is True


def _run_cycles(
    listed: Sequence[Schedule],
    dsn: str,
    conn: db.PostgresConnection,
    stop: threading.Event,
    *,
    leads: bool,
) -> None:
    """Run cycles until told to stop, or this process has become the leader.

    Ends as well when the connection is lost that holds the lock, or waits for it.
    """
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(len(listed))}, timezone="UTC"
    )
    rhythm = Rhythm(time.monotonic)
    hurried = [item.name for item in listed if item.seconds < IDLE_SECONDS]

    def found() -> None:
        if rhythm.is_idle:
            call(scheduler, hurried)
        rhythm.note_find()

    daemons = {item.name: Daemon(dsn, item, found) for item in listed}
    for item in listed:
        scheduler.add_job(
            daemons[item.name].run, _Turns(item.seconds, rhythm), max_instances=1,
            coalesce=True, misfire_grace_time=_DUE_SECONDS, id=item.name,
        )  # fmt: skip
    scheduler.start()
    watch, looks_at = ClockWatch(), 0.0
    try:
        conn.execute(SQL["listen"])
        while not stop.is_set():
            if _was_told_of_reports(conn):
                found()  # by whichever process has their BOT
                turn = max(datetime.now(UTC), daemons[TRANSITIONER].rests_until)
                scheduler.modify_job(TRANSITIONER, next_run_time=turn)
            if time.monotonic() < looks_at:
                continue
            looks_at = time.monotonic() + _LISTEN_SECONDS
            if leads:
                conn.execute("SELECT 1")
            elif _lead(conn):
                return
            if watch.was_set_back():  # no cycle would be due before the old time comes again
                log.warning("the clock was set back: all cycles run now")
                call(scheduler)
    finally:
        scheduler.shutdown(wait=True)
        for daemon in daemons.values():
            daemon.close()


def _was_told_of_reports(leader: db.PostgresConnection) -> bool:
    """Wait a moment for a web process that has taken reports."""
    return any(True for _ in leader.notifies(timeout=_LISTEN_SECONDS, stop_after=1))


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
