"""The cycle of storages: each that has something to do gets a turn, in one of a few threads."""

from __future__ import annotations

import logging
import threading

import psycopg

from gridbot_server.cycles.storages import turn
from gridbot_server.cycles.storages.place import OwnerStorage
from gridbot_server.errors import ServerBusy
from gridbot_server.settings import Settings
from gridbot_server.storage import db, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import read

SQL = sql.load("owner_storage.sql")

_AT_ONCE, _OF_OWNER = 8, 2  # turns
_LOOKED_AT = 1000  # storages in a pass
_IDLE_SECONDS = 10  # until the next turn of a storage at which nothing was done

log = logging.getLogger(__name__)


class StorageTurns:
    """Turns in progress.  A storage that hangs holds its own thread alone, and not for long."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._busy: dict[int, int] = {}  # owners, by storage
        self._done = 0
        self._lock = threading.Lock()

    def run_once(self, conn: Connection) -> int:
        """Begin turns where there is something to do; return how much the ended ones did."""
        with self._lock:
            done, self._done = self._done, 0
            busy = dict(self._busy)
        values = {"busy": list(busy), "limit": _LOOKED_AT, "grace": turn.GRACE}
        for storage in read(conn, OwnerStorage, SQL["due"], values):
            owners = list(busy.values())
            if len(owners) < _AT_ONCE and owners.count(storage.owner) < _OF_OWNER:
                busy[storage.id] = storage.owner
                self._begin(storage)
        return done

    def _begin(self, storage: OwnerStorage) -> None:
        """Take a turn in a thread that keeps no process from ending: a turn may break off."""
        with self._lock:
            self._busy[storage.id] = storage.owner
        name = f"storage-{storage.id}"
        threading.Thread(target=self._take, args=(storage,), name=name, daemon=True).start()

    def _take(self, storage: OwnerStorage) -> None:
        done = 0
        try:
            done = _take(self._settings, storage)
        except psycopg.OperationalError as error:
            log.warning("storages: the database is away: %s", str(error).strip())
        finally:
            with self._lock:
                self._done += done
                del self._busy[storage.id]


def _take(settings: Settings, storage: OwnerStorage) -> int:
    """Take one turn, on a connection of its own; return how much was done."""
    done, error = 0, None
    with db.connect(settings.dsn_or_embedded, "gridbot-storage", autocommit=True) as conn:
        try:
            done = turn.take(conn, storage, settings)
        except ServerBusy as fault:
            error = fault.detail
        except psycopg.OperationalError:
            raise
        except Exception:
            log.exception("a turn of storage %d failed; it has another one", storage.id)
            error = "the server made an error of its own, which its operator finds in a log"
        pause = 0 if done else _IDLE_SECONDS
        values = {"storage": storage.id, "error": error, "pause": pause}
        conn.execute(SQL["end_turn"], values)
    return done
