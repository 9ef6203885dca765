import hashlib
import os
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.factories import lease_with_input, make_bot, make_ended, make_lease
from tests.http.conftest import Answer, Person, Site
from werkzeug.test import EnvironBuilder, run_wsgi_app

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.cycles import collector
from gridbot_server.overload.transfer_slots import Party

DATA = b"abcdefghij" * 10_000


def _sha(data: bytes = DATA) -> str:
    return hashlib.sha256(data).hexdigest()


class _Sender:
    """Sends one file under one URL."""

    def __init__(self, person: Person, url: str, data: bytes = DATA) -> None:
        self.person, self.data = person, data
        self.url = f"{url}{'&' if '?' in url else '?'}size={len(data)}"

    def put(self, offset: int, end: int | None = None) -> Answer:
        return self.person("PUT", f"{self.url}&offset={offset}", data=self.data[offset:end])

    def head(self) -> Answer:
        return self.person("HEAD", self.url)


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


@pytest.fixture
def replica(site: Site, alice: Person, client: Person) -> ReplicaId:
    found = ReplicaId(_bot(site, alice), 0, 0)
    make_lease(site.conn, found, client.id)
    return found


def _bot(site: Site, owner: Person, outputs: tuple[str, ...] = ("*", "*/*")) -> int:
    manifest = Manifest(owner.name, ("x",), outputs=outputs)
    return make_bot(site.conn, owner.id, manifest=manifest.text())


def _url(replica: ReplicaId, name: str = "out.txt", data: bytes = DATA) -> str:
    return f"/uploads/{replica.bot}/{replica.seq}/{replica.replica}/{name}?sha256={_sha(data)}"


def _outputs(site: Site) -> list[Any]:
    return site.conn.execute("SELECT name, sha256, size, content FROM output").fetchall()


def test_an_output_arrives_in_parts(site: Site, client: Person, replica: ReplicaId) -> None:
    sender = _Sender(client, _url(replica, "dir/out.txt"))
    assert sender.head().headers["Upload-Offset"] == "0"
    assert sender.put(0, 10).json == {"offset": 10, "complete": False}
    head = sender.head()
    assert (head.headers["Upload-Offset"], head.headers["Upload-Complete"]) == ("10", "?0")
    assert _outputs(site) == []
    assert sender.put(10).json == {"offset": len(DATA), "complete": True}
    assert _outputs(site) == [("dir/out.txt", bytes.fromhex(_sha()), len(DATA), None)]
    blob = site.conn.execute("SELECT sha256, md5, size FROM blob").fetchone()
    assert blob == (bytes.fromhex(_sha()), hashlib.md5(DATA).digest(), len(DATA))


def test_a_finished_upload_may_be_repeated(site: Site, client: Person, replica: ReplicaId) -> None:
    sender = _Sender(client, _url(replica))
    first, again = sender.put(0), sender.put(0)
    assert first.json == again.json == {"offset": len(DATA), "complete": True}
    head = sender.head()
    assert head.headers["Upload-Offset"] == str(len(DATA))
    assert head.headers["Upload-Complete"] == "?1"
    assert len(_outputs(site)) == 1


@pytest.mark.parametrize("there", [0, 1, len(DATA) - 1])
@pytest.mark.parametrize("offset", [0, 1, 50, len(DATA) - 1, len(DATA)])
def test_only_the_offset_where_the_server_is_goes_on(
    client: Person, replica: ReplicaId, there: int, offset: int
) -> None:
    sender = _Sender(client, _url(replica))
    sender.put(0, there)
    answer = sender.put(offset)
    if offset == there:
        assert (answer.status_code, answer.json["complete"]) == (200, True)
    else:
        assert (answer.status_code, answer.json["offset"]) == (409, there)
        assert sender.put(there).json["complete"]


def test_content_that_hashes_to_something_else_is_discarded(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    sender = _Sender(client, _url(replica), data=b"x" * len(DATA))
    answer = sender.put(0)
    assert (answer.status_code, answer.json["error"]) == (422, "HashMismatch")
    assert sender.head().headers["Upload-Offset"] == "0"
    assert _outputs(site) == []
    assert _Sender(client, _url(replica)).put(0).json["complete"]


def test_a_body_past_the_announced_size_is_refused(client: Person, replica: ReplicaId) -> None:
    answer = client("PUT", f"{_url(replica)}&size=5&offset=3", data=b"123")
    assert answer.status_code == 413
    assert answer.json["detail"] == "3 bytes from 3 on go past the 5 announced"


def test_a_body_of_unknown_length_is_refused(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    builder = EnvironBuilder(path=f"{_url(replica)}&size=5", method="PUT", data=b"12345")
    builder.headers["Authorization"] = f"Bearer {client.token}"
    environ = builder.get_environ()
    del environ["CONTENT_LENGTH"]
    environ["HTTP_TRANSFER_ENCODING"] = "chunked"
    body, status, _ = run_wsgi_app(site.app, environ)
    assert status == "411 LENGTH REQUIRED"
    assert b'"LengthRequired"' in b"".join(body)


def test_a_file_over_the_servers_limit_is_refused_before_it_is_sent(
    client: Person, replica: ReplicaId
) -> None:
    for method in ("HEAD", "PUT"):
        assert client(method, f"{_url(replica)}&size=1000001").status_code == 413


def test_all_outputs_of_a_replica_share_its_limit(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    most = len(DATA) + 5
    manifest = Manifest("alice", ("x",), outputs=("*",), max_output_bytes=most)
    site.conn.execute("UPDATE bot SET manifest = %s", [manifest.text()])
    assert _Sender(client, _url(replica, "one")).put(0).json["complete"]
    answer = _Sender(client, _url(replica, "two", b"123456"), b"123456").put(0)
    assert answer.status_code == 413
    assert answer.json["detail"] == (
        f"two has 6 bytes and the replica's other outputs {len(DATA)}; together it may have 100005"
    )
    assert _Sender(client, _url(replica, "two", b"12345"), b"12345").put(0).json["complete"]


def test_a_replica_that_the_client_never_had_is_not_found(
    site: Site, alice: Person, replica: ReplicaId
) -> None:
    answer = _Sender(site.client_of(alice), _url(replica)).put(0)
    assert answer.status_code == 404
    assert answer.json["detail"] == f"this client never had the replica {replica}"


def test_an_expired_replica_may_still_bring_its_outputs(
    site: Site, alice: Person, client: Person
) -> None:
    late = ReplicaId(_bot(site, alice), 0, 3)
    make_ended(site.conn, late, client.id, how="expired")
    assert _Sender(client, _url(late)).put(0).json["complete"]


def test_outputs_of_a_cancelled_bot_are_not_wanted(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    site.conn.execute("UPDATE bot SET state = 'cancelled'")
    sender = _Sender(client, _url(replica))
    assert (sender.put(0).status_code, sender.head().status_code) == (410, 410)
    assert _Sender(client, _url(ReplicaId(12345, 0, 0))).put(0).status_code == 410


def test_an_output_may_be_replaced_until_success_was_reported(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    other = b"from a second run"
    assert _Sender(client, _url(replica)).put(0).json["complete"]
    assert _Sender(client, _url(replica, data=other), other).put(0).json["complete"]
    assert [row[2] for row in _outputs(site)] == [len(other)]
    site.conn.execute("DELETE FROM lease")
    make_ended(site.conn, replica, client.id)
    refused = _Sender(client, _url(replica)).put(0)
    assert refused.status_code == 409
    assert [row[2] for row in _outputs(site)] == [len(other)]
    assert _Sender(client, _url(replica, data=other), other).put(0).json["complete"]


@pytest.mark.parametrize("name", ["..%2Fx", "a//b", ".hidden", "-x", "a%00b", "a%0Ab", "x" * 201])
def test_a_name_that_is_no_file_name_is_refused(
    client: Person, replica: ReplicaId, name: str
) -> None:
    answer = _Sender(client, _url(replica, name)).put(0)
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize("query", ["", "sha256=abc&size=1", f"sha256={_sha()}", "size=1"])
def test_a_url_without_hash_and_size_is_refused(
    client: Person, replica: ReplicaId, query: str
) -> None:
    path = _url(replica).split("?")[0]
    assert client("PUT", f"{path}?{query}", data=b"x").status_code == 400


@pytest.mark.parametrize("size", ["-1", "1.5", "x", "²", str(2**63)])
def test_a_size_that_is_no_number_is_refused(client: Person, replica: ReplicaId, size: str) -> None:
    answer = client("PUT", f"{_url(replica)}&size={size}", data=b"x")
    assert answer.status_code == 400
    assert answer.json["detail"].startswith("size: expected a whole number from 0 to")


def test_while_one_request_sends_another_is_told_to_come_back(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    body = _Waiting()
    builder = EnvironBuilder(path=f"{_url(replica)}&size={len(DATA)}&offset=0", method="PUT")
    builder.headers["Authorization"] = f"Bearer {client.token}"
    environ = builder.get_environ()
    environ |= {"wsgi.input": body, "CONTENT_LENGTH": str(len(DATA))}
    first = threading.Thread(
        target=run_wsgi_app, args=(site.app, environ), kwargs={"buffered": True}
    )
    first.start()
    assert body.is_read.wait(10)
    second = _Sender(client, _url(replica)).put(0)
    assert (second.status_code, second.json["error"]) == (503, "UploadBusy")
    assert second.json["retry"]
    assert int(second.headers["Retry-After"]) > 0
    body.may_end.set()
    first.join(10)
    assert _Sender(client, _url(replica)).head().headers["Upload-Complete"] == "?1"


class _Waiting:
    """A body that comes when the test says so."""

    def __init__(self) -> None:
        self.is_read, self.may_end = threading.Event(), threading.Event()
        self._left = DATA

    def read(self, size: int = -1) -> bytes:
        self.is_read.set()
        assert self.may_end.wait(10)
        part, self._left = self._left[:size], self._left[size:]
        return part


def test_uploads_leave_threads_to_requests_for_work(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    slots = site.app.extensions["gridbot"].uploads
    for _ in range(site.settings.web_threads // 2):
        slots.take(Party())
    answer = _Sender(client, _url(replica)).put(0)
    assert (answer.status_code, answer.json["retry"]) == (503, True)
    slots.release(Party())
    assert _Sender(client, _url(replica)).put(0).json["complete"]


def test_uploads_of_one_client_leave_slots_to_its_owners_others(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    slots, owner = site.app.extensions["gridbot"].uploads, f"owner {alice.id}"
    for _ in range(site.settings.web_threads // 2 // 4):
        slots.take(Party(f"client {client.id}", owner))
    assert _Sender(client, _url(replica)).put(0).status_code == 503
    other = site.client_of(alice)
    make_lease(site.conn, second := ReplicaId(replica.bot, 0, 1), other.id)
    assert _Sender(other, _url(second)).put(0).json["complete"]


def test_uploads_of_one_owner_leave_slots_to_others(
    site: Site, alice: Person, bob: Person, client: Person, replica: ReplicaId
) -> None:
    slots, owner = site.app.extensions["gridbot"].uploads, f"owner {alice.id}"
    for _ in range(site.settings.web_threads // 2 // 2):
        slots.take(Party(owner=owner))
    assert _Sender(client, _url(replica)).put(0).status_code == 503
    # She herself is a person, not one of her machines.
    assert _Sender(alice, f"/api/v1/blobs/{_sha()}").put(0).json["complete"]
    assert _Sender(bob, f"/api/v1/blobs/{_sha()}").put(0).json["complete"]


def test_a_job_may_not_bring_the_output_of_another_name(
    site: Site, alice: Person, client: Person
) -> None:
    manifest = Manifest("alice", ("x",), placeholders={"i": "int"}, outputs=("part-{i}.txt",))
    replica = ReplicaId(make_bot(site.conn, alice.id, manifest=manifest.text()), 0, 0)
    site.conn.execute("UPDATE job SET args = '{\"i\": 0}'")
    make_lease(site.conn, replica, client.id)
    for name, status in (("part-1.txt", 404), ("part-{i}.txt", 400), ("part-0.txt", 200)):
        assert _Sender(client, _url(replica, name)).put(0).status_code == status


@pytest.mark.parametrize("name", ["b", "a.txt.gz", "x/a.txt", "d/b.dat", "d/x/a.dat", "D/a.dat"])
def test_a_file_that_the_manifest_does_not_ask_for_is_refused(
    site: Site, alice: Person, client: Person, name: str
) -> None:
    wanted = ReplicaId(_bot(site, alice, ("stdout", "*.txt", "d/[a]*.dat")), 0, 0)
    make_lease(site.conn, wanted, client.id)
    sender = _Sender(client, _url(wanted, name))
    assert (sender.put(0).status_code, sender.head().status_code) == (404, 404)
    assert list(site.settings.uploads.iterdir()) == []
    for other in ("stdout", "a.txt", "d/a1.dat"):
        assert _Sender(client, _url(wanted, other)).put(0).json["complete"]


def test_an_input_is_uploaded_in_parts_and_known_afterwards(alice: Person) -> None:
    sender = _Sender(alice, f"/api/v1/blobs/{_sha()}")
    assert sender.put(0, 10).json == {"offset": 10, "complete": False}
    assert sender.head().headers["Upload-Offset"] == "10"
    assert sender.put(10).json == {"offset": len(DATA), "complete": True}
    assert sender.head().headers["Upload-Complete"] == "?1"


def test_an_input_larger_than_other_bodies_is_taken(site: Site, alice: Person) -> None:
    data = b"x" * (site.settings.max_body_bytes + 1)
    assert _Sender(alice, f"/api/v1/blobs/{_sha(data)}", data).put(0).json["complete"]
    assert alice("PUT", f"/api/v1/blobs/{_sha()}?size=5000001", data=b"x").status_code == 413


def test_content_that_was_lost_is_taken_again(site: Site, alice: Person) -> None:
    sender = _Sender(alice, f"/api/v1/blobs/{_sha()}")
    assert sender.put(0).json["complete"]
    site.app.extensions["gridbot"].store.path(_sha()).unlink()
    assert sender.head().headers["Upload-Complete"] == "?0"
    assert sender.put(0).json["complete"]


@pytest.mark.parametrize(
    ("header", "status", "expected"),
    [
        (None, 200, DATA),
        ("bytes=0-0", 206, DATA[:1]),
        ("bytes=5-", 206, DATA[5:]),
        ("bytes=-7", 206, DATA[-7:]),
        ("bytes=300-40000", 206, DATA[300:40001]),
        (f"bytes={len(DATA)}-", 416, None),
        ("lines=1-2", 416, None),
    ],
)
def test_content_is_sent_whole_or_from_anywhere(
    site: Site,
    alice: Person,
    client: Person,
    header: str | None,
    status: int,
    expected: bytes | None,
) -> None:
    _Sender(alice, f"/api/v1/blobs/{_sha()}").put(0)
    lease_with_input(site.conn, alice.id, client.id, DATA)
    headers = {} if header is None else {"Range": header}
    for person in (alice, client):
        answer = person("GET", f"/files/{_sha()}", headers=headers)
        assert answer.status_code == status
        assert expected is None or answer.data == expected
        if status == 206:
            assert answer.headers["Content-Range"].endswith(f"/{len(DATA)}")
            assert answer.headers["Content-Length"] == str(len(expected or b""))


def test_content_carries_its_hash_as_etag(alice: Person) -> None:
    _Sender(alice, f"/api/v1/blobs/{_sha()}").put(0)
    answer = alice("GET", f"/files/{_sha()}")
    assert answer.headers["ETag"] == f'"{_sha()}"'
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    known = alice("GET", f"/files/{_sha()}", headers={"If-None-Match": f'"{_sha()}"'})
    assert (known.status_code, known.data) == (304, b"")
    changed = alice("GET", f"/files/{_sha()}", headers={"Range": "bytes=1-2", "If-Range": '"x"'})
    assert (changed.status_code, changed.data) == (200, DATA)


@pytest.mark.parametrize("name", [_sha(b"unknown"), "..", "abc", _sha().upper(), "%2E%2E%2Fx"])
def test_content_that_is_not_there_is_not_found(alice: Person, name: str) -> None:
    assert alice("GET", f"/files/{name}").status_code == 404


def test_an_old_file_that_its_owner_asked_for_lately_is_kept(site: Site, alice: Person) -> None:
    sender = _Sender(alice, f"/api/v1/blobs/{_sha()}")
    assert sender.put(0).json["complete"]
    store, now = site.app.extensions["gridbot"].store, datetime.now(UTC)
    long_ago = now - 2 * collector.GRACE
    os.utime(store.path(_sha()), (long_ago.timestamp(),) * 2)
    site.conn.execute("UPDATE blob SET created_at = %s", [long_ago])
    site.conn.execute("UPDATE blob_owner SET used_at = %s", [long_ago])
    prefix = bytes.fromhex(_sha())[0]
    assert sender.head().headers["Upload-Complete"] == "?1"
    assert collector.collect(site.conn, store, now, prefix) == 0
    assert sender.head().headers["Upload-Complete"] == "?1"
    site.conn.execute("UPDATE blob_owner SET used_at = %s", [long_ago])
    assert collector.collect(site.conn, store, now, prefix) == 1
    assert sender.head().headers["Upload-Complete"] == "?0"
