"""Accounts that people make from a BOINC client, with an e-mail address and a password.

The key of an account is made of both with the server's secret, so neither need be kept: who looks
the account up with the right password is told the same key.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass

import psycopg

from gridbot_server.boinc.protocol.pages import AccountError, password_hash
from gridbot_server.boinc.session.hosts import find_account
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("boinc.sql")

_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,190}")
_PASSWORD_HASH = re.compile(r"[0-9a-f]{32}")
_MOST_NAME = 100


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client sends: the password hashed together with the address."""

    email: str
    password_hash: str

    def fault(self) -> AccountError | None:
        """What is wrong with their form; an empty password is wrong as well."""
        email = self.email
        if not _EMAIL.fullmatch(email) or not email.isprintable():
            return AccountError.BAD_EMAIL
        is_hash = _PASSWORD_HASH.fullmatch(self.password_hash)
        is_good = is_hash and self.password_hash != password_hash(email, "")
        return None if is_good else AccountError.BAD_PASSWORD

    def authenticator(self, secret: bytes) -> str:
        """The account's key, in the form of BOINC's own."""
        return _keyed(secret, f"key {self.email.lower()} {self.password_hash}").hex()[:32]

    def email_hash(self, secret: bytes) -> bytes:
        """What is kept of the address."""
        return _keyed(secret, f"email {self.email.lower()}")


def look_up(conn: Connection, secret: bytes, given: Credentials) -> str | AccountError:
    """The key of an account, or why there is none.

    Nobody learns whether the address or the password was wrong, also not from the time it takes:
    keys are sought by their hash, which nobody can bring near to another's.
    """
    if fault := given.fault():
        return fault
    key = given.authenticator(secret)
    return key if find_account(conn, key) else AccountError.NOT_FOUND


def create(conn: Connection, secret: bytes, given: Credentials, name: str) -> str | AccountError:
    """Make an account and return its key; with the right password, one that is there will do.

    That an address has an account must be told here: BOINC's clients want to hear it.
    """
    found = look_up(conn, secret, given)
    if found is not AccountError.NOT_FOUND:
        return found
    if conn.execute(SQL["has_account"], {"email": given.email_hash(secret)}).fetchone():
        return AccountError.NOT_UNIQUE
    shown = name.strip()
    if not shown or len(shown) > _MOST_NAME or not shown.isprintable():
        return AccountError.BAD_NAME
    key = given.authenticator(secret)
    values = {
        # Policies see this one: nobody may call himself as somebody else is called.
        "owner_name": f"volunteer-{secrets.token_hex(6)}",
        "name": shown,
        "email": given.email_hash(secret),
        "hash": keys.token_hash(key),
    }
    try:
        conn.execute(SQL["add_account"], values)
    except psycopg.errors.UniqueViolation:  # the same request, twice at once
        return key if find_account(conn, key) else AccountError.NOT_UNIQUE
    return key


def _keyed(secret: bytes, text: str) -> bytes:
    return hmac.digest(secret, text.encode(errors="replace"), "sha256")
