"""Claims about BOTs whose inputs clients fetch elsewhere."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.factories import make_bot, make_lease, submission
from tests.http.conftest import Person, Site

from gridbot_client.protocol.manifest import FileRef, JobInput, Manifest
from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.bots.validation import JobSpec, check_jobs, files_to_send

DATA = b"a secret that can be guessed"
SHA256 = hashlib.sha256(DATA).hexdigest()
REF = {"name": "data", "sha256": SHA256, "size": len(DATA)}
URL = "http://host.example/data"
SHARED = {"inputs": [REF], "sources": {"data": [URL]}}
OWN: dict[str, Any] = {
    "command": ["cat", "{x}.dat"],
    "placeholders": {"x": "text", "host": "text"},
    "job_inputs": [{"name": "*.dat"}],
    "sources": {"{x}.dat": ["http://{host}/{x}", "https://mirror/{x}"]},
}


def job(x: str, host: str = "host", name: str | None = None) -> dict[str, Any]:
    ref = {**REF, "name": name or f"{x}.dat"}
    return {"args": {"x": x, "host": host}, "inputs": [ref]}


def send(person: Person) -> None:
    path = f"/api/v1/blobs/{SHA256}?size={len(DATA)}&offset=0"
    assert person("PUT", path, data=DATA).json["complete"]


def manifest_of(site: Site, bot: int) -> Manifest:
    ((text,),) = site.conn.execute("SELECT manifest FROM bot WHERE id = %s", [bot]).fetchall()
    return Manifest.from_text(text)


def test_an_input_with_sources_need_not_be_sent_and_older_clients_do_not_get_it(
    site: Site, alice: Person
) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(**SHARED))
    assert answer.status_code == 201
    manifest = manifest_of(site, answer.json["id"])
    assert (manifest.sources, manifest.version) == ({"data": (URL,)}, 10)


def test_an_input_without_sources_must_be_sent_as_before(alice: Person) -> None:
    other = {**REF, "name": "other"}
    body = submission(inputs=[REF, other], sources={"data": [URL]})
    body["inputs"][1]["sha256"] = "0" * 64
    answer = alice("POST", "/api/v1/bots", json=body)
    assert (answer.status_code, answer.json["missing"]) == (409, ["0" * 64])


def test_jobs_have_inputs_of_their_own_with_sources(site: Site, alice: Person) -> None:
    body = submission(**OWN, jobs={"items": [job("a"), job("b")]})
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    assert manifest_of(site, bot).sources == {"{x}.dat": tuple(OWN["sources"]["{x}.dat"])}
    stray = submission(**OWN, jobs={"items": [job("a"), job("b", name="c.dat")]})
    answer = alice("POST", "/api/v1/bots", json=stray)
    assert (answer.status_code, answer.json["detail"]) == (409, "not uploaded yet: c.dat")


@pytest.mark.parametrize(
    "host", ["user:secret@host", "host\r\nHost: other", "10.0.0.1/#", "host/" + "x" * 2000, ""]
)
def test_a_job_whose_values_make_no_usable_url_is_named(alice: Person, host: str) -> None:
    body = submission(**OWN, jobs={"items": [job("a"), job("b", host)]})
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.status_code == 400
    assert answer.json["detail"].startswith("job 1: the source of input b.dat: ")
    assert "is not a usable URL" in answer.json["detail"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"sources": {"data": ["file:///etc/passwd"]}},
            "sources.data: 'file:///etc/passwd' is not",
        ),
        ({"sources": {"data": ["http://u:p@host/"]}}, "sources.data: 'http://u:p@host/' is not"),
        ({"sources": {"data": ["http://h/" + "x" * 2000]}}, "sources.data"),
        ({"sources": {"data": [URL] * 9}}, "sources.data"),
        ({"sources": {"data": []}}, "sources.data"),
        ({"sources": {f"data{n}": [URL] for n in range(1001)}}, "sources"),
        ({"sources": {"other": [URL]}}, "sources: 'other' is not the name of an input"),
        ({"sources": {"data": ["http://host/{x}"]}}, "sources names {x}, but a range has only {i}"),
        ({"sources": {"data": ["http://host/{i}"]}}, "sources.data: all jobs share it"),
        ({"sources": {"data": ["http://host/{"]}}, "sources: argument 'http://host/{' has"),
    ],
)
def test_sources_that_cannot_be_are_refused(
    alice: Person, changes: dict[str, Any], why: str
) -> None:
    answer = alice("POST", "/api/v1/bots", json=submission(**{**SHARED, **changes}))
    assert answer.status_code in (400, 422)
    assert answer.json["detail"].startswith(why)


def test_only_so_many_sources_differ_from_job_to_job(alice: Person) -> None:
    sources = {f"{{x}}{n}.dat": ["http://host/{x}"] for n in range(101)}
    body = submission(**{**OWN, "sources": sources}, jobs={"items": [job("a")]})
    answer = alice("POST", "/api/v1/bots", json=body)
    assert answer.json["detail"] == "sources: more than 100 differ from job to job"


@pytest.mark.parametrize("is_shared", [True, False])
def test_the_hash_of_an_input_with_sources_gives_nobody_the_file_of_another(
    site: Site, alice: Person, bob: Person, is_shared: bool
) -> None:
    send(bob)
    ref, sources = FileRef("data", SHA256, len(DATA)), {"data": (URL,)}
    own = () if is_shared else (JobInput("*"),)
    manifest = Manifest(
        "alice", ("cat", "data"), inputs=(ref,) if is_shared else (), job_inputs=own,
        sources=sources,
    )  # fmt: skip
    bot, client = make_bot(site.conn, alice.id, manifest=manifest.text()), site.client_of(alice)
    if not is_shared:
        site.conn.execute("UPDATE job SET inputs = %s WHERE bot = %s", [Jsonb([REF]), bot])
    make_lease(site.conn, ReplicaId(bot, 0, 0), client.id)
    places = [f"/files/{SHA256}", f"/api/v1/bots/{bot}/inputs/{SHA256}"]
    asked = [(client, places[0]), (alice, places[0]), (alice, places[1])]
    assert [person("GET", place).status_code for person, place in asked] == [404] * 3
    assert site.conn.execute("SELECT held FROM bot WHERE id = %s", [bot]).fetchone() == (None,)
    send(alice)
    assert client("GET", places[0]).data == DATA


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_file_that_the_server_lost_holds_no_bot_that_has_it_from_sources(
    site: Site, alice: Person, bob: Person, is_shared: bool
) -> None:
    send(bob)
    (site.settings.files / SHA256[:2] / SHA256[2:]).unlink()
    client, bots = site.client_of(bob), []
    for owner, sources in ((alice, {"data": (URL,)}), (bob, {})):
        ref = FileRef("data", SHA256, len(DATA))
        inputs, own = ((ref,), ()) if is_shared else ((), (JobInput("*"),))
        manifest = Manifest(owner.name, ("x",), inputs=inputs, job_inputs=own, sources=sources)
        bots.append(make_bot(site.conn, owner.id, manifest=manifest.text()))
        if not is_shared:
            site.conn.execute("UPDATE job SET inputs = %s WHERE bot = %s", [Jsonb([REF]), bots[-1]])
        make_lease(site.conn, ReplicaId(bots[-1], 0, 0), client.id)
    assert client("GET", f"/files/{SHA256}").status_code == 404
    found = site.conn.execute("SELECT id FROM bot WHERE held IS NOT NULL").fetchall()
    assert found == [(bots[1],)]


def test_sources_of_inputs_that_a_job_does_not_have_take_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[str] = []

    def check(url: str, where: str) -> str:
        checked.append(url)
        return url

    sources = {f"{{x}}{n}.dat": [f"http://host/{{x}}/{n}"] * 8 for n in range(100)}
    manifest = Manifest(
        "alice", ("x",), placeholders={"x": "text"}, job_inputs=(JobInput("*.dat"),),
        sources={name: tuple(urls) for name, urls in sources.items()},
    )  # fmt: skip
    ref = FileRef("a7.dat", SHA256, len(DATA))
    jobs = [JobSpec({"x": "a"}, (ref,)), JobSpec({"x": "b"})]
    monkeypatch.setattr("gridbot_client.protocol.sources.check_url", check)
    check_jobs(manifest, jobs, first=0)
    assert list(files_to_send(manifest, jobs)) == []
    assert set(checked) == {"http://host/a/7"}
