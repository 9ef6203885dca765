"""What the views have in common: whose BOT it is, and numbers in the query string."""

from __future__ import annotations

import re

from flask import request

from gridbot_client.protocol.messages import MAX_BIGINT
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("bots.sql")

_SHA256 = re.compile(r"[0-9a-f]{64}")


def bot_owner(conn: Connection, bot: int) -> int:
    """Return the owner of a BOT that this key may touch.

    Another owner's BOT is ObjectNotFound, so that nobody learns which numbers exist.
    """
    row = conn.execute(SQL["owner"], {"bot": bot}).fetchone()
    key = auth.key()
    if row is None or not (key.is_operator or row[0] == key.owner):
        raise ObjectNotFound(f"there is no BOT {bot}")
    return int(row[0])


def mine() -> int | None:
    """Return the owner to whom this key's lists are limited; None for an operator."""
    key = auth.key()
    return None if key.is_operator else key.owner


def number_argument(name: str, default: int | None = None, most: int = MAX_BIGINT) -> int:
    """Return a number of the query string; raise RequestError for anything else."""
    text = request.args.get(name)
    if text is None:
        if default is None:
            raise RequestError(f"{name}: missing in the URL")
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise RequestError(f"{name}: expected a whole number from 0 to {most}, got {text[:60]!r}")
    return int(text)


def is_sha256(text: str) -> bool:
    """Tell whether a text is a SHA-256 in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def sha256_argument(text: str | None) -> str:
    """Return a hash of the URL; raise RequestError for anything else."""
    if text is None or not is_sha256(text):
        raise RequestError("sha256: expected 64 lower-case hexadecimal digits in the URL")
    return text
