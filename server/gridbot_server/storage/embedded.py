"""Where the embedded PostgreSQL of a data directory is reached; `supervision.postgres` runs it."""

from __future__ import annotations

import os
import re
from pathlib import Path

USER = DATABASE = "gridbot"
PORT = 5432  # only a part of the socket's name
SOCKET_NAME = f".s.PGSQL.{PORT}"
_SOCKET_PATH_BYTES = 107  # sun_path without its final zero


class PostgresError(Exception):
    """The embedded PostgreSQL does not run; the message says why and what to do."""


def dsn(data: Path) -> str:
    """The connection string; valid until the server is stopped.  Raises PostgresError."""
    host = re.sub(r"[\\']", r"\\\g<0>", str(socket_directory(data)))
    quote = "'" if re.search(r"\s", host) else ""
    return f"host={quote}{host}{quote} port={PORT} user={USER} dbname={DATABASE}"


def socket_directory(data: Path) -> Path:
    """Below the data directory, or elsewhere if that path is too long; raises PostgresError."""
    inside = data / "run" / "postgresql"
    if fits_socket(inside):
        return inside
    record = socket_record(data)
    if not record.exists():
        raise PostgresError(f"no PostgreSQL was started for {data}")
    return Path(record.read_text())


def socket_record(data: Path) -> Path:
    """The file that names the socket's directory where that is outside the data directory."""
    return data / "run" / "socket-directory"


def fits_socket(directory: Path) -> bool:
    """Whether a socket's path there is short enough and has no character with a meaning."""
    # libpq takes a comma for the end of one host's name, the server for that of a directory's.
    return len(os.fsencode(directory / SOCKET_NAME)) <= _SOCKET_PATH_BYTES and not (
        {",", '"'} & set(str(directory))
    )
