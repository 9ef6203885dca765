"""New passwords of volunteers' accounts, by a link that is mailed to the account's address.

Of an address only a keyed hash is kept, so who asks gives it, and gives it again with the new
password: the account's keys are made of both.  Machines keep the key with which they are attached.
"""

from __future__ import annotations

import hmac

from gridbot_server.boinc.protocol.pages import password_hash
from gridbot_server.boinc.session.accounts import Credentials
from gridbot_server.errors import RequestError
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_value, has_row

SQL = sql.load("passwords.sql")

_MOST_LINKS = 3  # that are asked for by one address in a day
_MOST_OF_ALL = 10_000  # that are asked for in a day


def ask(conn: Connection, secret: bytes, email: str, mailbox: str, person: str) -> None:
    """Have a link mailed, if there is such an account; nothing tells here whether there is."""
    values = {
        "email": Credentials(email, "").email_hash(secret),
        "person": hmac.digest(secret, f"person {person}".encode(), "sha256"),
        "mailbox": mailbox,
        "most": _MOST_LINKS,
        "most_of_all": _MOST_OF_ALL,
    }
    with conn.transaction():
        conn.execute(SQL["lock"])
        conn.execute(SQL["ask"], values)


def is_good(conn: Connection, code: str) -> bool:
    """Whether the link with this code may be used."""
    return has_row(conn, SQL["is_good"], {"hash": keys.token_hash(code)})


def replace(conn: Connection, secret: bytes, code: str, email: str, password: str) -> int | None:
    """Let an account have a new password; return its new key, None for a link that is not good.

    Raises RequestError for a password that the account has or had; the link then stays good.
    """
    given = Credentials(email, password_hash(email, password))
    values = {
        "hash": keys.token_hash(code),
        "email": given.email_hash(secret),
        "key": keys.token_hash(given.authenticator(secret)),
    }
    with conn.transaction():
        conn.execute(SQL["lock"])
        if not has_row(conn, SQL["use"], values):
            return None
        key = fetch_value(conn, int, SQL["replace"], values)
        if key is None:
            raise RequestError("this account has, or had, this password: choose another one")
        conn.execute(SQL["use_up"], values)
    return key
