"""The WSGI application: blueprints, who may call what, limits, and the one error handler."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
import psycopg
from flask import Flask, Response, current_app, g, jsonify, request
from flask.json.provider import JSONProvider
from werkzeug.exceptions import HTTPException
from werkzeug.routing import IntegerConverter

from gridbot_client.protocol.messages import MAX_BIGINT, ProtocolError
from gridbot_server import api, console, metrics
from gridbot_server.api.schema import operation
from gridbot_server.boinc.adapter import BoincClients
from gridbot_server.dispatch.engine import Engine
from gridbot_server.errors import (
    DatabaseAway,
    LengthRequired,
    ObjectNotFound,
    RequestError,
    ServerError,
)
from gridbot_server.http import answers, audit, auth, services, whole_body
from gridbot_server.http.services import Services
from gridbot_server.metrics.traces import Tracing
from gridbot_server.settings import DATA_VARIABLE, Settings

log = logging.getLogger(__name__)

# A peer that neither sends nor takes a byte for so long gives its thread back.
STALL_SECONDS = 60.0
# Classes of requests in the metrics, by how their paths begin.
_CLASSES = {
    "/rpc": "work",
    "/boinc/": "boinc",
    "/files/": "files",
    "/uploads/": "files",
    "/checkpoints/": "files",
    "/api/v1/blobs/": "files",
    "/api/": "api",
    "/health": "monitoring",
    "/metrics": "monitoring",
}
_UNWANTED_BYTES = 64 * 1024  # of a body that the view does not look at


def create_app(
    settings: Settings | None = None, engine: Callable[[], services.WorkEngine] | None = None
) -> Flask:
    """Make the application; `engine` makes what answers requests for work, at the first of them.

    Without settings, those of the data directory that the environment names are loaded.
    """
    settings = settings or Settings.load(Path(os.environ[DATA_VARIABLE]))
    app = Flask("gridbot_server", static_folder=None)
    app.json = _Json(app)
    app.url_map.converters["int"] = _IdConverter
    # A doubled slash is a wrong name, not another spelling of a right one.
    app.url_map.merge_slashes = False
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.extensions["gridbot"] = _services(settings, engine)
    app.before_request(_bound_body)
    app.before_request(auth.authenticate)
    app.before_request(_read_unwanted_body)
    app.before_request(_refuse_nul)
    app.after_request(_harden)
    app.before_request(_note_arrival)
    app.after_request(_count)
    app.after_request(audit.note)
    for blueprint in api.BLUEPRINTS:
        app.register_blueprint(blueprint)
    console.register(app, settings)
    _handle_errors(app)
    return app


def _refuse_nul() -> None:
    if "\0" in request.path:  # which PostgreSQL's texts cannot hold
        raise ObjectNotFound("nothing has a name with a NUL")


def _services(settings: Settings, engine: Callable[[], services.WorkEngine] | None) -> Services:
    store, tracing = settings.open_store(), Tracing.of(settings)
    make = engine or (lambda: Engine(settings.dsn_or_embedded, settings.buffer_path, tracing))
    return Services(settings, store, BoincClients(settings, store), make, tracing)


class _IdConverter(IntegerConverter):
    """A number that fits the database; any other URL does not exist."""

    def __init__(self, map: Any, max: int = MAX_BIGINT) -> None:
        super().__init__(map, max=max)


class _Json(JSONProvider):
    """JSON by orjson: fast, and bounded in depth where the standard library recurses."""

    def dumps(self, obj: Any, **_: Any) -> str:
        return orjson.dumps(obj).decode()

    def loads(self, s: str | bytes, **_: Any) -> Any:
        try:
            return orjson.loads(s)
        except orjson.JSONDecodeError as error:
            raise RequestError(f"the body is no JSON document: {error}") from None


def _bound_body() -> None:
    """Apply the route's own limit on its body, and a time limit on a peer that stalls."""
    # Werkzeug would silently cut a body of unknown length at the limit.
    if "Transfer-Encoding" in request.headers:
        raise LengthRequired("send the body with Content-Length, so that its size is known")
    view = current_app.view_functions.get(request.endpoint or "")
    if limit := getattr(view, "body_limit", None):
        request.max_content_length = limit(current_app.extensions["gridbot"].settings)
    if socket := request.environ.get("gunicorn.socket"):
        socket.settimeout(STALL_SECONDS)
    whole_body.insist()


def _read_unwanted_body() -> None:
    """Read a body that the view does not look at, so that one that ends early is refused, too."""
    view = current_app.view_functions.get(request.endpoint or "")
    described = view and operation(view)
    if request.content_length and described and described.body_type is None:
        request.max_content_length = _UNWANTED_BYTES
        request.get_data(cache=False)


def _harden(response: Response) -> Response:
    for name, value in answers.HARDENING.items():
        response.headers.setdefault(name, value)
    return response


def _note_arrival() -> None:
    g.came_at = time.monotonic()


def _count(response: Response) -> Response:
    """Let the metrics know of a request that a thread has answered."""
    kind = _class_of(request.path)
    metrics.REQUESTS.labels(kind, f"{response.status_code // 100}xx").inc()
    if came_at := g.get("came_at"):
        metrics.REQUEST_SECONDS.labels(kind).observe(time.monotonic() - came_at)
    metrics.RECEIVED.labels(kind).inc(request.content_length or 0)
    if not response.is_streamed or response.content_length:
        metrics.SENT.labels(kind).inc(response.content_length or 0)
    return response


def _class_of(path: str) -> str:
    """What a request is for, by its path."""
    for start, kind in _CLASSES.items():
        if path.startswith(start):
            return kind
    return "pages"


def _handle_errors(app: Flask) -> None:
    app.register_error_handler(ServerError, _answer)
    app.register_error_handler(ProtocolError, lambda error: _answer(RequestError(str(error))))
    app.register_error_handler(HTTPException, _answer_http)
    # Covers the pool's timeout, a database that shuts down, a lock or statement that took too long.
    app.register_error_handler(psycopg.OperationalError, _answer_database)
    app.register_error_handler(TimeoutError, _answer_stall)
    app.register_error_handler(Exception, _answer_defect)


def _answer(error: ServerError) -> tuple[Response, int]:
    return _response(answers.error_body(error), error.status, error.retry)


def _answer_http(error: HTTPException) -> tuple[Response, int]:
    """Answer for what Flask itself refuses: an unknown URL, a wrong method, a body too large."""
    name, detail = type(error).__name__, error.description or "no more is known"
    if error.code == HTTPStatus.NOT_FOUND:
        detail = f"a GridBot server has nothing at {request.path}; is the URL right?"
    body = {"error": name, "detail": _plain(detail), "retry": False}
    return _response(body, error.code or HTTPStatus.BAD_REQUEST)


def _answer_database(error: psycopg.OperationalError) -> tuple[Response, int]:
    log.warning("database: %r", str(error))
    return _answer(DatabaseAway("the database does not answer, try again in a few seconds"))


def _answer_stall(_: TimeoutError) -> tuple[Response, int]:
    detail = "the request came too slowly"
    body = {"error": "RequestTimeout", "detail": detail, "retry": True}
    return _response(body, HTTPStatus.REQUEST_TIMEOUT, retry=True)


def _answer_defect(error: Exception) -> tuple[Response, int]:
    log.error("%s %r failed", request.method, request.path, exc_info=error)
    return _answer(answers.defect())


def _response(body: dict[str, object], status: int, retry: bool = False) -> tuple[Response, int]:
    response = jsonify(body)
    response.headers.update(answers.error_headers(status, retry))
    return response, status


def _plain(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")
