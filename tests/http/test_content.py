"""Claims about who may read a content, name it as an input, or learn that it is here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.factories import lease_with_input, make_bot, make_lease, submission
from tests.http.conftest import Answer, Person, Site

from gridbot_client.protocol.messages import Manifest, ReplicaId

DATA = b"parameters that can be guessed\n" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
REF = {"name": "data", "sha256": SHA256, "size": len(DATA)}
BLOB = f"/api/v1/blobs/{SHA256}?size={len(DATA)}"
FILE = f"/files/{SHA256}"


def _send(person: Person, first: int = 0, end: int | None = None) -> Answer:
    return person("PUT", f"{BLOB}&offset={first}", data=DATA[first:end])


def _same(one: Answer, other: Answer) -> bool:
    """Whether two answers tell the same, but for the hash that each asked for."""
    unlike = {"Date", "Content-Length"}
    headers = [
        {name: value for name, value in answer.headers.items() if name not in unlike}
        for answer in (one, other)
    ]
    return one.status_code == other.status_code and headers[0] == headers[1]


@pytest.fixture
def sent(alice: Person) -> None:
    """Alice has sent the file."""
    assert _send(alice).json["complete"]


def _joiner(site: Site, alice: Person) -> Person:
    return site.key_of(alice, "join")


def _other_owner(site: Site, alice: Person) -> Person:
    return site.person("bob")


def _operator(site: Site, alice: Person) -> Person:
    return site.person("root", scope="operator")


def _idle_client(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


def _client_with_the_hash_in_its_command(site: Site, alice: Person) -> Person:
    client, manifest = site.client_of(alice), Manifest("alice", ("echo", SHA256))
    bot = make_bot(site.conn, alice.id, manifest=manifest.text())
    make_lease(site.conn, ReplicaId(bot, 0, 0), client.id)
    return client


def _client_whose_lease_has_ended(site: Site, alice: Person) -> Person:
    client = site.client_of(alice)
    lease_with_input(site.conn, alice.id, client.id, DATA)
    site.conn.execute("DELETE FROM lease")
    return client


def _client_beside_the_one_that_holds_it(site: Site, alice: Person) -> Person:
    lease_with_input(site.conn, alice.id, site.client_of(alice).id, DATA)
    return site.client_of(alice)


def _pilots_key(site: Site, alice: Person) -> Person:
    artefact = {"artefact": bytes(32)}
    pilots = {"grid": "ice", "serves": [alice.id], "tag": "gb1", "pilots": 1, **artefact}
    return site.key_of(alice, "pilot", **pilots)


STRANGERS: list[Callable[[Site, Person], Person]] = [
    _joiner, _other_owner, _operator, _idle_client, _client_with_the_hash_in_its_command,
    _client_whose_lease_has_ended, _client_beside_the_one_that_holds_it, _pilots_key,
]  # fmt: skip


@pytest.mark.usefixtures("sent")
@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda made: made.__name__.strip("_"))
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_strangers_content_is_answered_like_one_that_is_not_here(
    site: Site, alice: Person, stranger: Callable[[Site, Person], Person], method: str
) -> None:
    somebody = stranger(site, alice)
    there, nowhere = somebody(method, FILE), somebody(method, f"/files/{'0' * 64}")
    assert there.status_code == 404
    assert _same(there, nowhere)
    conditional = somebody(method, FILE, headers={"If-None-Match": f'"{SHA256}"'})
    assert conditional.status_code == 404
    assert somebody(method, FILE, headers={"Range": "bytes=0-0"}).status_code == 404


@pytest.mark.usefixtures("sent")
@pytest.mark.parametrize("size", [len(DATA), len(DATA) - 1])
def test_the_offset_of_an_upload_tells_nothing_of_what_others_sent(bob: Person, size: int) -> None:
    there = bob("HEAD", f"/api/v1/blobs/{SHA256}?size={size}")
    nowhere = bob("HEAD", f"/api/v1/blobs/{'0' * 64}?size={size}")
    assert (there.headers["Upload-Offset"], there.headers["Upload-Complete"]) == ("0", "?0")
    assert _same(there, nowhere)


@pytest.mark.usefixtures("sent")
def test_a_content_that_is_here_is_read_whole_before_it_is_another_owners_too(
    site: Site, bob: Person
) -> None:
    assert _send(bob, 0, 10).json == {"offset": 10, "complete": False}
    assert bob("GET", FILE).status_code == 404
    wrong = bob("PUT", f"{BLOB}&offset=10", data=bytes(len(DATA) - 10))
    assert (wrong.status_code, wrong.json["error"]) == (422, "HashMismatch")
    assert bob("GET", FILE).status_code == 404
    assert _send(bob).json == {"offset": len(DATA), "complete": True}
    assert bob("GET", FILE).data == DATA
    assert site.conn.execute("SELECT count(*) FROM blob").fetchone() == (1,)
    files = [path for path in site.settings.files.glob("??/*")]
    assert len(files) == 1


@pytest.mark.usefixtures("sent")
@pytest.mark.parametrize("size", [len(DATA), len(DATA) - 1])
@pytest.mark.parametrize("place", ["manifest", "job"])
def test_a_file_that_others_sent_is_no_input_before_one_sent_it_oneself(
    bob: Person, size: int, place: str
) -> None:
    def asked(sha256: str) -> Answer:
        inputs = [{**REF, "sha256": sha256, "size": size}]
        jobs = {"jobs": {"items": [{"args": {}, "inputs": inputs}]}}
        changes = {"inputs": inputs} if place == "manifest" else jobs
        return bob("POST", "/api/v1/bots", json=submission(command=["true"], **changes))

    there, nowhere = asked(SHA256), asked("0" * 64)
    assert (there.status_code, there.json["missing"]) == (409, [SHA256])
    assert there.json["detail"] == nowhere.json["detail"] == "not uploaded yet: data"


@pytest.mark.usefixtures("sent")
def test_a_file_that_others_sent_is_no_input_of_a_streamed_job(bob: Person) -> None:
    body = submission(command=["true"], jobs={"stream": True})
    bot = bob("POST", "/api/v1/bots", json=body).json["id"]
    line = b'{"args": {}, "inputs": [{"name": "data", "sha256": "%s", "size": %d}]}\n'
    path = f"/api/v1/bots/{bot}/jobs?offset=0"
    refused = bob("POST", path, data=line % (SHA256.encode(), len(DATA)))
    assert (refused.status_code, refused.json["missing"]) == (409, [SHA256])
    _send(bob)
    assert bob("POST", path, data=line % (SHA256.encode(), len(DATA))).json == {
        "jobs_total": 1,
        "first": 0,
    }


@pytest.mark.usefixtures("sent")
def test_only_those_who_see_a_bot_read_its_inputs(
    site: Site, alice: Person, bob: Person, operator: Person
) -> None:
    body = submission(command=["cat", "data"], inputs=[REF], jobs={"range": [0, 1, 1]})
    bot = alice("POST", "/api/v1/bots", json=body).json["id"]
    path = f"/api/v1/bots/{bot}/inputs/{SHA256}"
    assert alice("GET", path).data == operator("GET", path).data == DATA
    assert bob("GET", path).status_code == 404
    body = submission(command=["echo", SHA256], jobs={"range": [0, 1, 1]})
    own = bob("POST", "/api/v1/bots", json=body).json["id"]
    assert bob("GET", f"/api/v1/bots/{own}/inputs/{SHA256}").status_code == 404


def test_a_client_reads_the_inputs_of_the_jobs_that_it_holds(site: Site, alice: Person) -> None:
    _send(alice)
    of_manifest, of_job = site.client_of(alice), site.client_of(alice)
    lease_with_input(site.conn, alice.id, of_manifest.id, DATA)
    bot = make_bot(site.conn, alice.id, jobs=3)
    inputs = Jsonb([{"name": "x", "sha256": "0" * 64, "size": 1}, REF])
    site.conn.execute("UPDATE job SET inputs = %s WHERE (bot, seq) = (%s, 1)", [inputs, bot])
    for seq in range(3):
        make_lease(site.conn, ReplicaId(bot, seq, 0), of_job.id)
    assert of_manifest("GET", FILE).data == of_job("GET", FILE).data == DATA


def test_an_output_belongs_to_the_owner_of_its_bot_and_may_be_an_input_of_the_next(
    site: Site, alice: Person, bob: Person
) -> None:
    manifest = Manifest("alice", ("x",), outputs=("out",)).text()
    replica = ReplicaId(make_bot(site.conn, alice.id, manifest=manifest), 0, 0)
    volunteer = site.client_of(bob)
    make_lease(site.conn, replica, volunteer.id)
    path = f"/uploads/{replica.bot}/0/0/out?sha256={SHA256}&size={len(DATA)}"
    assert volunteer("PUT", path, data=DATA).json["complete"]
    assert alice("GET", FILE).data == DATA
    assert [person("GET", FILE).status_code for person in (bob, volunteer)] == [404, 404]
    body: dict[str, Any] = submission(command=["cat", "data"], inputs=[REF])
    assert bob("POST", "/api/v1/bots", json=body).status_code == 409
    assert alice("POST", "/api/v1/bots", json=body).status_code == 201


@pytest.mark.parametrize(("named", "others"), [(SHA256, 404), (None, 200)])
def test_pilots_keys_read_the_file_that_they_name(
    site: Site, alice: Person, operator: Person, named: str | None, others: int
) -> None:
    assert _send(operator).json["complete"]
    other = b"another file of the operator's"
    hidden = hashlib.sha256(other).hexdigest()
    path = f"/api/v1/blobs/{hidden}?size={len(other)}"
    assert operator("PUT", path, data=other).json["complete"]
    body = {"grid": "ice", "owners": ["alice"], "seconds": 60.0, "tag": "gb1", "count": 1}
    body |= {} if named is None else {"artefact": named}
    token = operator("POST", "/api/v1/overlay/tokens", json=body).json["token"]
    pilots = Person(site.app, token, 0, "pilots")
    assert pilots("GET", FILE).data == DATA
    assert pilots("GET", f"/files/{hidden}").status_code == others
