"""Forgotten passwords of volunteers: a link is mailed, which leads to a form for a new one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from flask import Response, request
from werkzeug.wrappers import Response as BaseResponse

from gridbot_server.api.boinc import passwords as api
from gridbot_server.console.blueprint import blueprint, page, visitor
from gridbot_server.console.entry import begin_session
from gridbot_server.errors import RequestError, ServerBusy
from gridbot_server.http import auth, sessions

_NOT_GOOD = "This link was used already, is older than an hour, or was mailed to another address."


@blueprint.get("/login/forgotten")
@auth.rule("public")
def forgotten() -> Response:
    """Show the form that has a link mailed."""
    api.check_offered()
    return _asking()


@blueprint.post("/login/forgotten")
@auth.rule("public")
def ask_for_link() -> Response:
    """Have a link mailed; the answer is the same whether there is such an account or not."""
    sessions.check_form(sessions.cookie() or visitor())
    try:
        api.ask(request.form.get("email", "").strip())
    except ServerBusy as error:
        return _asking(error.detail, HTTPStatus.TOO_MANY_REQUESTS)
    except RequestError as error:
        return _asking(error.detail, HTTPStatus.BAD_REQUEST)
    return _asking(is_asked=True)


@blueprint.get("/login/password")
@auth.rule("public")
def new_password() -> Response:
    """Show the form for a new password; this does not use the link up."""
    code = request.args.get("code", "")
    if not api.is_good(code):
        return _asking(_NOT_GOOD, HTTPStatus.FORBIDDEN)
    return _choosing(code)


@blueprint.post("/login/password")
@auth.rule("public")
def set_password() -> BaseResponse:
    """Set the password, and log in with it."""
    sessions.check_form(sessions.cookie() or visitor())
    form = request.form
    code, email = form.get("code", ""), form.get("email", "").strip()
    try:
        key = api.replace(code, email, form.get("password", ""))
    except ServerBusy as error:
        return _choosing(code, error.detail, HTTPStatus.TOO_MANY_REQUESTS)
    except RequestError as error:
        return _choosing(code, error.detail, HTTPStatus.BAD_REQUEST)
    if key is None:
        return _choosing(code, _NOT_GOOD, HTTPStatus.FORBIDDEN)
    return begin_session(key, "/machines", by_password=True)


def _asking(
    fault: str = "", status: HTTPStatus = HTTPStatus.OK, is_asked: bool = False
) -> Response:
    shown: dict[str, Any] = {"title": "Forgotten password", "fault": fault, "is_asked": is_asked}
    return page("forgotten.html", shown, status)


def _choosing(code: str, fault: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    return page("password.html", {"title": "New password", "fault": fault, "code": code}, status)
