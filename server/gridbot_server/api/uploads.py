"""Resumable uploads: the outputs of replicas, and scientists' input files.

`HEAD` says how much has arrived, `PUT` sends from there on; both may be repeated at will.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, request

from gridbot_client.protocol.messages import MAX_OUTPUTS, Manifest, ReplicaId, file_name
from gridbot_server.api.content import key_holder
from gridbot_server.api.parameters import checked_sha256, number, sha256
from gridbot_server.api.schema import BYTES, answers, query, sends, takes
from gridbot_server.api.stored_outputs import check_arrived, destination, storage_of
from gridbot_server.bots.outputs import is_wanted
from gridbot_server.cycles.storages.place import MOST_BYTES
from gridbot_server.errors import (
    Conflict,
    Gone,
    ObjectNotFound,
    ServerBusy,
    TooLarge,
    WrongOffset,
)
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.responses.results import UploadProgress
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Content, Destination, Upload

SQL = sql.load("uploads.sql")

blueprint = Blueprint("uploads", __name__)

_SHA256 = sha256("SHA-256 of the whole content, in hexadecimal.")
SIZE = number("Bytes of the whole content.", required=True)
OFFSET = number("Bytes that have arrived, where this part begins.", default=0)

tells_offset = sends(
    None,
    headers={
        "Upload-Offset": "Bytes that have arrived.",
        "Upload-Complete": "`?1` if all has arrived, else `?0`.",
        "Upload-Redirect": "`?1` if a PUT without a body says where to send the next part.",
    },
    errors=(HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
)
takes_part = answers(
    HTTPStatus.OK,
    HTTPStatus.TEMPORARY_REDIRECT,
    errors=(HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY),
)


@dataclass(frozen=True, slots=True)
class OutputUpload:
    """Which output of which replica is being uploaded."""

    id: ReplicaId
    name: str
    upload: Upload

    @property
    def values(self) -> dict[str, Any]:
        """Return it as the parameters of the queries."""
        return {
            **self.id._asdict(),
            "name": self.name,
            "sha256": bytes.fromhex(self.upload.sha256),
            "size": self.upload.size,
        }


@dataclass(frozen=True, slots=True)
class _AskedReplica:
    """What is asked of a replica, and what of it is here."""

    state: str  # of the BOT
    is_held: bool  # this client holds or held it
    manifest: str
    args: dict[str, Any]  # of the job
    has_storage: bool  # of its owner's, to which the outputs go
    others: int  # outputs beside the one in question
    bytes: int  # of these


@blueprint.route("/uploads/<int:bot>/<int:seq>/<int:replica>/<path:name>", methods=["HEAD"])
@auth.rule("client")
@query(sha256=_SHA256, size=SIZE)
@tells_offset
def find_output_offset(
    bot: int, seq: int, replica: int, name: str, sha256: str, size: int
) -> Response:
    """Tell how much of an output has arrived."""
    output = _output(ReplicaId(bot, seq, replica), name, sha256, size)
    asked, is_here = _looked_up(output)
    if asked.has_storage:  # where there is nothing between nothing and all
        return _told_offset(size if is_here else 0, is_complete=is_here, goes_elsewhere=True)
    return offset_answer(output.upload, is_here)


@blueprint.put("/uploads/<int:bot>/<int:seq>/<int:replica>/<path:name>")
@auth.rule("client")
@takes(BYTES)
@query(sha256=_SHA256, size=SIZE, offset=OFFSET)
@takes_part
def receive_output(
    bot: int, seq: int, replica: int, name: str, sha256: str, size: int, offset: int
) -> UploadProgress | Response:
    """Take the bytes of an output from `offset` on."""
    output = _output(ReplicaId(bot, seq, replica), name, sha256, size)
    asked, is_here = _looked_up(output)
    if is_here:
        return UploadProgress(offset=size, complete=True)
    if asked.has_storage:
        return _receive_stored(output, Manifest.from_text(asked.manifest), offset)
    client = auth.client()
    party = Party(f"client {client.id}", f"owner {client.owner}")
    received = receive_part(output.upload, offset, party)
    if isinstance(received, Response):
        return received
    if isinstance(received, int):
        return UploadProgress(offset=received, complete=False)
    with connection() as conn, conn.transaction():
        owner = rows.fetch_value(conn, int, SQL["lock_bot"], output.values)
        if owner is None:
            raise _gone(bot)
        _add_blob(conn, received, owner)
        _add_output(conn, output)
    look_again(received)
    return UploadProgress(offset=received.size, complete=True)


@blueprint.route("/api/v1/blobs/<sha256>", methods=["HEAD"])
@auth.rule("user")
@query(size=SIZE)
@tells_offset
def find_input_offset(sha256: str, size: int) -> Response:
    """Tell how much of an input file has arrived from this owner."""
    upload = _input(sha256, size)
    return offset_answer(upload, _has_blob(upload))


@blueprint.put("/api/v1/blobs/<sha256>")
@auth.rule("user")
@takes(BYTES)
@query(size=SIZE, offset=OFFSET)
@takes_part
def receive_input(sha256: str, size: int, offset: int) -> UploadProgress | Response:
    """Take the bytes of an input file from `offset` on.

    A content that others sent already is read whole all the same: only who has it gets to own it.
    """
    upload = _input(sha256, size)
    if _has_blob(upload):
        return UploadProgress(offset=size, complete=True)
    received = receive_part(upload, offset, key_holder(auth.key()))
    if isinstance(received, Response):
        return received
    if isinstance(received, int):
        return UploadProgress(offset=received, complete=False)
    with connection() as conn, conn.transaction():
        _add_blob(conn, received, auth.key().owner)
    look_again(received)
    return UploadProgress(offset=received.size, complete=True)


def _output(replica: ReplicaId, name: str, sha256: str, size: int) -> OutputUpload:
    upload = Upload(
        f"output {replica} {auth.client().id} {file_name(name, 'name')}",
        sha256,
        checked_size(size, current().settings.max_output_bytes),
    )
    return OutputUpload(replica, name, upload)


def _input(sha256: str, size: int) -> Upload:
    size = checked_size(size, current().settings.max_input_bytes)
    return Upload(f"input {auth.key().owner}", checked_sha256(sha256), size)


def checked_size(size: int, most: int) -> int:
    """Return how large an upload is to be.  Raises TooLarge."""
    if size > most:
        raise TooLarge(f"size: {size} bytes are more than this server takes, {most}")
    return size


def _receive_stored(
    output: OutputUpload, manifest: Manifest, offset: int
) -> UploadProgress | Response:
    """Say where an output goes that its owner has elsewhere; once it is there, note it."""
    size = checked_size(output.upload.size, MOST_BYTES)
    if request.content_length:
        raise Conflict(f"outputs of BOT {output.id.bot} go to a storage: ask where, without a body")
    with connection() as conn:
        storage = storage_of(conn, output.id.bot)
    if storage is None:
        raise _gone(output.id.bot)
    if offset != size:
        if offset:
            raise WrongOffset(f"offset {offset} is not 0", offset=0)
        return _sent_on(destination(storage, output.values, manifest.max_output_bytes))
    check_arrived(storage, output.values)
    with connection() as conn, conn.transaction():
        if rows.fetch_value(conn, int, SQL["lock_bot"], output.values) is None:
            raise _gone(output.id.bot)
        _add_output(conn, output)
    return UploadProgress(offset=size, complete=True)


def _check_replica(conn: Connection, output: OutputUpload) -> _AskedReplica:
    """Make sure that this client holds or held the replica, which has such an output, so large."""
    values = {**output.values, "client": auth.client().id}
    replica = rows.read_one(conn, _AskedReplica, SQL["replica"], values)
    if replica is None or replica.state == "cancelled":
        raise _gone(output.id.bot)
    if not replica.is_held:
        raise ObjectNotFound(f"this client never had the replica {output.id}")
    asked = Manifest.from_text(replica.manifest)
    if not is_wanted(output.name, asked, replica.args):
        raise ObjectNotFound(f"no output {output.name} is asked for of the replica {output.id}")
    limit = asked.max_output_bytes
    if replica.bytes + output.upload.size > limit:
        raise TooLarge(
            f"{output.name} has {output.upload.size} bytes and the replica's other outputs"
            f" {replica.bytes}; together it may have {limit}"
        )
    if replica.others >= MAX_OUTPUTS:
        raise TooLarge(f"the replica has {replica.others} outputs already, at most {MAX_OUTPUTS}")
    return replica


def _gone(bot: int) -> Gone:
    return Gone(f"BOT {bot} is cancelled or gone, its outputs are not wanted")


def _looked_up(output: OutputUpload) -> tuple[_AskedReplica, bool]:
    """What is asked of this client's replica, and whether the output is where it belongs.

    Raises if it may not have it.
    """
    with connection() as conn:
        asked = _check_replica(conn, output)
        is_known = rows.has_row(conn, SQL["has_output"], output.values)
    # The row alone does not do for a file of ours, which may have been lost with a disk.
    is_ours = is_known and not asked.has_storage
    is_lost = is_ours and current().store.size(output.upload.sha256) != output.upload.size
    return asked, is_known and not is_lost


def _has_blob(upload: Upload) -> bool:
    """Whether the owner of this key has sent the content already."""
    values = {"sha256": bytes.fromhex(upload.sha256), "owner": auth.key().owner}
    with connection() as conn:
        size = rows.fetch_value(conn, int, SQL["own_blob"], values)
    # The row alone does not do: the file may have been lost with a disk.
    if size is None or current().store.size(upload.sha256) != size:
        return False
    if size != upload.size:
        raise Conflict(f"size: {upload.sha256} has {size} bytes, not {upload.size}")
    return True


def receive_part(upload: Upload, offset: int, party: Party) -> Content | int | Response:
    """Take a part; or where the store takes parts itself and none came, say where to send it."""
    length = request.content_length or 0
    if offset + length > upload.size:
        raise TooLarge(f"{length} bytes from {offset} on go past the {upload.size} announced")
    services = current()
    with services.uploads.held(party):
        if services.store.takes_parts and length == 0:
            if offset == upload.size:
                return services.store.finish(upload)
            return _sent_on(services.store.destination(upload, offset, datetime.now(UTC)))
        # Bounded by the upload's own size.  One byte more, because under gunicorn, whose stream
        # ends by itself, reaching the limit counts as passing it.
        request.max_content_length = length + 1
        return services.store.receive(upload, offset, request.stream.read)


def _sent_on(there: Destination) -> Response:
    headers = {
        "Location": there.url,
        "Upload-Length": str(there.size),
        "Upload-Headers": json.dumps(there.headers),
        "Cache-Control": "no-store",
    }
    return Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers=headers)


def look_again(content: Content) -> None:
    """Have content sent again that was removed as nobody's while it was stored anew."""
    sha256 = content.sha256.hex()
    if current().store.size(sha256) is None:
        raise ServerBusy(f"{sha256} was just being removed, send it again")


def _add_blob(conn: Connection, content: Content, owner: int) -> None:
    values = {
        "sha256": content.sha256, "md5": content.md5, "size": content.size, "owner": owner,
    }  # fmt: skip
    conn.execute(SQL["add_blob"], values)
    conn.execute(SQL["add_owner"], values)


def _add_output(conn: Connection, output: OutputUpload) -> None:
    if conn.execute(SQL["add_output"], output.values).fetchone() is None:
        raise Conflict(f"the replica {output.id} has succeeded with another {output.name}")


def offset_answer(upload: Upload, is_complete: bool) -> Response:
    """Answer how much of an upload has arrived."""
    offset = upload.size if is_complete else current().store.offset(upload)
    return _told_offset(offset, is_complete=is_complete, goes_elsewhere=current().store.takes_parts)


def _told_offset(offset: int, *, is_complete: bool, goes_elsewhere: bool) -> Response:
    headers = {
        "Upload-Offset": str(offset),
        "Upload-Complete": _flag(is_complete),
        "Upload-Redirect": _flag(goes_elsewhere),
    }
    return Response(status=HTTPStatus.OK, headers=headers)


def _flag(value: bool) -> str:
    return "?1" if value else "?0"
