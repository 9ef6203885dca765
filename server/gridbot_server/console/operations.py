"""Operations: lag, queue, hosts, errors, bans, owners, keys, disk and logs, for operators."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from gridbot_server import metrics
from gridbot_server.api.history import show_server_history
from gridbot_server.api.matching import clients_seen
from gridbot_server.api.operation import SQL as OPERATION
from gridbot_server.api.operation import Lag, list_owners, list_tokens, show_health
from gridbot_server.api.schema import call
from gridbot_server.console import curves
from gridbot_server.console.blueprint import blueprint, live, shared
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.responses.history import ServerHistory
from gridbot_server.models.responses.operation import Health
from gridbot_server.storage import rows, sql

SQL = sql.load("console.sql")

_HEALTH_SECONDS = 5.0  # for which figures are shown that look at all clients
_SLOW_SECONDS = 15.0  # … at much of the history
_SURVEY_SECONDS = 60.0  # … at all hosts, and more than once
_MOST = 10
_MOST_CLIENTS = 1000  # whose releases are counted
_LOG_BYTES, _LOG_LINES = 8192, 12


class HostsByState(NamedTuple):
    """Clients of a grid, "" for machines that are no pilots."""

    grid: str
    active: int
    silent: int
    away: int


class Release(NamedTuple):
    """Hosts whose client is of one release."""

    release: str
    hosts: int


class FailingHost(NamedTuple):
    """A host whose replicas fail often."""

    id: int
    name: str
    owner: str
    grid: str | None
    error_rate: float
    failure: str | None


class Backup(NamedTuple):
    """The last backup."""

    made_at: datetime
    file: str


class ShownBan(NamedTuple):
    """A banned host."""

    id: int
    name: str
    owner: str
    banned_at: datetime
    banned_why: str


class Storage(NamedTuple):
    """What the database and the file store hold."""

    database_bytes: int
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class _Survey:
    """What a look at all hosts gives, or at many."""

    hosts: list[HostsByState]
    is_sample: bool  # the releases are those of some hosts
    releases: list[Release]
    worst: list[FailingHost]
    storage: Storage
    request_seconds: float | None  # of a request for work, since the start


@blueprint.get("/operations")
@auth.rule("console operator")
@live("operations.html", seconds=3.0)
def operations_page() -> dict[str, Any]:
    """Show how the server does."""
    data = current().settings.data
    survey = shared(("survey", "operator"), _SURVEY_SECONDS, _survey)
    with connection() as conn:
        lags = rows.read(conn, Lag, OPERATION["lags"])
        backup = rows.fetch_one(conn, Backup, SQL["backup"])
        banned = rows.fetch(conn, ShownBan, SQL["banned"], {"limit": 50})
    disk = shutil.disk_usage(data)
    logs = ("gunicorn", "feeder", *current().settings.daemons, "supervisor", "postgresql")
    return {
        "title": "Operations",
        "health": server_health(),
        "curves": curves.of_server(server_history()),
        "grids": curves.totals(server_history()),
        "lags": lags,
        "survey": survey,
        "backup": backup,
        "banned": banned,
        "owners": call(list_owners).owners,
        "tokens": [token for token in call(list_tokens).tokens if token.scope != "pilot"][-50:],
        "disk": disk,
        "data": str(data),
        "store": current().settings.files_url or f"{data}/files",
        "logs": [(name, lines) for name in logs if (lines := tail(data / "log" / f"{name}.log"))],
    }


def server_health() -> Health:
    """Return how the server does, and how much there is to do."""
    found: Health = shared(("health", "server"), _HEALTH_SECONDS, lambda: call(show_health))
    return found


def server_history() -> ServerHistory:
    """Return what happened on the server in the last day."""
    found: ServerHistory = shared(
        ("history", "operator"), _SLOW_SECONDS,
        lambda: call(show_server_history, begin=None, end=None, step=None),
    )  # fmt: skip
    return found


def _survey() -> _Survey:
    with connection() as conn:
        clients = clients_seen(conn, _MOST_CLIENTS)
        return _Survey(
            rows.fetch(conn, HostsByState, SQL["hosts_by_state"]),
            len(clients) == _MOST_CLIENTS,
            rows.fetch(conn, Release, SQL["releases"], {"clients": clients}),
            rows.fetch(conn, FailingHost, SQL["worst_hosts"], {"limit": _MOST}),
            rows.fetch_only(conn, Storage, SQL["storage"]),
            metrics.mean_request_seconds(),
        )


def tail(path: Path) -> str:
    """Return the last lines of a log; "" for none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            text = file.read(_LOG_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_LOG_LINES:])
