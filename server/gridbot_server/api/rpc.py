"""`POST /rpc`: a client's request for work, handed to the engine as it came."""

import threading
from http import HTTPStatus
from typing import cast

from flask import Blueprint, Flask, Response, current_app, request

from gridbot_server.api.schema import JSON, sends, takes
from gridbot_server.http import auth
from gridbot_server.http.services import current
from gridbot_server.models.requests import WorkQuestion
from gridbot_server.models.responses.clients import WorkAnswer
from gridbot_server.overload.gate import Gate, brings_reports, native_client

blueprint = Blueprint("rpc", __name__)

# The engine looks tokens up together with everything else of a batch, once bodies are read.
# Reading a large one is work that only a client that we know may ask of us.
UNCHECKED_BYTES = 64 * 1024


_GATE = "gridbot_gate"  # of the application, once somebody asked for work
_making_gate = threading.Lock()


@blueprint.post("/rpc")
@auth.rule("engine")
@takes(JSON, model=WorkQuestion)
@sends(JSON, model=WorkAnswer, errors=(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.UPGRADE_REQUIRED))
def ask_for_work() -> Response:
    """Report, ask for work.

    Most requests are short, and never come here: the web process serves them itself.
    """
    token, is_long = auth.bearer_hash(), (request.content_length or 0) > UNCHECKED_BYTES
    body = b"" if is_long else request.get_data(cache=False)
    client = native_client(request.headers.get("Authorization", ""))
    refusal = gate_of(current_app).refusal(client, is_long or brings_reports(body))
    if refusal is not None:
        return Response(refusal.body, refusal.status, refusal.headers, mimetype=JSON)
    if is_long:
        auth.check_client()
        body = request.get_data(cache=False)
    return Response(current().engine.handle(token, body), mimetype=JSON)


def gate_of(app: Flask) -> Gate:
    """This process's gate, made at the first request."""
    settings = app.extensions["gridbot"].settings
    with _making_gate:
        if _GATE not in app.extensions:
            app.extensions[_GATE] = Gate(settings.client_requests_per_minute, settings.web_workers)
    return cast(Gate, app.extensions[_GATE])
