import base64
import hashlib
import io
import json
import tarfile
from typing import Any

import pytest
from tests.factories import make_bot, make_ended, make_failure, make_lease, make_outcome
from tests.http.conftest import Person, Site

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.api.pages import LARGEST_PAGE, PAGE_BYTES, next_count


def _lines(person: Person, path: str) -> list[dict[str, Any]]:
    answer = person("GET", path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/jsonl"
    return [json.loads(line) for line in answer.data.splitlines()]


@pytest.fixture
def bot(site: Site, alice: Person) -> int:
    manifest = Manifest(alice.name, ("echo", "{i}"), {"i": "int"}, outputs=("*", "*/*"))
    return make_bot(site.conn, alice.id, jobs=200, manifest=manifest.text())


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


def _upload(client: Person, replica: ReplicaId, name: str, data: bytes) -> None:
    sha256 = hashlib.sha256(data).hexdigest()
    url = f"/uploads/{replica.bot}/{replica.seq}/{replica.replica}/{name}?sha256={sha256}"
    assert client("PUT", f"{url}&size={len(data)}&offset=0", data=data).json["complete"]


def test_results_come_in_the_order_in_which_jobs_finished(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    make_outcome(site.conn, ReplicaId(bot, 7, 2), client.id, {"stdout": b"seven\n", "b": b""})
    make_failure(site.conn, ReplicaId(bot, 3, 1), client.id, "exit_nonzero")
    make_outcome(site.conn, ReplicaId(bot, 5, 1), client.id, {})
    seven, three, five = _lines(alice, f"/api/v1/bots/{bot}/results")
    content = base64.b64encode(b"seven\n").decode()
    assert seven == {
        "n": 1,
        "seq": 7,
        "state": "done",
        "args": {"i": 7},
        "replica": 2,
        "host": "box",
        "exit_code": 0,
        "signal": None,
        "reason": "",
        "cpu_seconds": 1.5,
        "wall_seconds": 2.0,
        "version": 1,
        "outputs": {
            "b": {"sha256": hashlib.sha256(b"").hexdigest(), "size": 0, "content": ""},
            "stdout": {
                "sha256": hashlib.sha256(b"seven\n").hexdigest(),
                "size": 6,
                "content": content,
            },
        },
    }
    assert (three["n"], three["seq"], three["state"]) == (2, 3, "failed")
    assert (three["reason"], three["replica"]) == ("exit_nonzero", None)
    assert (five["n"], five["seq"], five["outputs"]) == (3, 5, {})


def test_results_go_on_behind_the_cursor(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    for seq in range(130):  # more than the first page
        outputs = {"a": b"1", "b": b"2"} if seq % 2 else {}
        make_outcome(site.conn, ReplicaId(bot, seq, 1), client.id, outputs)
    path = f"/api/v1/bots/{bot}/results"
    assert [line["n"] for line in _lines(alice, path)] == list(range(1, 131))
    assert [line["n"] for line in _lines(alice, f"{path}?after=100")] == list(range(101, 131))
    assert [line["n"] for line in _lines(alice, f"{path}?after=3&limit=60")] == list(range(4, 64))
    assert _lines(alice, f"{path}?after=130") == []
    assert _lines(alice, f"{path}?limit=0") == []
    assert alice("GET", f"{path}?after=-1").status_code == 400


def test_a_retried_job_comes_again_behind_the_cursor(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    make_failure(site.conn, ReplicaId(bot, 0, 1), client.id, "exit_nonzero")
    path = f"/api/v1/bots/{bot}/results"
    assert [line["n"] for line in _lines(alice, path)] == [1]
    assert alice("POST", f"/api/v1/bots/{bot}/retry", json={}).json == {
        "retried": 1,
        "version": 1,
    }
    make_outcome(site.conn, ReplicaId(bot, 0, 2), client.id, {})
    again = _lines(alice, f"{path}?after=1")
    assert [(line["n"], line["state"]) for line in again] == [(2, "done")]


def test_only_the_canonical_replicas_outputs_are_given(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    wrong = ReplicaId(bot, 0, 1)
    make_lease(site.conn, wrong, client.id)
    _upload(client, wrong, "out", b"wrong")
    make_outcome(site.conn, ReplicaId(bot, 0, 2), client.id, {"out": b"right"})
    (line,) = _lines(alice, f"/api/v1/bots/{bot}/results")
    assert base64.b64decode(line["outputs"]["out"]["content"]) == b"right"
    assert alice("GET", f"/api/v1/bots/{bot}/outputs/0/out").data == b"right"


def test_an_uploaded_output_is_named_in_the_results_and_sent_alone(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    data, replica = b"large" * 10_000, ReplicaId(bot, 0, 1)
    make_lease(site.conn, replica, client.id)
    _upload(client, replica, "dir/out", data)
    make_outcome(site.conn, replica, client.id, {"small": b"s"})
    (line,) = _lines(alice, f"/api/v1/bots/{bot}/results")
    expected = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    assert line["outputs"]["dir/out"] == expected
    path = f"/api/v1/bots/{bot}/outputs/0"
    assert alice("GET", f"{path}/dir/out").data == data
    part = alice("GET", f"{path}/dir/out", headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.data) == (206, data[5:10])
    assert alice("GET", f"{path}/small").data == b"s"
    missing = alice("GET", f"{path}/other")
    assert missing.status_code == 404
    assert missing.json["detail"] == f"job 0 of BOT {bot} has no output 'other' (yet)"


def test_the_archive_holds_all_outputs(site: Site, alice: Person, client: Person, bot: int) -> None:
    data, replica, name = b"x" * 1000, ReplicaId(bot, 1, 1), "d/" + "long" * 30
    make_lease(site.conn, replica, client.id)
    _upload(client, replica, name, data)
    make_outcome(site.conn, replica, client.id, {"stdout": b"one"})
    make_outcome(site.conn, ReplicaId(bot, 2, 1), client.id, {"stdout": b"y" * 512})
    make_outcome(site.conn, ReplicaId(bot, 3, 1), client.id, {})
    make_failure(site.conn, ReplicaId(bot, 4, 1), client.id, "exit_nonzero")
    answer = alice("GET", f"/api/v1/bots/{bot}/archive")
    assert answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.data), mode="r:") as archive:
        found = {member.name: archive.extractfile(member) for member in archive}
        contents = {path: file.read() for path, file in found.items() if file}
    assert contents == {f"1/{name}": data, "1/stdout": b"one", "2/stdout": b"y" * 512}


def test_an_archive_of_nothing_is_an_archive(alice: Person, bot: int) -> None:
    answer = alice("GET", f"/api/v1/bots/{bot}/archive")
    with tarfile.open(fileobj=io.BytesIO(answer.data), mode="r:") as archive:
        assert archive.getnames() == []


def test_a_lost_output_cuts_the_archive_instead_of_leaving_a_hole(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    replica = ReplicaId(bot, 1, 1)
    make_lease(site.conn, replica, client.id)
    _upload(client, replica, "out", b"data")
    make_outcome(site.conn, replica, client.id, {})
    site.app.extensions["gridbot"].store.path(hashlib.sha256(b"data").hexdigest()).unlink()
    with pytest.raises(FileNotFoundError):
        alice("GET", f"/api/v1/bots/{bot}/archive")


def test_logs_tell_how_every_replica_ended(
    site: Site, alice: Person, client: Person, bot: int
) -> None:
    make_failure(site.conn, ReplicaId(bot, 1, 2), client.id, "exit_nonzero")
    make_ended(site.conn, ReplicaId(bot, 1, 1), client.id, how="expired")
    make_outcome(site.conn, ReplicaId(bot, 0, 1), client.id, {})
    path = f"/api/v1/bots/{bot}/logs"
    found = _lines(alice, path)
    assert [(line["seq"], line["replica"]) for line in found] == [(0, 1), (1, 1), (1, 2)]
    error = found[2]
    assert (error["how"], error["reason"], error["exit_code"]) == ("error", "exit_nonzero", 1)
    assert (error["stderr"], error["stdout"], error["host"]) == ("oh no", None, "box")
    assert error["valid"] is None
    assert [line["replica"] for line in _lines(alice, f"{path}?seq=1")] == [1, 2]
    assert _lines(alice, f"{path}?how=error") == [error]
    assert _lines(alice, f"{path}?after=1-1") == [error]
    assert _lines(alice, f"{path}?limit=2") == found[:2]


def test_logs_are_read_in_pages(site: Site, alice: Person, client: Person, bot: int) -> None:
    for seq in range(120):
        make_ended(site.conn, ReplicaId(bot, seq, 1), client.id)
    found = _lines(alice, f"/api/v1/bots/{bot}/logs")
    assert [line["seq"] for line in found] == list(range(120))


@pytest.mark.parametrize("query", ["how=bad", "after=1", "after=x-1", "after=1-2-3", "seq=x"])
def test_wrong_questions_about_logs_are_refused(alice: Person, bot: int, query: str) -> None:
    assert alice("GET", f"/api/v1/bots/{bot}/logs?{query}").status_code == 400


def test_pages_grow_while_they_are_small_and_shrink_when_they_are_not() -> None:
    assert next_count(50, 0) == 200
    assert next_count(LARGEST_PAGE, 0) == LARGEST_PAGE
    assert next_count(200, PAGE_BYTES // 2) == 200
    assert next_count(200, PAGE_BYTES + 1) == 100
    assert next_count(1, PAGE_BYTES + 1) == 1
