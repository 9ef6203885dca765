"""Accounts that people make from a BOINC client, with an e-mail address and a password.

The keys of an account are made of both with the server's secret, so neither need be kept: who looks
the account up with the right password is told the same one.  Clients are told a key that only
attaches, since each job can read it; all others, account managers for example, one that changes the
account as well.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

import psycopg

from gridbot_server.boinc.protocol.pages import AccountError, password_hash
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import has_row

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
        if not is_email(email):
            return AccountError.BAD_EMAIL
        is_hash = _PASSWORD_HASH.fullmatch(self.password_hash)
        is_good = is_hash and self.password_hash != password_hash(email, "")
        return None if is_good else AccountError.BAD_PASSWORD

    def authenticator(self, secret: bytes) -> str:
        """The account's key, in the form of BOINC's own."""
        return _keyed(secret, f"key {self.email.lower()} {self.password_hash}").hex()[:32]

    def account_key(self, secret: bytes) -> str:
        """The key that changes the account, too; jobs cannot read it, as no client has it."""
        return _keyed(secret, f"account {self.email.lower()} {self.password_hash}").hex()[:32]

    def email_hash(self, secret: bytes) -> bytes:
        """What is kept of the address."""
        return _keyed(secret, f"email {self.email.lower()}")


def is_email(text: str) -> bool:
    """Whether this can be an address."""
    return bool(_EMAIL.fullmatch(text)) and text.isprintable()


def look_up(conn: Connection, secret: bytes, given: Credentials) -> str | AccountError:
    """The key of an account, or why there is none.

    Nobody learns whether the address or the password was wrong, also not from the time it takes:
    keys are sought by their hash, which nobody can bring near to another's.
    """
    if fault := given.fault():
        return fault
    key = given.authenticator(secret)
    return key if _is_of_password(conn, key) else AccountError.NOT_FOUND


def _is_of_password(conn: Connection, key: str) -> bool:
    return has_row(conn, SQL["is_of_password"], {"hash": keys.token_hash(key)})


def is_free(conn: Connection, secret: bytes, email: str) -> bool:
    """Whether no account has this address."""
    values = {"email": Credentials(email, "").email_hash(secret)}
    return conn.execute(SQL["has_account"], values).fetchone() is None


def open_account(conn: Connection, secret: bytes, given: Credentials) -> str | AccountError:
    """The account's own key for whoever showed its password; made when it is asked for first.

    It is always the same: one that was revoked stays so.
    """
    key = given.account_key(secret)
    joining = keys.token_hash(given.authenticator(secret))
    values = {"hash": keys.token_hash(key), "joining": joining}
    conn.execute(SQL["add_account_key"], values)
    is_good = conn.execute(SQL["is_good_key"], values).fetchone() is not None
    return key if is_good else AccountError.KEY_REVOKED


def open_weak(conn: Connection, secret: bytes, key: str) -> str:
    """The key for machines that goes with an account's own one: it attaches, no more."""
    weak = _keyed(secret, f"weak {key}").hex()[:32]
    conn.execute(
        SQL["add_weak_key"], {"hash": keys.token_hash(weak), "made_of": keys.token_hash(key)}
    )
    return weak


@dataclass(frozen=True, slots=True)
class Consent:
    """The terms of use that there are, and whether who makes an account agrees to them."""

    terms: str
    is_given: bool

    @property
    def digest(self) -> bytes | None:
        """What is kept of it; None where there are no terms."""
        return hashlib.sha256(self.terms.encode()).digest() if self.terms else None


def create(
    conn: Connection, secret: bytes, given: Credentials, name: str, consent: Consent
) -> str | AccountError:
    """Make an account and return its key; with the right password, one that is there will do.

    That an address has an account must be told here: BOINC's clients want to hear it.
    """
    found = look_up(conn, secret, given)
    if found is not AccountError.NOT_FOUND:
        return found
    if conn.execute(SQL["has_account"], {"email": given.email_hash(secret)}).fetchone():
        return AccountError.NOT_UNIQUE
    if (shown := shown_name(name)) is None:
        return AccountError.BAD_NAME
    if consent.terms and not consent.is_given:
        return AccountError.NO_CONSENT
    key = given.authenticator(secret)
    values = {
        # Policies see this one: nobody may call himself as somebody else is called.
        "owner_name": f"volunteer-{secrets.token_hex(6)}",
        "name": shown,
        "email": given.email_hash(secret),
        "hash": keys.token_hash(key),
        "terms": consent.digest,
    }
    try:
        conn.execute(SQL["add_account"], values)
    except psycopg.errors.UniqueViolation:  # the same request, twice at once
        return key if _is_of_password(conn, key) else AccountError.NOT_UNIQUE
    return key


def shown_name(name: str) -> str | None:
    """The name of an account as it is shown; None for one that cannot be."""
    shown = name.strip()
    return shown if shown and len(shown) <= _MOST_NAME and shown.isprintable() else None


def _keyed(secret: bytes, text: str) -> bytes:
    return hmac.digest(secret, text.encode(errors="replace"), "sha256")
