"""A server that stock BOINC clients speak to, and what they say."""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flask import Flask
from tests.boinc_captures import NAMES, captures
from tests.factories import make_bot, make_key, make_lease, make_owner
from werkzeug.test import TestResponse

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.boinc.application import offers
from gridbot_server.boinc.protocol.names import Lease
from gridbot_server.boinc.protocol.tags import Grammar, Section, read
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.commands import first_start
from gridbot_server.feeder.feeding import Feeder
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.storage.files import FolderStore
from gridbot_server.web.app import create_app

MANIFEST = Manifest("ann", ("echo", "{i}"), {"i": "int"})
BUNDLED = Manifest("ann", ("echo", "{i}"), {"i": "int"}, outputs=("stdout", "out"))
FIRST, SECOND = "run1_003_ok", "run1_008_ok"
GRAMMAR = Grammar(
    root="scheduler_reply",
    inside={
        "": frozenset({"scheduler_reply"}),
        "scheduler_reply": frozenset({"file_info", "workunit", "result"})
        | {"result_ack", "result_abort", "app", "app_version"},
    },
    raw=frozenset({"code_sign_key", "code_sign_key_signature", "coproc"})
    | {"xml_signature", "file_signature"},
)


@dataclass(frozen=True)
class Site:
    """A server with what setup makes, and one volunteer's key."""

    app: Flask
    settings: Settings
    conn: db.Connection
    key: str

    def ask(self, capture: str = FIRST, body: bytes | None = None, **values: Any) -> Section:
        """The reply to a captured request, of which some values are others."""
        answer = self.post("scheduler", self.request(capture, body, **values))
        assert answer.status_code == 200
        return read(answer.text, GRAMMAR)

    def request(self, capture: str, body: bytes | None = None, **values: Any) -> bytes:
        text = (captures()[capture] if body is None else body).decode()
        for name, value in {"authenticator": self.key, **values}.items():
            text, count = re.subn(rf"<{name}>[^<]*</{name}>", f"<{name}>{value}</{name}>", text)
            assert count, name
        return text.encode()

    def post(self, path: str, body: bytes) -> TestResponse:
        # The type is what a stock client says of its XML.
        return self.app.test_client().post(
            f"/boinc/{path}", data=body, content_type="application/x-www-form-urlencoded"
        )

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.app.test_client().get(f"/boinc/{path}", headers=headers, buffered=True)

    def bot(self, manifest: Manifest, **columns: Any) -> int:
        """A BOT that is signed for stock clients."""
        owner = make_owner(self.conn, manifest.owner)
        store = FolderStore(self.settings.files, self.settings.uploads)
        signed = offers.sign(self.conn, self.settings, store, manifest).text()
        return make_bot(self.conn, owner, 3, manifest=manifest.text(), boinc=signed, **columns)

    @contextmanager
    def fed(self) -> Iterator[None]:
        """The jobs that are there now are in the scheduling buffer."""
        ((database,),) = self.rows("SELECT value FROM setting WHERE name = 'database'")
        buffer = SchedulingBuffer.create(
            self.settings.buffer_path, slots=64, slot_bytes=1024, machine=uuid.uuid4().hex,
            database=database,
        )  # fmt: skip
        try:
            Feeder(self.conn, buffer).run_once(1000.0)
            yield
        finally:
            buffer.close()
            self.settings.buffer_path.unlink()

    def rows(self, query: str, *values: object) -> list[Any]:
        return self.conn.execute(query.encode(), values).fetchall()


def opened(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    """A server as setup leaves it, and no feeder: what is given are lost replicas only."""
    first_start.prepare(settings)
    conn.execute("UPDATE setting SET value = %s WHERE name = 'boinc_names'", [NAMES.secret.hex()])
    app = create_app(settings)
    volunteer = make_owner(conn, "volunteer")
    yield Site(app, settings, conn, make_key(conn, volunteer, "join"))
    app.extensions["gridbot"].close()


def keep(conn: db.Connection, settings: Settings, contents: Iterable[bytes]) -> None:
    """Let a server have files."""
    store = FolderStore(settings.files, settings.uploads)
    for data in contents:
        kept = store.put(len(data), io.BytesIO(data).read)
        conn.execute(
            "INSERT INTO blob (sha256, md5, size) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [kept.sha256, kept.md5, kept.size],
        )


def hostid(reply: Section) -> int:
    return reply.integer("hostid")


def acks(reply: Section) -> list[str]:
    return [item.text("name") for item in reply.all("result_ack")]


def lend(site: Site, manifest: Manifest = MANIFEST) -> Lease:
    """Let a new client hold a replica that it does not know of."""
    client = hostid(site.ask())
    replica = ReplicaId(site.bot(manifest), 2, 1)
    make_lease(site.conn, replica, client)
    return Lease(replica, client)
