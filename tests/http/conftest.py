"""The application over a real database, as several people see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from tests.factories import make_client, make_key, make_owner
from tests.http.described import watching
from werkzeug.datastructures import Headers

from gridbot_client.protocol.messages import WorkReply, WorkRequest, encode_reply
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.dispatch.engine import Queued
from gridbot_server.http.services import Answered, Dispatched
from gridbot_server.settings import Settings
from gridbot_server.signing import keys
from gridbot_server.storage import db, store_record
from gridbot_server.web.app import create_app


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status_code: int
    json: Any
    data: bytes
    headers: Headers


@dataclass(frozen=True)
class Person:
    """Somebody with a key, or a client with its token."""

    app: Flask
    token: str
    id: int  # the owner's, or the client's
    name: str

    def __call__(self, method: str, path: str, **options: Any) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        client = self.app.test_client()
        found = client.open(path, method=method, headers=headers, buffered=True, **options)
        json = found.get_json() if found.is_json and found.data else None
        return Answer(found.status_code, json, found.data, found.headers)


@dataclass(frozen=True)
class Site:
    """A server's application and the people around it."""

    app: Flask
    settings: Settings
    conn: db.PostgresConnection

    def person(self, name: str, scope: str = "user", **columns: Any) -> Person:
        owner = make_owner(self.conn, name, operator=scope == "operator", **columns)
        return Person(self.app, make_key(self.conn, owner, scope), owner, name)

    def key_of(self, person: Person, scope: str, **columns: Any) -> Person:
        return replace(person, token=make_key(self.conn, person.id, scope, **columns))

    def client_of(self, person: Person, **columns: Any) -> Person:
        client, token = make_client(self.conn, person.id, **columns)
        return Person(self.app, token, client, person.name)


@pytest.fixture(autouse=True)
def undescribed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Hold all responses of all applications against the API's description."""
    faults: list[str] = []
    monkeypatch.setattr(Flask, "wsgi_app", watching(Flask.wsgi_app, faults))
    yield faults
    assert faults == []


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    found = Settings(
        data=tmp_path, dsn=dsn, max_body_bytes=100_000, max_input_bytes=5_000_000,
        max_output_bytes=1_000_000,
    )  # fmt: skip
    found.make_directories()
    return found


@pytest.fixture
def site(settings: Settings, conn: db.PostgresConnection) -> Iterator[Site]:
    keys.create(settings.project_key_path)
    public = keys.public_bytes(settings.project_key_path).hex()
    conn.execute("INSERT INTO setting VALUES ('project_key', %s)", [public])
    conn.execute("INSERT INTO project_key (key) VALUES (%s)", [bytes.fromhex(public)])
    store_record.pair(conn, settings.open_store())
    app = create_app(settings, engine=Echo)
    yield Site(app, settings, conn)
    app.extensions["gridbot"].close()


class Echo:
    """Stands where the engine does: answers with what it was asked."""

    def handle(self, token_hash: bytes, body: bytes) -> bytes:
        return encode_reply(WorkReply(epoch=1, next_request_seconds=1, message=body.decode()))

    def begin(self, token_hash: bytes, body: bytes, tell: Callable[[Answered], None]) -> None:
        raise AssertionError("only gunicorn's loop calls this")

    def take(
        self, token_hash: bytes, request: WorkRequest, tell: Callable[[Dispatched], None]
    ) -> None:
        raise AssertionError("only what serves BOINC clients calls this")

    def ask_again(self, item: Queued) -> None:
        raise AssertionError("only gunicorn's loop calls this")

    @property
    def candidates(self) -> Collection[Candidate]:
        raise AssertionError("only gunicorn's loop asks for this")

    def close(self) -> None:
        pass


@pytest.fixture
def alice(site: Site) -> Person:
    return site.person("alice")


@pytest.fixture
def bob(site: Site) -> Person:
    return site.person("bob")


@pytest.fixture
def operator(site: Site) -> Person:
    return site.person("root", scope="operator")
