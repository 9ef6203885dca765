"""Who comes in: by a key that is shown once, by a volunteer's password, or by a link."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from flask import Response, redirect, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from gridbot_server.api.boinc import passwords
from gridbot_server.api.boinc.accounts import key_by_password
from gridbot_server.console.blueprint import action, blueprint, contents, page, visitor
from gridbot_server.errors import ServerBusy
from gridbot_server.http import auth, sessions
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current

_WRONG_KEY = "This key is unknown, expired, revoked, or not a person's."
_WRONG_PASSWORD = "There is no account with this e-mail address and password."  # noqa: S105
_TOO_OFTEN = "Too many wrong attempts: try again in a few minutes."
_USED = "This link was used already, or is older than five minutes. Make another: gridbot open"


@blueprint.get("/login")
@auth.rule("public")
def login() -> Response:
    """Show the form in which a key is shown."""
    return login_form()


@blueprint.post("/login")
@auth.rule("public")
def log_in() -> BaseResponse:
    """Begin a session for a key, or for a volunteer's e-mail address and password."""
    sessions.check_form(sessions.cookie() or visitor())
    form, by_password = request.form, "email" in request.form
    try:
        if by_password:
            found, wrong = _by_password(form["email"], form.get("password", "")), _WRONG_PASSWORD
        else:
            found, wrong = _by_key(form.get("key", "")), _WRONG_KEY
    except ServerBusy:
        return login_form(_TOO_OFTEN, HTTPStatus.TOO_MANY_REQUESTS)
    if found is None:
        return login_form(wrong, HTTPStatus.FORBIDDEN)
    return begin_session(found, inside(form.get("next", "/")), by_password)


@blueprint.get("/enter/<code>")
@auth.rule("public")
def enter(code: str) -> BaseResponse:
    """Let in who follows a link of their own terminal; who comes from another site must confirm."""
    if request.headers.get("Sec-Fetch-Site") == "none":
        return _use(code)
    return page("enter.html", {"title": "Log in", "code": code})


@blueprint.post("/enter/<code>")
@auth.rule("public")
def confirm_entry(code: str) -> BaseResponse:
    """Let in who confirmed that they want to use a link."""
    sessions.check_form(sessions.cookie() or visitor())
    return _use(code)


@blueprint.post("/logout")
@auth.rule("console join")
@action
def log_out() -> str:
    """End the session of this browser."""
    with connection() as conn:
        sessions.end(conn)
    contents().forget(sessions.cookie())
    return url_for("console.login")


def login_address(path: str) -> str:
    """Return where who is not logged in is sent, and from there back to `path`."""
    return f"/login?next={quote(path)}" if path != "/" else "/login"


def login_form(fault: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Show the form in which a key is shown, and what was wrong with the last try."""
    wanted = inside(request.values.get("next", "/"))
    has_accounts = current().settings.boinc_accounts
    shown = {
        "title": "Log in", "fault": fault, "next": wanted, "has_accounts": has_accounts,
        "issuer": current().settings.oidc_issuer, "mails_links": passwords.are_offered(),
    }  # fmt: skip
    return page("login.html", shown, status)


def _by_key(text: str) -> int | None:
    def find() -> int | None:
        with connection() as conn:
            found = auth.enterable(conn, text)
        return found.id if found else None

    return current().login_limits.attempt_key(source(), find)


def _by_password(email: str, password: str) -> int | None:
    if (found := key_by_password(email, password)) is None:
        return None
    with connection() as conn:
        key = auth.enterable(conn, found)
    return key.id if key else None


def _use(code: str) -> BaseResponse:
    with connection() as conn:
        found = sessions.use_link(conn, code)
    if found is None:
        return login_form(_USED, HTTPStatus.FORBIDDEN)
    return begin_session(found, inside(request.values.get("next", "/")))


def begin_session(key: int, path: str, by_password: bool = False) -> BaseResponse:
    """Begin a session for a key, and lead to a path."""
    with connection() as conn:
        secret = sessions.begin(conn, key, by_password)
    response = redirect(path, HTTPStatus.SEE_OTHER)
    sessions.set_cookie(response, secret)
    response.delete_cookie(sessions.VISITOR)
    return response


def inside(address: str) -> str:
    """Return a path of this server; "/" for an address elsewhere."""
    is_path = address.startswith("/") and not address.startswith("//")
    is_plain = address.isascii() and address.isprintable() and "\\" not in address
    return address if is_path and is_plain else "/"
