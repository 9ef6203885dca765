"""What must be there before the server serves: schema, project key, operator and key."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from gridbot_server.boinc.first_start import ensure_keys
from gridbot_server.settings import Settings
from gridbot_server.signing import keys
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage import db, sql
from gridbot_server.storage.disk import write_atomically

SQL = sql.load("setup.sql")


def prepare(settings: Settings) -> None:
    """Migrate the database and make what is missing; safe to repeat at every start."""
    with db.connect(settings.dsn_or_embedded, autocommit=True) as conn:
        db.migrate(conn)
        _ensure_project_key(conn, settings)
        ensure_keys(conn, settings)
        _ensure_operator(conn, settings.operator_key_path)


def _ensure_project_key(conn: db.Connection, settings: Settings) -> None:
    """Take the public key that was put here, else make a pair, once.

    Only the public half is needed, so the private one may be moved offline, too.
    """
    path, given = settings.project_key_path, settings.project_public_path
    key = keys.load_public(given) if given.exists() else None
    row = conn.execute(SQL["project_key"]).fetchone()
    if row is not None:
        if key is not None and key.hex() != row[0]:
            raise KeyFileError(f"{given} is not this project's key, which clients trust; remove it")
    else:
        if key is None and not path.exists():
            keys.create(path)
        values = {"key": (key or keys.public_bytes(path)).hex()}
        conn.execute(SQL["set_project_key"], values)
    if settings.sign_on_submit and not path.exists():
        raise KeyFileError(f"{path} is not here: start with --no-sign-on-submit, or bring it back")


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
