"""What BOINC clients trust, and find again for ever: made at the first start of a server."""

from __future__ import annotations

import secrets
from pathlib import Path

from gridbot_server.boinc.application import code_keys, code_signatures
from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.settings import Settings
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_value

SQL = sql.load("setup.sql")


def ensure_keys(conn: Connection, settings: Settings) -> None:
    """Make what is missing, and check the rest.  The code signing key may be kept offline.

    The secret behind names is kept for ever: with another one, no client's files and replicas
    would be known any more.  Raises KeyFileError for a key that clients were never led to.
    """
    conn.execute(SQL["set_boinc_names"], {"secret": secrets.token_hex(32)})
    given = settings.boinc_public_path
    public = code_keys.public_text(code_keys.load_public(given)) if given.exists() else ""
    text = fetch_value(conn, str, SQL["boinc_chain"])
    if text is None:
        first = Link(public or _own_key(settings.boinc_key_path))
        conn.execute(SQL["set_boinc_chain"], {"chain": Chain((first,)).text()})
        return
    chain = Chain.from_text(text)
    code_signatures.check_chain(chain)
    if public and public not in (link.key for link in chain.links):
        raise KeyFileError(
            f"{given} is no key that BOINC clients were led to; remove it, and change keys with:"
            " gridbot app rotate"
        )


def _own_key(path: Path) -> str:
    """The public half of the key at `path`, made if there is none."""
    if not path.exists():
        return code_keys.create(path)
    return code_keys.public_text(code_keys.load_private(path).public_key())
