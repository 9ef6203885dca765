"""What must be there before the server serves: schema, store, project key, operator and key."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from gridbot_server.boinc.first_start import ensure_keys
from gridbot_server.settings import Settings
from gridbot_server.signing import keys
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage import db, sql, store_record
from gridbot_server.storage.disk import write_atomically
from gridbot_server.storage.rows import fetch_value, has_row

SQL = sql.load("setup.sql")


def prepare(settings: Settings) -> None:
    """Migrate the database and make what is missing; safe to repeat at every start."""
    if settings.dsn:
        db.refuse_pooling_by_transaction(settings.dsn)
    with db.connect(settings.dsn_or_embedded, autocommit=True) as conn:
        db.migrate(conn)
        store_record.pair(conn, settings.open_store())
        _ensure_project_key(conn, settings)
        ensure_keys(conn, settings)
        name = _ensure_operator(conn, settings.operator_key_path)
        _ensure_signing_key(conn, settings.signing_key_path, name)


def _ensure_project_key(conn: db.Connection, settings: Settings) -> None:
    """Take the public key that was put here, else make a pair, once.

    Only the public half is needed, so the private one may be moved offline, too.
    """
    path, given = settings.project_key_path, settings.project_public_path
    key = keys.load_public(given) if given.exists() else None
    known = fetch_value(conn, str, SQL["project_key"])
    if known is not None:
        if key is not None and key.hex() != known:
            raise KeyFileError(f"{given} is not this project's key, which clients trust; remove it")
    else:
        if key is None and not path.exists():
            keys.create(path)
        known = (key or keys.public_bytes(path)).hex()
        conn.execute(SQL["set_project_key"], {"key": known})
    if settings.sign_on_submit and path.exists() and keys.public_bytes(path).hex() != known:
        raise KeyFileError(f"{path} is not the project's present key: put that one here")
    if settings.sign_on_submit and not path.exists():
        raise KeyFileError(f"{path} is not here: start with --no-sign-on-submit, or bring it back")


def _ensure_operator(conn: db.Connection, path: Path) -> str:
    """Give the person who starts the server a key of their own, kept in a private file.

    Returns the person's name.
    """
    name = _operator_name()
    if path.exists():
        known = {"hash": keys.token_hash(path.read_text().strip())}
        if has_row(conn, SQL["key_is_known"], known):
            return name
    token, token_hash = keys.new_token("operator")
    write_atomically(path, token + "\n")
    with conn.transaction():
        conn.execute(SQL["ensure_operator"], {"name": name})
        conn.execute(SQL["add_operator_key"], {"name": name, "hash": token_hash})
    return name


def _ensure_signing_key(conn: db.Connection, path: Path, name: str) -> None:
    """Give that person a key pair that signs their BOTs; the server itself never uses it."""
    if not path.exists():
        keys.create(path)
    conn.execute(SQL["add_signing_key"], {"name": name, "key": keys.public_bytes(path)})


def _operator_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid{os.getuid()}"
