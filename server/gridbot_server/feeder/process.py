"""The feeder process: one per machine, keeps its scheduling buffer full (paper section 6.1).

What it does in each pass is in `feeding.py`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from gridbot_server.buffer import wake_up
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.layout import BufferDamaged, BufferMissing
from gridbot_server.feeder.feeding import Feeder
from gridbot_server.feeder.running import SQL
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.storage.disk import write_atomically
from gridbot_server.storage.rows import fetch_value
from gridbot_server.supervision.entry import run_process

log = logging.getLogger(__name__)

PASS_SECONDS = 0.25  # between passes without a notification
IDLE_PASS_SECONDS = 1.0  # while no BOT is there to be fed; of one that comes the database tells
MIN_PASS_SECONDS = 0.02  # between passes, however many notifications come
# A pass over hundreds of BOTs takes long.  The pause after it is REST times as long unless it is
# cut short, so that an idle server stays idle; but never too long for a BOT just submitted.
REST, MAX_PASS_SECONDS = 10, 2.0


def open_buffer(settings: Settings, conn: db.PostgresConnection) -> SchedulingBuffer:
    """Return this machine's buffer: the one that is there if it serves this database, else new."""
    database = fetch_value(conn, str, SQL["database"])
    assert database is not None, "it is there since the first migration"
    machine = _machine(settings.data)
    try:
        buffer = SchedulingBuffer(settings.buffer_path)
        here = (buffer.machine, buffer.database, buffer.slots, buffer.slot_bytes)
        if here == (machine, database, settings.buffer_slots, settings.slot_bytes):
            return buffer
        buffer.close()
    except BufferMissing as error:
        log.info("making a buffer: %s", error)
    return SchedulingBuffer.create(
        settings.buffer_path, slots=settings.buffer_slots, slot_bytes=settings.slot_bytes,
        machine=machine, database=database,
    )  # fmt: skip


def _machine(data: Path) -> str:
    """This server's name among those that share the database: made once, kept with its data."""
    path = data / "machine"
    if not path.exists():
        write_atomically(path, secrets.token_hex(16))
    return path.read_text()


def run(settings: Settings, stop: threading.Event) -> None:
    """Feed until told to stop; a database that goes away is waited for, a lost buffer made anew."""
    lock = os.open(settings.buffer_path.with_suffix(".feeder"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # a second feeder waits for the first one's end
    notifications = wake_up.WakeUpPipe(wake_up.feeder_pipe(settings.buffer_path))
    while not stop.is_set():
        try:
            with db.connect(settings.dsn_or_embedded, "gridbot-feeder", autocommit=True) as conn:
                _feed(conn, settings, notifications, stop)
        except BufferDamaged:
            continue  # it was told, and the file is gone
        except psycopg.OperationalError as error:
            log.warning("the database is away: %s", str(error).strip())
            stop.wait(1.0)


def _feed(
    conn: db.PostgresConnection,
    settings: Settings,
    notifications: wake_up.WakeUpPipe,
    stop: threading.Event,
) -> None:
    """Feed one buffer until told to stop, or until it is gone."""
    conn.execute(SQL["planner"])
    conn.execute(SQL["listen"])
    web = wake_up.WebPipes(settings.buffer_path)
    with closing(open_buffer(settings, conn)) as buffer, _discarded_on_error(buffer):
        feeder = Feeder(conn, buffer)
        feeder.forget_claims()
        while not stop.is_set() and buffer.is_current():
            began = time.monotonic()
            if feeder.run_once(began):
                web.notify()
            else:
                least = PASS_SECONDS if feeder.has_bots else IDLE_PASS_SECONDS
                rest = REST * (time.monotonic() - began)
                notifications.wait(min(max(least, rest), MAX_PASS_SECONDS), conn)
            stop.wait(max(0.0, began + MIN_PASS_SECONDS - time.monotonic()))


@contextmanager
def _discarded_on_error(buffer: SchedulingBuffer) -> Iterator[None]:
    """Leave no buffer behind on which the next feeder would fail in the same way."""
    try:
        yield
    except psycopg.OperationalError:
        raise
    except Exception:
        buffer.discard()
        raise


def main() -> None:
    """Run the feeder of the server whose data directory is given."""
    run_process("feeder", run)


if __name__ == "__main__":
    main()
