"""Known answers as they are submitted, and that nobody reads them."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.factories import json_lines, submission
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import refused, runner

TEXT = b"the answer is 42\n"


def known(job: int = 3, is_: bytes = TEXT, **changes: Any) -> dict[str, Any]:
    output = {
        "name": "stdout",
        "sha256": hashlib.sha256(is_).hexdigest(),
        "size": len(is_),
        "content": base64.b64encode(is_).decode(),
        **changes,
    }
    return {"job": job, "outputs": [{name: of for name, of in output.items() if of is not None}]}


def kept(site: Site) -> list[tuple[Any, ...]]:
    return site.conn.execute(
        "SELECT k.seq, o.name, o.size, o.content FROM known_answer k"
        " LEFT JOIN known_output o USING (bot, seq) ORDER BY 1, 2"
    ).fetchall()


def test_known_answers_come_with_a_submission(site: Site, alice: Person) -> None:
    body = submission(known_answers=[known(3), known(7, b"7\n")])
    assert alice("POST", "/api/v1/bots", json=body).status_code == 201
    assert kept(site) == [(3, "stdout", len(TEXT), TEXT), (7, "stdout", 2, b"7\n")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"known_answers": [known(10)]}, "job 10: the BOT has 10 jobs, counted from 0"),
        ({"known_answers": [known(1), known(1)]}, "job 1: given twice"),
        ({"known_answers": [known(1, name="x")]}, "x is none of the BOT's outputs"),
        ({"known_answers": [known(1, name="../x")]}, "is not a usable file name"),
        ({"known_answers": [known(1, content="?")]}, "job 1: stdout:"),
        ({"known_answers": [known(1, sha256="0" * 64)]}, "the content has another hash"),
        ({"known_answers": [known(1, size=5)]}, f"has {len(TEXT)} bytes, not 5"),
        ({"known_answers": [known(1)], "outputs": ["stdout", "x"]}, "x is missing"),
        (
            {"known_answers": [known(1, content=None, size=None)], "validator": "text"},
            "a hash alone serves the validator exact only",
        ),
        ({"known_answers": [known(1, content=None)]}, "not uploaded yet: stdout"),
    ],
)
def test_a_wrong_known_answer_is_told_at_submission(
    site: Site, alice: Person, fields: dict[str, Any], said: str
) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(**fields))
    assert answer.status_code in (400, 409)
    assert said in answer.json["detail"]
    assert site.conn.execute("SELECT count(*) FROM bot").fetchone() == (0,)


def test_a_hash_alone_serves_an_exact_validator(site: Site, alice: Person) -> None:
    body = submission(known_answers=[known(1, content=None, size=None)])
    assert alice("POST", "/api/v1/bots", json=body).status_code == 201
    assert kept(site) == [(1, "stdout", None, None)]


def test_a_streamed_bot_must_have_the_jobs_whose_answers_are_known(alice: Person) -> None:
    body = submission(jobs={"stream": True}, placeholders={"i": "int"}, known_answers=[known(1)])
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    path = f"/api/v1/bots/{bot}"
    alice("POST", f"{path}/jobs?offset=0", data=json_lines([{"i": 0}]))
    assert "job 1: BOT" in alice("POST", f"{path}/start").json["detail"]
    alice("POST", f"{path}/jobs?offset=1", data=json_lines([{"i": 1}]))
    assert alice("POST", f"{path}/start").status_code == 200


def test_nobody_reads_a_known_answer(site: Site, alice: Person, bob: Person) -> None:
    content = TEXT * 5000
    sha256 = hashlib.sha256(content).hexdigest()
    alice("PUT", f"/api/v1/blobs/{sha256}?size={len(content)}&offset=0", data=content)
    body = submission(known_answers=[known(1), known(2, content, content=None)])
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    host = site.client_of(bob)
    for who in (bob, host, site.client_of(alice)):
        assert who("GET", f"/files/{sha256}").status_code == 404
    paths = ("", "/manifest", "/results?events=all", "/logs", "/explanation", "/archive")
    for path in paths:
        assert bob("GET", f"/api/v1/bots/{bot}{path}").status_code == 404
        answer = alice("GET", f"/api/v1/bots/{bot}{path}")
        assert answer.status_code == 200
        for secret in (TEXT, base64.b64encode(TEXT), sha256.encode()):
            assert secret not in answer.data


def test_the_command_reads_known_answers_from_a_file(
    site: Site, alice: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "large.dat").write_bytes(TEXT * 5000)
    known = tmp_path / "known.jsonl"
    known.write_text(
        '{"job": 1, "outputs": {"stdout": "1\\n"}}\n'
        '{"args": {"i": 12}, "outputs": {"stdout": {"file": "large.dat"}}}\n'
    )
    asked = ("submit", "--known-answers", "known.jsonl", "--range", "10:15", "--", "echo", "{}")
    with serve(site.app) as url:
        run = runner(url, alice, tmp_path)
        assert run(*asked).exit_code == 0
        known.write_text('{"job": 5, "outputs": {"stdout": "1"}}')
        assert "known.jsonl, line 1: there is no job 5; the 5 jobs count" in refused(run(*asked))
    assert kept(site) == [(1, "stdout", 2, b"1\n"), (2, "stdout", len(TEXT) * 5000, None)]
