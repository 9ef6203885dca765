"""Logging in at an OpenID provider: an account there that was linked with a key stands for it.

The link is made by who is logged in with the key, from a form of theirs.  A session that begins by
it is one of that key: it sees what that sees, and ends with it.
"""

from __future__ import annotations

import hmac
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple, cast

from flask import Response, after_this_request, current_app, redirect, request
from werkzeug.wrappers import Response as BaseResponse

from gridbot_server.console.blueprint import action, blueprint, page
from gridbot_server.console.entry import begin_session, inside, login_form
from gridbot_server.console.openid import BACK, LoginRefused, OpenIdProvider, PendingLogin
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import audit, auth, sessions
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current
from gridbot_server.storage import rows, sql

SQL = sql.load("sessions.sql")

_UNKNOWN = (
    "This account is not linked with a key. Log in with your key once, then link the account: your"
    " name, at the top right."
)


class LinkedLogin(NamedTuple):
    """An account at a provider that stands for a key."""

    issuer: str
    subject: str
    key: int
    linked_at: datetime


@blueprint.get("/login/openid")
@auth.rule("public")
def leave_for_provider() -> BaseResponse:
    """Send a browser to the provider, to prove who it is."""
    login = PendingLogin.begin(inside(request.args.get("next", "/")))
    response = redirect(_provider().address(login), HTTPStatus.SEE_OTHER)
    sessions.set_cookie(response, login.cookie(), sessions.PENDING)
    return response


@blueprint.get(BACK)
@auth.rule("public")
def come_back() -> BaseResponse:
    """Take what a browser brings from the provider: it logs in, or links what it proves."""
    after_this_request(_forgotten)
    login = PendingLogin.of_cookie(request.cookies.get(sessions.PENDING, ""))
    if login is None:
        raise LoginRefused("this log-in was not begun in this browser, or long ago: begin again")
    provider = _provider()
    limits = current().login_limits  # of what wrong answers cost this server, and the provider
    found = limits.attempt_key(source(), lambda: provider.subject(login, request.args))
    subject = cast(str, found)
    if login.session:
        return _link(provider.issuer, subject, login.session)
    return _log_in(provider.issuer, subject, login.path)


def _forgotten(response: Response) -> Response:
    """An answer of the provider counts once."""
    response.delete_cookie(sessions.PENDING)
    return response


def _log_in(issuer: str, subject: str, path: str) -> BaseResponse:
    with connection() as conn:
        values = {"issuer": issuer, "subject": subject}
        key = rows.fetch_value(conn, int, SQL["linked_key"], values)
    if key is None:
        return login_form(_UNKNOWN, HTTPStatus.FORBIDDEN)
    return begin_session(key, inside(path))


def _link(issuer: str, subject: str, session: str) -> BaseResponse:
    found = auth.find_session()
    is_same = hmac.compare_digest(session.encode(), sessions.form_token(sessions.cookie()).encode())
    if found is None or not is_same:
        raise LoginRefused("the session that began this has ended: log in, and begin again")
    values = {"issuer": issuer, "subject": subject, "key": found.id}
    with connection() as conn:
        conn.execute(SQL["link"], values)
        audit.note_change(
            conn, found, "link_login", "/logins", {"issuer": issuer, "subject": subject}
        )
    return redirect("/logins", HTTPStatus.SEE_OTHER)


@blueprint.get("/logins")
@auth.rule("console user")
def logins_page() -> Response:
    """Show which accounts at the provider stand for keys of whose session it is."""
    with connection() as conn:
        linked = rows.fetch(conn, LinkedLogin, SQL["links"], {"owner": auth.key().owner})
    return _page(linked, "")


@blueprint.post("/logins")
@auth.rule("console user")
def begin_link() -> Response:
    """Lead to the provider: who comes back from there is linked with the key of this session."""
    login = PendingLogin.begin("/logins", sessions.form_token(sessions.cookie()))
    response = _page([], _provider().address(login))
    sessions.set_cookie(response, login.cookie(), sessions.PENDING)
    return response


@blueprint.post("/logins/remove")
@auth.rule("console user")
@action
def remove_link() -> str:
    """Let an account stand for no key any more."""
    values = {
        "owner": auth.key().owner,
        "issuer": request.form.get("issuer", ""),
        "subject": request.form.get("subject", ""),
    }
    with connection() as conn:
        if not rows.has_row(conn, SQL["unlink"], values):
            raise ObjectNotFound("there is no such log-in of yours")
    return "/logins"


def _page(linked: list[LinkedLogin], leads_to: str) -> Response:
    shown = {
        "title": "Log-ins", "linked": linked, "issuer": _provider().issuer, "leads_to": leads_to,
    }  # fmt: skip
    return page("logins.html", shown)


def _provider() -> OpenIdProvider:
    found: OpenIdProvider | None = current_app.extensions["gridbot_openid"]
    if found is None:
        raise ObjectNotFound("this server has no OpenID provider")
    return found
