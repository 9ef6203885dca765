"""Resumable uploads: the outputs of replicas, and scientists' input files.

`HEAD` says how much has arrived, `PUT` sends from there on; both may be repeated at will.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, jsonify, request

from gridbot_client.protocol.messages import MAX_OUTPUTS, Manifest, ReplicaId, file_name
from gridbot_server.api.access import number_argument, sha256_argument
from gridbot_server.api.content import key_holder
from gridbot_server.bots.outputs import is_wanted
from gridbot_server.errors import (
    Conflict,
    Gone,
    ObjectNotFound,
    TooLarge,
)
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Content, Upload

SQL = sql.load("uploads.sql")

blueprint = Blueprint("uploads", __name__)


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


@blueprint.route("/uploads/<int:bot>/<int:seq>/<int:replica>/<path:name>", methods=["HEAD"])
@auth.rule("client")
def output_offset(bot: int, seq: int, replica: int, name: str) -> Response:
    """Tell how much of an output has arrived."""
    output = _output(ReplicaId(bot, seq, replica), name)
    with connection() as conn:
        _check_replica(conn, output)
        is_there = _has_output(conn, output)
    return _offset(output.upload, is_there)


@blueprint.put("/uploads/<int:bot>/<int:seq>/<int:replica>/<path:name>")
@auth.rule("client")
def receive_output(bot: int, seq: int, replica: int, name: str) -> Response:
    """Take the bytes of an output from `offset` on."""
    output = _output(ReplicaId(bot, seq, replica), name)
    with connection() as conn:
        _check_replica(conn, output)
        if _has_output(conn, output):
            return _progress(output.upload.size, is_complete=True)
    client = auth.client()
    received = _receive(output.upload, Party(f"client {client.id}", f"owner {client.owner}"))
    if isinstance(received, int):
        return _progress(received, is_complete=False)
    with connection() as conn, conn.transaction():
        if conn.execute(SQL["lock_bot"], output.values).fetchone() is None:
            raise _gone(bot)
        _add_blob(conn, received)
        _add_output(conn, output)
    return _progress(received.size, is_complete=True)


@blueprint.route("/api/v1/blobs/<sha256>", methods=["HEAD"])
@auth.rule("user")
def input_offset(sha256: str) -> Response:
    """Tell how much of an input file has arrived."""
    upload = _input(sha256)
    with connection() as conn:
        is_there = _has_blob(conn, upload)
    return _offset(upload, is_there)


@blueprint.put("/api/v1/blobs/<sha256>")
@auth.rule("user")
def receive_input(sha256: str) -> Response:
    """Take the bytes of an input file from `offset` on."""
    upload = _input(sha256)
    with connection() as conn:
        if _has_blob(conn, upload):
            return _progress(upload.size, is_complete=True)
    key = auth.key()
    received = _receive(upload, key_holder(key))
    if isinstance(received, int):
        return _progress(received, is_complete=False)
    with connection() as conn:
        _add_blob(conn, received)
    return _progress(received.size, is_complete=True)


def _output(replica: ReplicaId, name: str) -> OutputUpload:
    sha256 = sha256_argument(request.args.get("sha256"))
    upload = Upload(
        f"output {replica} {auth.client().id} {file_name(name, 'name')}",
        sha256,
        _size(current().settings.max_output_bytes),
    )
    return OutputUpload(replica, name, upload)


def _input(sha256: str) -> Upload:
    size = _size(current().settings.max_input_bytes)
    return Upload(f"input {auth.key().owner}", sha256_argument(sha256), size)


def _size(most: int) -> int:
    size = number_argument("size")
    if size > most:
        raise TooLarge(f"size: {size} bytes are more than this server takes, {most}")
    return size


def _check_replica(conn: Connection, output: OutputUpload) -> None:
    """Make sure that this client holds or held the replica, which has such an output, so large."""
    values = {**output.values, "client": auth.client().id}
    row = conn.execute(SQL["replica"], values).fetchone()
    if row is None or row[0] == "cancelled":
        raise _gone(output.id.bot)
    _, is_held, manifest, others, bytes_there = row
    if not is_held:
        raise ObjectNotFound(f"this client never had the replica {output.id}")
    asked = Manifest.from_text(manifest)
    if not is_wanted(output.name, asked):
        raise ObjectNotFound(f"no output {output.name} is asked for of the replica {output.id}")
    limit = asked.max_output_bytes
    if bytes_there + output.upload.size > limit:
        raise TooLarge(
            f"{output.name} has {output.upload.size} bytes and the replica's other outputs"
            f" {bytes_there}; together it may have {limit}"
        )
    if others >= MAX_OUTPUTS:
        raise TooLarge(f"the replica has {others} outputs already, at most {MAX_OUTPUTS}")


def _gone(bot: int) -> Gone:
    return Gone(f"BOT {bot} is cancelled or gone, its outputs are not wanted")


def _has_output(conn: Connection, output: OutputUpload) -> bool:
    return (
        conn.execute(SQL["has_output"], output.values).fetchone() is not None
        and current().store.size(output.upload.sha256) == output.upload.size
    )


def _has_blob(conn: Connection, upload: Upload) -> bool:
    values = {"sha256": bytes.fromhex(upload.sha256)}
    row = conn.execute(SQL["blob"], values).fetchone()
    # The row alone does not do: the file may have been lost with a disk.
    if row is None or current().store.size(upload.sha256) != row[0]:
        return False
    if row[0] != upload.size:
        raise Conflict(f"size: {upload.sha256} has {row[0]} bytes, not {upload.size}")
    return True


def _receive(upload: Upload, party: Party) -> Content | int:
    offset = number_argument("offset", default=0)
    length = request.content_length or 0
    if offset + length > upload.size:
        raise TooLarge(f"{length} bytes from {offset} on go past the {upload.size} announced")
    services = current()
    with services.uploads.held(party):
        # Bounded by the upload's own size.  One byte more, because under gunicorn, whose stream
        # ends by itself, reaching the limit counts as passing it.
        request.max_content_length = length + 1
        return services.store.receive(upload, offset, request.stream.read)


def _add_blob(conn: Connection, content: Content) -> None:
    values = {"sha256": content.sha256, "md5": content.md5, "size": content.size}
    conn.execute(SQL["add_blob"], values)


def _add_output(conn: Connection, output: OutputUpload) -> None:
    if conn.execute(SQL["add_output"], output.values).fetchone() is None:
        raise Conflict(f"the replica {output.id} has succeeded with another {output.name}")


def _offset(upload: Upload, is_complete: bool) -> Response:
    offset = upload.size if is_complete else current().store.offset(upload)
    headers = {"Upload-Offset": str(offset), "Upload-Complete": "?1" if is_complete else "?0"}
    return Response(status=HTTPStatus.OK, headers=headers)


def _progress(offset: int, is_complete: bool) -> Response:
    return jsonify({"offset": offset, "complete": is_complete})
