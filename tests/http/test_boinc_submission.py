from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.factories import make_key, make_owner, submission
from tests.http.conftest import Person

from gridbot_server.boinc.application.shim import windows
from gridbot_server.boinc.application.signed import SignedApplication
from gridbot_server.commands import first_start
from gridbot_server.settings import Settings
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.storage import db
from gridbot_server.web.app import create_app


@pytest.fixture
def operator(settings: Settings, conn: db.Connection) -> Iterator[Person]:
    first_start.prepare(settings)
    app = create_app(replace(settings, sign_on_submit=True))
    owner = make_owner(conn, "olga", operator=True)
    yield Person(app, make_key(conn, owner, "operator"), owner, "olga")
    app.extensions["gridbot"].close()


def offered(conn: db.Connection, person: Person, **changes: Any) -> tuple[str | None, str | None]:
    """What a BOT's row says of stock clients, once it was submitted."""
    bot = person("POST", "/api/v1/bots", json=submission(**changes)).json["id"]
    found, shown = row_of(conn, bot), person("GET", f"/api/v1/bots/{bot}").json
    assert shown["signed_for_boinc"] == (found[0] is not None)
    assert shown["boinc_unsuitable"] == found[1]
    return found


def row_of(conn: db.Connection, bot: int) -> tuple[str | None, str | None]:
    query = "SELECT boinc, boinc_unsuitable FROM bot WHERE id = %s"
    row = conn.execute(query, [bot]).fetchone()
    assert row is not None
    return row[0], row[1]


def test_an_operators_bot_is_for_stock_clients_at_once(
    operator: Person, conn: db.Connection
) -> None:
    text, why = offered(conn, operator)
    assert why is None
    assert text is not None
    (script,) = SignedApplication.from_text(text).scripts
    assert conn.execute("SELECT size FROM blob").fetchall() == [(len(script.encode()),)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"inputs": [{"name": "data", "sha256": "0" * 64, "size": 1}],
          "sources": {"data": ["http://host.example/data"]}}, "its inputs come from URLs"),
        ({"platforms": ["windows-arm64"]}, "no stock client is served on windows-arm64"),
        ({"command": ["echo", "{x}"], "placeholders": {"x": "text"},
          "jobs": {"items": [{"x": "ok"}, {"x": "é" * 1000}]}}, "put them into an input file"),
    ],
)  # fmt: skip
def test_a_bot_that_stock_clients_cannot_run_is_for_native_ones(
    operator: Person, conn: db.Connection, changes: dict[str, Any], why: str
) -> None:
    text, refused = offered(conn, operator, **changes)
    assert text is None
    assert refused is not None and why in refused


def test_one_unsuitable_job_of_a_stream_keeps_the_whole_bot_from_stock_clients(
    operator: Person, conn: db.Connection
) -> None:
    body = submission(jobs={"stream": True}, placeholders={"i": "text"})
    bot = operator("POST", "/api/v1/bots", json=body).json["id"]
    assert row_of(conn, bot)[0] is not None
    for offset, text in enumerate(["short", "é" * 1000]):
        line = json.dumps({"i": text}).encode()
        answer = operator("POST", f"/api/v1/bots/{bot}/jobs?offset={offset}", data=line)
        assert answer.status_code == 200, answer.data
        assert (row_of(conn, bot)[0] is not None) == (text == "short")


def test_without_the_signing_key_a_bot_is_for_native_clients(
    operator: Person, conn: db.Connection, settings: Settings
) -> None:
    settings.boinc_key_path.unlink()
    why = "the code signing key for BOINC clients is not on this server"
    assert offered(conn, operator) == (None, why)


def test_without_a_compiler_for_windows_its_package_is_named(
    operator: Person, conn: db.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows.build.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    text, why = offered(conn, operator, platforms=["windows-amd64"])
    assert text is None
    assert why is not None
    assert "install Debian's package gcc-mingw-w64-x86-64-win32" in why


def test_setup_makes_the_keys_once(settings: Settings, conn: db.Connection) -> None:
    def made() -> tuple[bytes, list[Any]]:
        first_start.prepare(settings)
        path = settings.boinc_key_path
        query = "SELECT * FROM setting WHERE name LIKE 'boinc%' ORDER BY name"
        return path.read_bytes(), conn.execute(query).fetchall()

    first = made()
    assert len(first[1]) == 2
    assert made() == first


def test_a_chain_of_keys_that_does_not_hold_stops_the_start(
    settings: Settings, conn: db.Connection, tmp_path: Path
) -> None:
    first_start.prepare(settings)
    row = conn.execute("SELECT value FROM setting WHERE name = 'boinc_chain'").fetchone()
    assert row is not None
    (link,) = json.loads(row[0])
    forged = json.dumps([link, {**link, "signature": ""}])
    conn.execute("UPDATE setting SET value = %s WHERE name = 'boinc_chain'", [forged])
    with pytest.raises(KeyFileError, match="key 2 of the chain is not signed"):
        first_start.prepare(settings)
