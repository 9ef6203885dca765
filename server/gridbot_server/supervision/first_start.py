"""What must be there before the server serves: schema, project key, operator and key."""

from __future__ import annotations

import getpass
import os
import secrets
from pathlib import Path

from gridbot_server.settings import Settings
from gridbot_server.signing import boinc_keys as boinc_keys
from gridbot_server.signing import boinc_signatures, keys
from gridbot_server.signing.boinc_keys import Chain, Link
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage import db, sql
from gridbot_server.storage.disk import write_atomically

SQL = sql.load("setup.sql")


def prepare(settings: Settings) -> None:
    """Migrate the database and make what is missing; safe to repeat at every start."""
    with db.connect(settings.dsn_or_embedded, autocommit=True) as conn:
        db.migrate(conn)
        _ensure_project_key(conn, settings)
        _ensure_boinc_keys(conn, settings)
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


def _ensure_boinc_keys(conn: db.Connection, settings: Settings) -> None:
    """Make what stock BOINC clients trust, once.  The code signing key may be kept offline.

    The secret behind names is kept for ever: with another one, no client's files and replicas
    would be known any more.
    """
    conn.execute(SQL["set_boinc_names"], {"secret": secrets.token_hex(32)})
    given = settings.boinc_public_path
    public = boinc_keys.public_text(boinc_keys.load_public(given)) if given.exists() else ""
    row = conn.execute(SQL["boinc_chain"]).fetchone()
    if row is None:
        first = Link(public or _own_boinc_key(settings.boinc_key_path))
        conn.execute(SQL["set_boinc_chain"], {"chain": Chain((first,)).text()})
        return
    chain = Chain.from_text(row[0])
    boinc_signatures.check_chain(chain)
    if public and public not in (link.key for link in chain.links):
        raise KeyFileError(
            f"{given} is no key that BOINC clients were led to; remove it, and change keys with:"
            " gridbot app rotate"
        )


def _own_boinc_key(path: Path) -> str:
    if not path.exists():
        boinc_keys.create(path)
    return boinc_keys.public_text(boinc_keys.load_private(path).public_key())


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
