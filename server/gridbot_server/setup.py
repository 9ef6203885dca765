"""What must be there before the server serves: schema, project key, operator and key."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from gridbot_server import db, keys, sql
from gridbot_server.disk import write_atomically
from gridbot_server.settings import Settings

SQL = sql.load("setup.sql")


def prepare(settings: Settings) -> None:
    """Migrate the database and make what is missing; safe to repeat at every start."""
    with db.connect(settings.dsn_or_embedded, autocommit=True) as conn:
        db.migrate(conn)
        _ensure_project_key(conn, settings.project_key_path)
        _ensure_operator(conn, settings.operator_key_path)


def _ensure_project_key(conn: db.Connection, path: Path) -> None:
    """Make the key once.  Only its public half is needed here, so the file may be moved offline."""
    if conn.execute(SQL["project_key"]).fetchone():
        return
    if not path.exists():
        keys.create(path)
    conn.execute(SQL["set_project_key"], {"key": keys.public_bytes(path).hex()})


def _ensure_operator(conn: db.Connection, path: Path) -> None:
    """Give the person who starts the server a key of their own, kept in a private file."""
    name = _operator_name()
    if (
        path.exists()
        and conn.execute(
            SQL["key_is_known"], {"hash": keys.token_hash(path.read_text().strip())}
        ).fetchone()
    ):
        return
    token, token_hash = keys.new_token()
    write_atomically(path, token + "\n")
    with conn.transaction():
        conn.execute(SQL["ensure_operator"], {"name": name})
        conn.execute(SQL["add_operator_key"], {"name": name, "hash": token_hash})


def _operator_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid{os.getuid()}"
