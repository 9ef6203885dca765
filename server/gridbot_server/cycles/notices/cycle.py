"""The cycles of notices: send what is due, and ask how the server does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gridbot_server.cycles.notices.delivery import NotDelivered, Notice, send
from gridbot_server.settings import Settings
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.supervision.lock_file import health

SQL = sql.load("notices.sql")

_AT_ONCE = _PER_PASS = 4  # so that a pass takes no longer than one attempt
_MOST_TRIES = 32  # at most an hour apart, which is about a day
_LOOKS = 2  # in which the server must be degraded: a restart calls nobody
_AWAY = "the web process does not answer"


def run_once(conn: Connection, settings: Settings) -> int:
    """Send what is due, one notice to each address at most; return how many were tried.

    No transaction is open meanwhile: a notice that arrives just as this process dies comes again.
    """
    values = {"limit": _PER_PASS, "most_tries": _MOST_TRIES}
    due = rows.read(conn, Notice, SQL["take"], values)
    if not due:
        return 0
    with ThreadPoolExecutor(min(_AT_ONCE, len(due)), "notice") as pool:
        for notice, fault in zip(
            due, pool.map(lambda item: _attempt(item, settings), due), strict=True
        ):
            told = {"id": notice.id, "address": notice.address, "error": fault}
            conn.execute(SQL["failed"] if fault else SQL["arrived"], told)
    return len(due)


def _attempt(notice: Notice, settings: Settings) -> str:
    """Send a notice; return why it did not arrive, "" if it did."""
    try:
        send(notice, settings)
    except NotDelivered as error:
        return str(error) or "it did not arrive"
    return ""


class ServerWatch:
    """Tells operators when the server is degraded, and when it is well again."""

    def __init__(self, trouble: Callable[[], str]) -> None:
        self._trouble = trouble
        self._seen = 0  # times in a row that it was found otherwise than operators know it

    def run_once(self, conn: Connection) -> int:
        """Look once; return whether operators were told of something."""
        found = self._trouble()
        told = rows.fetch_value(conn, str, SQL["told_trouble"]) or ""
        self._seen = self._seen + 1 if bool(found) != bool(told) else 0
        if self._seen < _LOOKS:
            return 0
        self._seen = 0
        event = "server_degraded" if found else "server_well"
        conn.execute(SQL["tell_operators"], {"trouble": found, "event": event})
        return 1


def trouble_of(settings: Settings) -> str:
    """Return what is wrong with this server, as `GET /health` says; "" if nothing is."""
    said = health(settings)
    return _AWAY if said is None else str(said.get("trouble") or "")
