"""`GET /files/SHA256`: content by its hash, for those whose it is and for clients that need it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from http import HTTPStatus

from flask import Blueprint, Request, Response, g, request
from werkzeug.exceptions import RequestedRangeNotSatisfiable
from werkzeug.wsgi import FileWrapper

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.api.parameters import is_sha256
from gridbot_server.api.schema import BYTES, sends
from gridbot_server.errors import ObjectNotFound, ServerBusy
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.http.slow_readers import PIECE_BYTES, bounded
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

log = logging.getLogger(__name__)

SQL = sql.load("content.sql")

OLD_CLIENTS = "gridbot"
"""What native clients and the Python API called themselves before they followed redirections."""

blueprint = Blueprint("content", __name__)

sends_content = sends(
    BYTES, HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NOT_MODIFIED,
    HTTPStatus.TEMPORARY_REDIRECT,
    errors=(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,),
)  # fmt: skip
"""Marks a view that answers with `send_content`."""


@blueprint.get("/files/<sha256>")
@auth.rule("content")
@sends_content
def fetch_content(sha256: str) -> Response:
    """Send the content, or the range of it that is asked for.

    A person's key reads what its owner sent or what the owner's BOTs returned; a client reads the
    inputs of the jobs that it holds.  Any other content is answered as if it were not here.
    """
    with connection() as conn:
        if not (is_sha256(sha256) and _may_read(conn, sha256)):
            raise _not_found(sha256)
    size = current().store.size(sha256)  # an object store's may take long
    if size is None:
        with connection() as conn:
            raise _lost(conn, sha256)
    return _send(sha256, size, reader())


def _lost(conn: Connection, sha256: str) -> ObjectNotFound:
    """The error for a file that should be here.

    A client's replicas that need it are taken back before the client reports that they failed: that
    is no attempt, and no fault of its host.  Their BOTs are held until somebody brings the file.
    """
    said = f"the server has lost the file {sha256}"
    log.error("%s, which the database names", said)
    if (client := g.get("client")) is not None:
        why = (
            f"{said}, its input: put it back into the server's files, or submit it again with any"
            " BOT; then resume"
        )
        with conn.transaction():
            values = {
                "client": client.id, "hash": sha256, "content": bytes.fromhex(sha256), "why": why,
            }  # fmt: skip
            held = rows.fetch_values(conn, int, SQL["hold_losers"], values)
            found = rows.fetch(conn, ReplicaId, SQL["leases"], {**values, "bots": held})
            relinquish(conn, Event.RETURNED, {"client": client.id, **_columns(found)})
    return ObjectNotFound(said)


def _columns(ids: list[ReplicaId]) -> dict[str, list[int]]:
    return {
        "bots": [id.bot for id in ids],
        "seqs": [id.seq for id in ids],
        "replicas": [id.replica for id in ids],
    }


def _may_read(conn: Connection, sha256: str) -> bool:
    if (key := g.get("key")) is not None:
        values = {"key": key.id, "sha256": bytes.fromhex(sha256)}
        return rows.fetch_value(conn, int, SQL["of_key"], values) is not None
    held = {
        "client": auth.client().id, "hash": sha256, "content": bytes.fromhex(sha256),
    }  # fmt: skip
    manifests = rows.fetch_values(conn, str, SQL["leased_manifests"], held)
    # A command may hold the hash as well, which is no right to the content.
    if any(sha256 == ref.sha256 for text in manifests for ref in Manifest.from_text(text).inputs):
        return True
    return rows.fetch_value(conn, int, SQL["of_leased_job"], held) is not None


def is_of(conn: Connection, owner: int, sha256: str) -> bool:
    """Whether an owner has sent a file, or a BOT of that owner has returned it."""
    values = {"owner": owner, "sha256": bytes.fromhex(sha256)}
    return rows.has_row(conn, SQL["of_owner"], values)


def _not_found(sha256: str) -> ObjectNotFound:
    return ObjectNotFound(f"there is no file {sha256[:64]!r}")


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


def _follows(request: Request) -> bool:
    """Whether who asks fetches from elsewhere; native clients of before 0.2 do not."""
    return request.headers.get("User-Agent") != OLD_CLIENTS


def send_content(sha256: str, party: Party | None = None) -> Response:
    """Answer with a file of the store that the caller may read, or `party`; or say where it is.

    Raises ObjectNotFound when it is not there, ServerBusy while too many are being sent.
    """
    size = current().store.size(sha256) if is_sha256(sha256) else None
    if size is None:
        raise _not_found(sha256)
    return _send(sha256, size, party or reader())


def _send(sha256: str, size: int, party: Party) -> Response:
    store = current().store
    if _follows(request) and (place := store.link(sha256, datetime.now(UTC))):
        # Not to be kept: who asks again may have lost the right to it.
        return Response(
            status=HTTPStatus.TEMPORARY_REDIRECT,
            headers={"Location": place, "Cache-Control": "no-store"},
        )
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
        return bounded(response, party)
    except (RequestedRangeNotSatisfiable, ServerBusy):
        response.close()
        raise
