"""Sessions of browsers: a key was shown once, and since then a cookie stands for it.

The database holds hashes alone.  Each form carries a token that follows from the cookie, which
pages of other sites cannot read, so that they cannot forge one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from datetime import timedelta

from flask import request
from werkzeug.wrappers import Response

from gridbot_server.errors import Forbidden, Unauthorized
from gridbot_server.http.services import current
from gridbot_server.signing.keys import token_hash
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("sessions.sql")

COOKIE = "gridbot_session"
VISITOR = "gridbot_visitor"  # of those who are not logged in: it protects the form of the login
PENDING = "gridbot_openid"  # of a browser that is on its way to the OpenID provider and back
FORM_FIELD = "form_token"
LIFETIME, LINK_LIFETIME = timedelta(days=7), timedelta(minutes=5)
_LIFETIMES = {COOKIE: LIFETIME, PENDING: timedelta(minutes=10)}  # others go with the browser
_MOST_COOKIE = 100  # characters


class NotLoggedIn(Unauthorized):
    """The browser has no session, or one that has ended."""


class ForgedForm(Forbidden):
    """A form that does not carry the token of this session."""


def begin(conn: Connection, token: int, by_password: bool = False) -> str:
    """Begin a session for a key, which may have been told for a password; return its cookie."""
    secret = secrets.token_urlsafe(32)
    values = {
        "hash": token_hash(secret),
        "token": token,
        "by_password": by_password,
        "lifetime": LIFETIME,
    }
    conn.execute(SQL["begin"], values)
    return secret


def still_good(conn: Connection, cookies: Collection[str]) -> set[str]:
    """Return those cookies whose sessions are good."""
    hashes = {token_hash(cookie): cookie for cookie in cookies}
    found = rows.fetch_values(conn, bytes, SQL["still_good"], {"hashes": list(hashes)})
    return {hashes[item] for item in found}


def end(conn: Connection) -> None:
    """End the session of this request."""
    conn.execute(SQL["end"], {"hash": token_hash(cookie())})


def make_link(conn: Connection, token: int) -> str:
    """Make a code that begins a session for a key, once, within `LINK_LIFETIME`."""
    code = secrets.token_urlsafe(32)
    values = {"hash": token_hash(code), "token": token, "lifetime": LINK_LIFETIME}
    conn.execute(SQL["add_link"], values)
    return code


def use_link(conn: Connection, code: str) -> int | None:
    """Return the key of a link that nobody has used yet, and use it up."""
    return rows.fetch_value(conn, int, SQL["use_link"], {"hash": token_hash(code)})


def cookie(name: str = COOKIE) -> str:
    """Return the cookie of this request, "" without one."""
    return request.cookies.get(name, "")[:_MOST_COOKIE]


def form_token(secret: str) -> str:
    """Return what forms of the session with this cookie carry."""
    return hmac.digest(secret.encode(), b"form", "sha256").hex()


def check_form(secret: str) -> None:
    """Raise ForgedForm unless the form of this request is one of the session with this cookie."""
    given = request.form.get(FORM_FIELD, "")
    if not secret or not hmac.compare_digest(given.encode(), form_token(secret).encode()):
        raise ForgedForm("this form is not of your session: open the page again and repeat it")


def set_cookie(response: Response, secret: str, name: str = COOKIE) -> None:
    """Give the browser its cookie, which no script can read and no other site can send."""
    response.set_cookie(
        name, secret, max_age=_LIFETIMES.get(name), httponly=True,
        samesite="Lax", secure=current().settings.url.startswith("https://"),
    )  # fmt: skip
