"""Who runs the server of a data directory: its lock, its processes on disk, its health."""

import fcntl
import http.client
import json
import logging
import os
import socket
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gridbot_server.settings import DATA_VARIABLE, Settings, split_bind
from gridbot_server.supervision.processes import (
    ProcessRecord,
    load_records,
    own_record,
    stop_leftover,
)

log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start; the message says why and where to look."""


def take_lock(settings: Settings) -> int:
    """Lock the data directory for as long as the returned descriptor is open, or StartError."""
    lock = os.open(settings.lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        found = supervisor_record(settings)
        holder = f"pid {found.pid}" if found else "just starting"
        raise StartError(
            f"the server in {settings.data} is already running ({holder}) at {settings.url}"
        ) from None
    return lock


def supervisor_record(settings: Settings) -> ProcessRecord | None:
    """Return the supervisor that runs, or None."""
    text = settings.lock_path.read_text() if settings.lock_path.exists() else ""
    record = ProcessRecord(**json.loads(text)) if text else None
    return record if record and record.is_alive() else None


def child_records(settings: Settings) -> list[ProcessRecord]:
    """Return the children of the supervisor, or those that a killed one left."""
    return load_records(records_path(settings))


def take_over(settings: Settings) -> list[str]:
    """Stop what a killed supervisor left running; return the names.  The caller holds the lock."""
    settings.endpoint_path.unlink(missing_ok=True)
    stopped = []
    for record in reversed(child_records(settings)):
        if stop_leftover(record, (DATA_VARIABLE, str(settings.data))):
            log.warning("stopped %s (pid %d), left by a killed server", record.name, record.pid)
            stopped.append(record.name)
    forget(settings)
    return stopped


def health(settings: Settings) -> dict[str, Any] | None:
    """Return what GET /health answers, or None if it is not a 200."""
    place = urlsplit(settings.local_url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=5)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        body = answer.read()
        return dict(json.loads(body)) if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def sign(lock: int) -> None:
    """Write into the lock who holds it."""
    record = own_record("supervisor", datetime.now(UTC))
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(asdict(record)).encode(), 0)


def refuse_taken_address(settings: Settings) -> None:
    """Raise StartError if somebody else listens where the server is to."""
    host, port = split_bind(settings.bind)
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]  # the address follows
        raise StartError(
            f"cannot listen on {settings.bind}: {reason.lower()};"
            " choose another address with --bind ADDRESS:PORT"
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def records_path(settings: Settings) -> Path:
    """Where the supervisor keeps the records of its children."""
    return settings.run / "children.json"


def forget(settings: Settings) -> None:
    """Remove what only means something while the processes run."""
    buffer = settings.buffer_path
    # Beside the buffer lie its locks and its wake-up pipe.
    for path in (records_path(settings), *buffer.parent.glob(f"{buffer.stem}.*")):
        path.unlink(missing_ok=True)
