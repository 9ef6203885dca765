"""Checkpoints of replicas: sent by those who hold a lease, given to who goes on with the job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from flask import Blueprint, Response

from gridbot_client.protocol.messages import MAX_BIGINT, Manifest, ReplicaId
from gridbot_server.api.content import send_content, sends_content
from gridbot_server.api.parameters import number, sha256
from gridbot_server.api.schema import BYTES, answers, query, takes
from gridbot_server.api.uploads import (
    OFFSET,
    SIZE,
    checked_size,
    look_again,
    offset_answer,
    receive_part,
    takes_part,
    tells_offset,
)
from gridbot_server.errors import Conflict, Gone, ObjectNotFound, TooLarge
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.responses.clients import LatestCheckpoint
from gridbot_server.models.responses.results import UploadProgress
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import rows
from gridbot_server.storage.checkpoints import SQL, remove_unused
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Content, Upload

blueprint = Blueprint("checkpoints", __name__, url_prefix="/checkpoints")

_PACKING_BYTES = 128 << 10  # beside what is packed
_PATH = "/<int:bot>/<int:seq>/<int:replica>"
_SHA256 = sha256("SHA-256 of the packed checkpoint, in hexadecimal.")
# The next one must have a number, too.
_NUMBER = number(
    "Its number, which rises along the job.", least=1, most=MAX_BIGINT - 1, required=True
)


class _Held(NamedTuple):
    """The lease under which a checkpoint is sent."""

    manifest: str
    round: int
    host: int
    is_shared: bool  # other machines may go on from it


@blueprint.route(_PATH, methods=["HEAD"])
@auth.rule("client")
@query(sha256=_SHA256, size=SIZE, number=_NUMBER)
@tells_offset
def find_checkpoint_offset(
    bot: int, seq: int, replica: int, sha256: str, size: int, number: int
) -> Response:
    """Tell how much of a checkpoint has arrived."""
    id = ReplicaId(bot, seq, replica)
    upload = _upload(id, sha256, size)
    return offset_answer(upload, _has(id, upload, number))


@blueprint.put(_PATH)
@auth.rule("client")
@takes(BYTES)
@query(sha256=_SHA256, size=SIZE, number=_NUMBER, offset=OFFSET)
@takes_part
def receive_checkpoint(
    bot: int, seq: int, replica: int, sha256: str, size: int, number: int, offset: int
) -> UploadProgress | Response:
    """Take the bytes of a checkpoint from `offset` on; whole, it replaces the one before it.

    Only while the client holds the replica: what comes later is Gone.
    """
    id = ReplicaId(bot, seq, replica)
    upload = _upload(id, sha256, size)
    if _has(id, upload, number):
        return UploadProgress(offset=size, complete=True)
    client = auth.client()
    received = receive_part(upload, offset, Party(f"client {client.id}", f"owner {client.owner}"))
    if isinstance(received, Response):
        return received
    if isinstance(received, int):
        return UploadProgress(offset=received, complete=False)
    _keep(id, received, number)
    look_again(received)
    return UploadProgress(offset=received.size, complete=True)


@blueprint.get(f"{_PATH}/latest")
@auth.rule("client")
@answers()
def find_latest_checkpoint(bot: int, seq: int, replica: int) -> LatestCheckpoint:
    """Tell with which checkpoint a replica that the client holds begins."""
    return _latest(ReplicaId(bot, seq, replica)) or LatestCheckpoint()


@blueprint.get(f"{_PATH}/content")
@auth.rule("client")
@query(sha256=_SHA256)
@sends_content
def fetch_checkpoint(bot: int, seq: int, replica: int, sha256: str) -> Response:
    """Send the checkpoint with which a replica begins."""
    found = _latest(ReplicaId(bot, seq, replica))
    if found is None or found.sha256 != sha256:
        raise ObjectNotFound(f"the replica does not begin with the checkpoint {sha256[:64]!r}")
    return send_content(sha256)


def _latest(id: ReplicaId) -> LatestCheckpoint | None:
    """The checkpoint of the job, unless its content was lost."""
    values = {**id._asdict(), "client": auth.client().id}
    with connection() as conn:
        found = rows.read_one(conn, LatestCheckpoint, SQL["latest"], values)
    if found is None or found.sha256 is None:
        return None
    return found if current().store.size(found.sha256) == found.size else None


def _upload(id: ReplicaId, sha256: str, size: int) -> Upload:
    size = checked_size(size, current().settings.max_output_bytes + _PACKING_BYTES)
    return Upload(f"checkpoint {id} {auth.client().id}", sha256, size)


def _held(conn: Connection, id: ReplicaId) -> _Held:
    values = {**id._asdict(), "client": auth.client().id}
    held = rows.fetch_one(conn, _Held, SQL["held"], values)
    if held is None:
        raise Gone(f"the client does not hold the replica {id} (any more)")
    return held


def _has(id: ReplicaId, upload: Upload, number: int) -> bool:
    """Whether the checkpoint is here already.  Raises what keeps the client from sending it."""
    with connection() as conn:
        held = _held(conn, id)
        asked = Manifest.from_text(held.manifest)
        if asked.checkpoint is None:
            raise ObjectNotFound(f"jobs of BOT {id.bot} have no checkpoints")
        if upload.size > asked.max_output_bytes + _PACKING_BYTES:
            raise TooLarge(
                f"the checkpoint has {upload.size} bytes, and the BOT's outputs at most"
                f" {asked.max_output_bytes}"
            )
        values = _values(id, held, number, bytes.fromhex(upload.sha256), upload.size)
        is_known = rows.has_row(conn, SQL["has"], values)
    return is_known and current().store.size(upload.sha256) == upload.size


def _keep(id: ReplicaId, content: Content, number: int) -> None:
    """Let a checkpoint take the place of those before it."""
    store, now = current().store, datetime.now(UTC)
    with connection() as conn:
        try:
            with conn.transaction():
                gone = _replaced(conn, id, content, number)
        except (Gone, Conflict):
            remove_unused(conn, store, [content.sha256], now)
            raise
        remove_unused(conn, store, gone, now)


def _replaced(conn: Connection, id: ReplicaId, content: Content, number: int) -> list[bytes]:
    values = _values(id, _held(conn, id), number, content.sha256, content.size)
    gone = rows.fetch_values(conn, bytes, SQL["replaced"], values)
    if rows.fetch_value(conn, int, SQL["keep"], values) is None:
        raise Conflict(f"number: {number} is not above that of the last checkpoint")
    conn.execute(SQL["drop"], {**values, "hashes": gone})
    return gone


def _values(id: ReplicaId, held: _Held, number: int, sha256: bytes, size: int) -> dict[str, Any]:
    return {
        **id._asdict(), "host": held.host, "round": held.round, "is_shared": held.is_shared,
        "number": number, "sha256": sha256, "size": size,
    }  # fmt: skip
