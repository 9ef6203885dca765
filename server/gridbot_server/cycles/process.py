"""The daemons process: runs the cycles, each on its own schedule (APScheduler, `rhythm.py`).

One process of all that share a database does the work: it holds an advisory lock; the others
wait for it.  Every write is guarded all the same, so a second one would do no harm.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.base import BaseTrigger

from gridbot_server.credit import export
from gridbot_server.cycles import collector, deadline, gangs, replication, retention, transitioner
from gridbot_server.cycles.clock import ClockWatch
from gridbot_server.cycles.comparing import Comparing
from gridbot_server.cycles.notices import cycle as notices
from gridbot_server.cycles.rhythm import IDLE_SECONDS, Rhythm
from gridbot_server.cycles.silence import PASS_SECONDS, Silence
from gridbot_server.history import sums
from gridbot_server.matching.spending import Spending
from gridbot_server.settings import Settings
from gridbot_server.storage import db, growing, sql, store_record
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

Cycle = Callable[[db.PostgresConnection], int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One cycle: what it does, how often, and whether it goes on at once while it finds much."""

    name: str
    seconds: float  # between passes
    cycle: Cycle
    goes_on: bool = True
    close: Callable[[], None] = lambda: None  # when no pass will follow


def schedules(settings: Settings) -> list[Schedule]:
    """Every cycle of the server."""
    spending, silence = Spending(), Silence(settings.silent_seconds)
    deadlines = deadline.DeadlineCycle()
    watch = notices.ServerWatch(lambda: notices.trouble_of(settings))
    comparing = Comparing(
        settings.open_store(),
        settings.comparison_workers,
        settings.run / "comparisons",
    )
    return [
        # A pass has its price however little it finds: some jobs at once, and nobody waits long.
        Schedule("transitioner", 0.2, transitioner.run_once),
        Schedule("comparison", 0.2, comparing.run_once, close=comparing.close),
        Schedule("gangs", 0.5, gangs.run_once),
        Schedule("deadline", 0.5, lambda conn: deadlines.run_once(conn, since_boot())),
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
        Schedule("sweep", 0.5, deadline.sweep_cancelled),
        Schedule("deletion", 1.0, retention.remove_rows, False),
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
        Schedule("watch", 30.0, watch.run_once, False),
        Schedule("purger", 600.0, lambda conn: purge(settings, conn), False),
        Schedule(
            "statistics",
            min(60.0, settings.statistics_seconds),
            lambda conn: export_statistics(settings, conn),
            False,
        ),
    ]


def since_boot() -> float:
    """Return the seconds since this machine's boot, in which it may have slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def purge(settings: Settings, conn: db.PostgresConnection) -> int:
    """Remove open submissions and partial uploads of yesterday, and pilots that are over."""
    store = settings.open_store()
    removed = store.purge_partials(datetime.now(UTC))
    with conn.transaction():
        removed += conn.execute(SQL["purge_open"]).rowcount
        removed += conn.execute(SQL["purge_pilots"]).rowcount
        return removed + conn.execute(SQL["purge_keys"]).rowcount


def retain(settings: Settings, conn: db.PostgresConnection) -> int:
    """Delete BOTs that were kept long enough, and a part of the files that nothing refers to.

    Growing BOTs that nobody has used for long are closed.
    """
    store, days = settings.open_store(), settings.keep_ended_days
    deleted = retention.delete_kept_too_long(conn, days) if days else 0
    closed = growing.close_idle(conn)
    return closed + deleted + collector.run_once(conn, store, datetime.now(UTC))


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
    """Run the cycles as the leader until told to stop."""
    dsn = settings.dsn_or_embedded
    while not stop.is_set():
        try:
            with db.connect(dsn, "gridbot-leader", autocommit=True) as conn:
                if not _lead(conn):
                    stop.wait(1.0)
                    continue
                log.info("leading the cycles")
                _run_cycles(settings, dsn, conn, stop)
        except psycopg.OperationalError as error:
            log.warning("the database is away: %s", str(error).strip())
            stop.wait(1.0)


def _lead(conn: db.PostgresConnection) -> bool:
    return fetch_value(conn, bool, SQL["lead"], {"lock": _LEADER_LOCK}) is True


def _run_cycles(
    settings: Settings, dsn: str, leader: db.PostgresConnection, stop: threading.Event
) -> None:
    """Run until told to stop, or until the connection that holds the lock is lost."""
    listed = schedules(settings)
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(len(listed))}, timezone="UTC"
    )
    rhythm = Rhythm(time.monotonic)
    hurried = [item.name for item in listed if item.seconds < IDLE_SECONDS]

    def found() -> None:
        if rhythm.is_idle:
            call(scheduler, hurried)
        rhythm.note_find()

    transitioner.try_again(leader)
    daemons = {item.name: Daemon(dsn, item, found) for item in listed}
    for item in listed:
        scheduler.add_job(
            daemons[item.name].run, _Turns(item.seconds, rhythm), max_instances=1,
            coalesce=True, misfire_grace_time=_DUE_SECONDS, id=item.name,
        )  # fmt: skip
    scheduler.start()
    watch = ClockWatch()
    try:
        leader.execute(SQL["listen"])
        while not stop.is_set():
            if _was_told_of_reports(leader):
                turn = max(datetime.now(UTC), daemons["transitioner"].rests_until)
                scheduler.modify_job("transitioner", next_run_time=turn)
                continue
            leader.execute("SELECT 1")
            if watch.was_set_back():  # no cycle would be due before the old time comes again
                log.warning("the clock was set back: all cycles run now")
                call(scheduler)
    finally:
        scheduler.shutdown(wait=True)
        for item in listed:
            item.close()


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
