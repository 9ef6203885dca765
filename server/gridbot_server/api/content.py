"""`GET /files/SHA256`: content by its hash, which whoever asks must know already."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Response, g, request
from werkzeug.exceptions import RequestedRangeNotSatisfiable
from werkzeug.wsgi import FileWrapper

from gridbot_server.api.parameters import is_sha256
from gridbot_server.api.schema import BYTES, sends
from gridbot_server.errors import ObjectNotFound, ServerBusy
from gridbot_server.http import auth
from gridbot_server.http.services import current
from gridbot_server.http.slow_readers import PIECE_BYTES, bounded
from gridbot_server.overload.transfer_slots import Party

blueprint = Blueprint("content", __name__)

sends_content = sends(
    BYTES, HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NOT_MODIFIED,
    errors=(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,),
)  # fmt: skip
"""Marks a view that answers with `send_content`."""


@blueprint.get("/files/<sha256>")
@auth.rule("content")
@sends_content
def fetch_content(sha256: str) -> Response:
    """Send the content, or the range of it that is asked for."""
    return send_content(sha256)


def reader() -> Party:
    """Who reads an answer, by the token."""
    if (key := g.get("key")) is not None:
        return key_holder(key)
    client = auth.client()
    return Party(f"client {client.id}", f"owner {client.owner}")


def key_holder(key: auth.Key) -> Party:
    """Who holds a key: pilots share one and are machines of its owner, others are people.

    People have a share of their own, which their owner's machines do not take.
    """
    if key.scope == "pilot":
        return Party(owner=f"owner {key.owner}")
    return Party(f"key {key.id}", f"people of {key.owner}")


def send_content(sha256: str, party: Party | None = None) -> Response:
    """Answer with a file of the store, to whoever shows a token or to `party`.

    Raises ObjectNotFound when it is not there, ServerBusy while too many are being sent.
    """
    store = current().store
    size = store.size(sha256) if is_sha256(sha256) else None
    if size is None:
        raise ObjectNotFound(f"there is no file {sha256[:64]!r}")
    response = Response(
        FileWrapper(store.open(sha256), PIECE_BYTES),  # unlike gunicorn's, it seeks for ranges
        mimetype="application/octet-stream",
        direct_passthrough=True,
    )
    response.content_length = size
    response.set_etag(sha256)
    response.headers["Cache-Control"] = "private, no-transform"
    try:
        response.make_conditional(request, accept_ranges=True, complete_length=size)
        return bounded(response, party or reader())
    except (RequestedRangeNotSatisfiable, ServerBusy):
        response.close()
        raise
