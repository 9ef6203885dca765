"""Takes what stock clients upload: a bundle of a replica's outputs, or single ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from psycopg import Rollback

from gridbot_client.protocol.messages import INLINE_OUTPUT_BYTES, Manifest
from gridbot_server.boinc.application.description import output_of
from gridbot_server.boinc.application.shim import bundle
from gridbot_server.boinc.application.shim.bundle import BadBundle, Member
from gridbot_server.boinc.protocol import upload
from gridbot_server.boinc.protocol.names import OutputName
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.protocol.upload import SizeQuery, UploadRequest
from gridbot_server.boinc.session.project import Project
from gridbot_server.errors import HashMismatch, ServerBusy, WrongOffset
from gridbot_server.overload.transfer_slots import Party, Slots
from gridbot_server.storage import files, sql
from gridbot_server.storage.db import Connect, Connection
from gridbot_server.storage.files import Content, Store
from gridbot_server.storage.rows import fetch_one, fetch_only_value

SQL = sql.load("boinc.sql")

Read = Callable[[int], bytes]

# Different files for one replica: a client that was restarted may have computed it anew.
_MOST_UPLOADS = 10


@dataclass(frozen=True, slots=True)
class Intake:
    """What is needed to take an upload; `slots` bounds how many are taken at once."""

    project: Project
    store: Store
    connect: Connect
    slots: Slots

    def answer(self, read: Read, length: int) -> str:
        """Serve one request whose body has `length` bytes; the answer says what went wrong."""
        try:
            head, found = _read_head(read)
            if isinstance(found, SizeQuery):
                return upload.arrived(self._size(found.name))
            if length - found.data_at > found.bytes_left:
                raise BoincError(f"{found.name}: the body goes on after {found.size} bytes")
            return self._receive(found, _rest(head[found.data_at :], read))
        except (BoincError, BadBundle) as error:
            return upload.refused(str(error), is_transient=False)
        except (HashMismatch, ServerBusy, WrongOffset) as error:
            return upload.refused(error.detail, is_transient=True)

    def _size(self, name: str) -> int:
        output = self._output(name)
        with self.connect() as conn:
            there = _upload(conn, output)
        return there.size if there else self.store.offset(_partial(name, 0, ""))

    def _output(self, name: str) -> OutputName:
        output = self.project.names.read_output(name)
        if output is None:
            raise BoincError(f"{name} was never asked for")
        return output

    def _receive(self, asked: UploadRequest, read: Read) -> str:
        output = self._output(asked.name)
        if not self.project.names.is_certificate(asked.name, asked.max_size, asked.signature):
            raise BoincError(f"{asked.name}: its certificate is not ours")
        with self.connect() as conn:
            replica, there = _replica(conn, output), _upload(conn, output)
        if there and (there.md5, there.size) == (asked.md5, asked.size):
            return upload.accepted()
        if replica.is_reported:
            raise _reported(asked.name)
        if there and there.times >= _MOST_UPLOADS:
            raise BoincError(f"{asked.name}: {there.times} different files came already")
        # Not before: a client that has nothing to upload must not keep others from it.
        with self.slots.held(Party(f"client {output.lease.client}", f"owner {replica.owner}")):
            return self._receive_checked(output, Manifest.from_text(replica.manifest), asked, read)

    def _receive_checked(
        self, output: OutputName, manifest: Manifest, asked: UploadRequest, read: Read
    ) -> str:
        if manifest.boinc_api:  # before it takes room; once more when it has come
            with self.connect() as conn:
                _check_total(conn, output, asked.size, manifest.max_output_bytes)
        there = _partial(asked.name, asked.size, asked.md5)
        self.store.rewind(there, asked.offset)
        if (begun := self.store.offset(there)) != asked.offset:
            return upload.refused(f"{begun} bytes are here, not {asked.offset}", is_transient=True)
        members: list[Member] = []
        name = output_of(manifest, output.number)

        def look(file: BinaryIO) -> None:
            if name is None:
                members.extend(bundle.members(file, asked.size, manifest))

        content = self.store.receive(there, asked.offset, read, look)
        if isinstance(content, int):
            return upload.refused(f"{content} of {asked.size} bytes came", is_transient=True)
        kept = [_Kept(name, content)] if name else self._members(content, members)
        if not self._keep(output, content, kept, manifest):
            raise _reported(asked.name)
        return upload.accepted()

    def _keep(
        self, output: OutputName, content: Content, kept: Sequence[_Kept], manifest: Manifest
    ) -> bool:
        """Note the upload and the outputs in it, unless the replica succeeded meanwhile."""
        outputs = [item.content for item in kept if item.inline is None]
        # Others have uploads of their own.
        single = {"single": output_of(manifest, output.number) if manifest.boinc_api else None}
        with self.connect() as conn, conn.transaction() as transaction:
            conn.execute(SQL["drop_outputs"], {**_values(output), **single})
            conn.execute(SQL["lock_lease"], _values(output))
            is_reported = _replica(conn, output).is_reported
            if is_reported:
                raise Rollback(transaction)
            if manifest.boinc_api:
                _check_total(conn, output, content.size, manifest.max_output_bytes)
            # A bundle stays as well: what is in the store is listed.  In the order of their hashes,
            # so that two uploads do not wait for each other's rows.
            for blob in sorted([content, *outputs], key=lambda blob: blob.sha256):
                conn.execute(SQL["add_blob"], _hashes(blob))
                if blob in outputs:
                    conn.execute(SQL["add_owner"], {**_values(output), **_hashes(blob)})
            for item in kept:
                values = {"name": item.name, "content": item.inline, **_hashes(item.content)}
                conn.execute(SQL["add_output"], {**_values(output), **values})
            conn.execute(SQL["add_upload"], {**_values(output), **_hashes(content), **single})
        return not is_reported

    def _members(self, content: Content, members: Sequence[Member]) -> list[_Kept]:
        """The outputs of a bundle: small ones as their bytes, large ones kept in the store."""
        kept = []
        with self.store.open(content.sha256.hex()) as file:
            for member in members:
                file.seek(member.offset)
                if member.size <= INLINE_OUTPUT_BYTES:
                    data = file.read(member.size)
                    kept.append(_Kept(member.name, _content(data), data))
                else:
                    read = _limited(file, member.size)
                    kept.append(_Kept(member.name, self.store.put(member.size, read)))
        return kept


@dataclass(frozen=True, slots=True)
class _Kept:
    """One output that came, with its bytes when these go into the database."""

    name: str
    content: Content
    inline: bytes | None = None


def _read_head(read: Read) -> tuple[bytes, SizeQuery | UploadRequest]:
    head = b""
    while True:
        chunk = read(upload.MAX_HEAD_BYTES)
        head += chunk
        found = upload.parse(head, is_all=not chunk)
        if found is not None:
            return head, found


def _rest(begun: bytes, read: Read) -> Read:
    """Reads on after the head, of which a part of the data was read along."""
    left = [begun] if begun else []
    return lambda most: left.pop() if left else read(most)


def _partial(name: str, size: int, md5: str) -> files.Upload:
    return files.Upload(f"boinc {name}", "", size, md5)


class _Replica(NamedTuple):
    manifest: str  # of its BOT
    is_reported: bool  # its success
    owner: int  # of the client


class _Upload(NamedTuple):
    md5: str
    size: int
    times: int  # that a file came in the place of another


def _replica(conn: Connection, output: OutputName) -> _Replica:
    replica = fetch_one(conn, _Replica, SQL["replica"], _values(output))
    if replica is None:
        raise BoincError("the replica's BOT is cancelled or gone, its outputs are not wanted")
    return replica


def _upload(conn: Connection, output: OutputName) -> _Upload | None:
    return fetch_one(conn, _Upload, SQL["upload"], _values(output))


def _check_total(conn: Connection, output: OutputName, size: int, most: int) -> None:
    """Make sure that uploads of single outputs come to no more than a replica may have."""
    others = fetch_only_value(conn, int, SQL["other_uploads"], _values(output))
    if others + size > most:
        raise BoincError(f"outputs of {others + size} bytes, at most {most}")


def _reported(name: str) -> BoincError:
    return BoincError(f"{name}: its replica has succeeded with another file")


def _values(output: OutputName) -> dict[str, Any]:
    lease = output.lease
    return {**lease.replica._asdict(), "client": lease.client, "number": output.number}


def _hashes(content: Content) -> dict[str, Any]:
    return {"sha256": content.sha256, "md5": content.md5, "size": content.size}


def _content(data: bytes) -> Content:
    md5 = hashlib.md5(data, usedforsecurity=False).digest()
    return Content(hashlib.sha256(data).digest(), md5, len(data))


def _limited(file: BinaryIO, size: int) -> Read:
    """Reads a part of a file, from where it stands."""
    end = file.tell() + size
    return lambda most: file.read(min(most, end - file.tell()))
