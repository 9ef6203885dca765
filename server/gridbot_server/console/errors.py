"""Errors as pages: what is wrong, and what to do next."""

from __future__ import annotations

from http import HTTPStatus

import psycopg
from flask import Response, redirect, request
from werkzeug.wrappers import Response as BaseResponse

from gridbot_client.protocol.messages import ProtocolError
from gridbot_server.console.blueprint import blueprint, page
from gridbot_server.console.entry import login_address
from gridbot_server.errors import RequestError, ServerError
from gridbot_server.http.sessions import NotLoggedIn

_TITLES = {
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.CONFLICT: "Not possible now",
    HTTPStatus.SERVICE_UNAVAILABLE: "Not now",
}


@blueprint.errorhandler(NotLoggedIn)
def ask_to_log_in(error: NotLoggedIn) -> BaseResponse:
    """Send who is not logged in to the form, and polls away."""
    if request.query_string == b"live":
        return Response(error.detail, HTTPStatus.UNAUTHORIZED, mimetype="text/plain")
    wanted = request.path if request.method == "GET" else "/"
    return redirect(login_address(wanted), HTTPStatus.SEE_OTHER)


@blueprint.errorhandler(ServerError)
def show_error(error: ServerError) -> Response:
    """Show what was refused, and why."""
    shown = {
        "title": _TITLES.get(error.status, "This did not work"),
        "detail": error.detail,
        "pretty": error.extra.get("pretty"),
    }
    return page("error.html", shown, error.status)


@blueprint.errorhandler(ProtocolError)
def show_protocol_error(error: ProtocolError) -> Response:
    """Show what a stored document, or a form, is not."""
    return show_error(RequestError(str(error)))


@blueprint.errorhandler(psycopg.OperationalError)
def show_database_away(_: psycopg.OperationalError) -> Response:
    """Say that the database does not answer."""
    detail = "The database does not answer: try again in a few seconds."
    shown = {"title": "Not now", "detail": detail, "pretty": None}
    return page("error.html", shown, HTTPStatus.SERVICE_UNAVAILABLE)
