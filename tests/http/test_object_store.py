"""Claims about files in an object store: a real SeaweedFS, which checks signatures."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import requests
from tests.factories import make_bot, make_lease
from tests.http.conftest import Answer, Person, Site
from tests.object_store import ENVIRONMENT, ObjectStore, object_store
from tests.system.deployment import eventually

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.cycles import collector
from gridbot_server.errors import HashMismatch, StoreAway, WrongOffset
from gridbot_server.settings import Settings
from gridbot_server.storage import store_record
from gridbot_server.storage.files import BucketStore, Content, Upload, bucket
from gridbot_server.storage.files import open_bucket as open_bucket_at

DATA = b"parameters of a model\n" * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()
NOW = datetime.now(UTC)
MANY = 12  # more than a web process has connections to its database


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("seaweedfs")) as found:
        yield found


@pytest.fixture
def store(peer: ObjectStore, tmp_path: Path) -> BucketStore:
    (tmp_path / "uploads").mkdir(exist_ok=True)
    return open_bucket_at(peer.url(uuid4().hex), tmp_path / "uploads", ENVIRONMENT, tmp_path)


@pytest.fixture
def settings(
    settings: Settings, store: BucketStore, peer: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return replace(settings, files_url=peer.url(store.bucket.place.prefix.rstrip("/")))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Parts of the least size that S3 allows."""
    monkeypatch.setattr(bucket, "PART_BYTES", 5 << 20)
    return 5 << 20


def upload_of(data: bytes, purpose: str = "test") -> Upload:
    return Upload(purpose, hashlib.sha256(data).hexdigest(), len(data))


def send(store: BucketStore, upload: Upload, offset: int, data: bytes) -> int:
    """Send the part from `offset` on as an uploader does; the HTTP status."""
    there = store.destination(upload, offset, datetime.now(UTC))
    part = data[offset : offset + there.size]
    return requests.put(there.url, data=part, headers=there.headers, timeout=30).status_code


def kept(store: BucketStore, data: bytes = DATA) -> Content:
    return store.put(len(data), io.BytesIO(data).read)


# ------------------------------------------------------------------------------- the peer


def test_the_peer_refuses_forged_expired_and_misused_urls(store: BucketStore) -> None:
    kept(store)
    url = store.link(SHA256, datetime.now(UTC))
    assert requests.get(url, timeout=30).content == DATA
    other = "0" if url[-1] != "0" else "1"
    refused = {
        "forged": requests.get(url[:-1] + other, timeout=30),
        "of another file": requests.get(url.replace(SHA256[2:], "0" * 62), timeout=30),
        "to write with": requests.put(url, data=b"mine", timeout=30),
        "for longer": requests.get(url.replace("Expires=7200", "Expires=9999"), timeout=30),
        "expired": requests.get(
            store.link(SHA256, datetime.now(UTC) - timedelta(hours=3)), timeout=30
        ),
    }
    assert {name: answer.status_code for name, answer in refused.items()} == dict.fromkeys(
        refused, 403
    )


def test_the_peer_takes_only_what_was_announced(store: BucketStore) -> None:
    there = store.destination(upload_of(DATA), 0, datetime.now(UTC))

    def put(data: bytes, headers: dict[str, str]) -> int:
        return requests.put(there.url, data=data, headers=headers, timeout=30).status_code

    assert put(DATA + b"more", there.headers) == 403
    assert put(DATA[:-1], there.headers) == 403
    assert put(DATA, {}) == 403
    other = hashlib.sha256(b"other").digest()
    assert put(DATA, {"x-amz-checksum-sha256": base64.b64encode(other).decode()}) == 403
    assert put(bytes(len(DATA)), there.headers) == 400
    assert put(DATA, there.headers) == 200


# ------------------------------------------------------------------------------ the store


def test_content_that_is_at_hand_is_kept_and_read_back(store: BucketStore) -> None:
    assert kept(store) == Content(bytes.fromhex(SHA256), hashlib.md5(DATA).digest(), len(DATA))
    assert kept(store, b"").size == 0
    assert (store.size(SHA256), store.size("0" * 64)) == (len(DATA), None)
    with store.open(SHA256) as file:
        file.seek(10)
        assert file.read() == DATA[10:]
    assert store.local(SHA256).read_bytes() == DATA
    assert store.beginning(SHA256, 10) == DATA[:10]
    assert store.beginning(SHA256, len(DATA) + 1) == DATA
    assert store.beginning(hashlib.sha256(b"").hexdigest(), 10) == b""
    assert store.beginning("0" * 64, 10) is None
    assert not store.local("0" * 64).exists()
    with pytest.raises(FileNotFoundError):
        store.open("0" * 64)


def test_a_links_signature_stays_for_an_hour(store: BucketStore) -> None:
    hour = datetime(2026, 1, 2, 3, 0, 0, tzinfo=UTC)
    links = [store.link(SHA256, hour + timedelta(minutes=m)) for m in (0, 1, 59, 60)]
    assert links[0] == links[1] == links[2] != links[3]


def test_an_upload_in_parts_goes_on_where_it_was(store: BucketStore, small_parts: int) -> None:
    data = b"0123456789" * (small_parts // 10) + b"the end"
    upload = upload_of(data)
    assert store.offset(upload) == 0
    assert send(store, upload, 0, data) == 200
    assert store.offset(upload) == small_parts
    assert store.finish(upload) == small_parts
    with pytest.raises(WrongOffset):
        store.destination(upload, 0, NOW)
    again = replace(store)  # as another server sees it
    assert send(again, upload, small_parts, data) == 200
    assert store.offset(upload) == len(data)
    assert isinstance(again.finish(upload), Content)
    with store.open(upload.sha256) as file:
        assert file.read() == data
    assert store.offset(upload) == 0, "nothing of it is left"


def test_an_upload_that_was_put_together_and_not_hashed_goes_on(
    store: BucketStore, small_parts: int
) -> None:
    data = bytes(small_parts + 5)
    upload = upload_of(data)
    for offset in (0, small_parts):
        assert send(store, upload, offset, data) == 200
    (begun,) = store.bucket.begun("uploads/")
    store.bucket.complete(begun.key, begun.id, store.bucket.parts(begun.key, begun.id))
    assert store.offset(upload) == len(data)
    assert isinstance(store.finish(upload), Content)


def test_content_that_is_not_what_was_announced_is_discarded(
    store: BucketStore, small_parts: int
) -> None:
    data = bytes(small_parts + 5)
    upload = replace(upload_of(data), sha256=hashlib.sha256(b"another").hexdigest())
    for offset in (0, small_parts):
        assert send(store, upload, offset, data) == 200
    with pytest.raises(HashMismatch, match="discarded, start over"):
        store.finish(upload)
    assert (store.offset(upload), store.size(upload.sha256)) == (0, None)


def test_an_empty_upload_needs_no_part(store: BucketStore) -> None:
    assert isinstance(store.finish(upload_of(b"")), Content)


def test_uploads_of_yesterday_go_away_and_others_stay(store: BucketStore, small_parts: int) -> None:
    data = bytes(small_parts + 5)
    assert send(store, upload_of(data), 0, data) == 200
    assert send(store, upload_of(DATA), 0, DATA) == 200
    store.receive(upload_of(DATA, "other"), 0, io.BytesIO(DATA[:10]).read)
    assert store.purge_partials(datetime.now(UTC)) == 0
    assert store.purge_partials(datetime.now(UTC) + timedelta(days=2)) == 3
    assert store.offset(upload_of(data)) == store.offset(upload_of(DATA)) == 0


def test_a_store_that_is_away_is_said_to_be_without_its_secrets(tmp_path: Path) -> None:
    away = open_bucket_at("s3://files?endpoint=http://127.0.0.1:9", tmp_path, ENVIRONMENT, tmp_path)
    with pytest.raises(StoreAway, match="s3://files/ does not answer") as caught:
        away.size(SHA256)
    assert "Signature" not in caught.value.detail


def test_a_store_that_refuses_the_credentials_is_said_to(peer: ObjectStore, tmp_path: Path) -> None:
    wrong = {**ENVIRONMENT, "AWS_SECRET_ACCESS_KEY": "wrong"}
    with pytest.raises(StoreAway, match="s3://files/x refuses GET: 403 SignatureDoesNotMatch"):
        open_bucket_at(peer.url("x"), tmp_path, wrong, tmp_path).read_note("store.json")


# -------------------------------------------------------------------------------- the API


def blob(person: Person, offset: int, data: bytes = b"") -> Answer:
    url = f"/api/v1/blobs/{SHA256}?size={len(DATA)}&offset={offset}"
    return person("PUT", url, data=data)


def sent(person: Person) -> None:
    """A person sends the file as the Python API does."""
    answer = blob(person, 0)
    assert (answer.status_code, answer.headers["Upload-Length"]) == (307, str(len(DATA)))
    headers = json.loads(answer.headers["Upload-Headers"])
    put = requests.put(answer.headers["Location"], data=DATA, headers=headers, timeout=30)
    assert put.status_code == 200
    assert blob(person, len(DATA)).json == {"offset": len(DATA), "complete": True}


def test_a_file_is_sent_to_the_store_and_fetched_there(site: Site, alice: Person) -> None:
    head = alice("HEAD", f"/api/v1/blobs/{SHA256}?size={len(DATA)}")
    assert (head.headers["Upload-Redirect"], head.headers["Upload-Complete"]) == ("?1", "?0")
    sent(alice)
    answer = alice("GET", f"/files/{SHA256}")
    assert (answer.status_code, answer.data) == (307, b"")
    assert requests.get(answer.headers["Location"], timeout=30).content == DATA
    part = requests.get(answer.headers["Location"], headers={"Range": "bytes=5-9"}, timeout=30)
    assert (part.status_code, part.content) == (206, DATA[5:10])


def test_what_a_link_leads_to_is_saved_and_never_shown_as_a_page(store: BucketStore) -> None:
    page = b"<script>alert(1)</script>"
    sha256 = kept(store, page).sha256.hex()
    answer = requests.get(store.link(sha256, datetime.now(UTC)), timeout=30)
    assert (answer.content, answer.headers["Content-Type"]) == (page, "application/octet-stream")
    assert answer.headers["Content-Disposition"] == "attachment"


@pytest.mark.parametrize("method, path", [("GET", "/files/{}"), ("HEAD", "/api/v1/blobs/{}")])
def test_a_store_that_does_not_answer_keeps_no_others_waiting(
    site: Site, alice: Person, peer: ObjectStore, method: str, path: str
) -> None:
    sent(alice)
    address = f"{path.format(SHA256)}?size={len(DATA)}"
    with peer.frozen(), ThreadPoolExecutor(MANY) as pool:
        waiting = [pool.submit(alice, method, address) for _ in range(MANY)]
        try:
            eventually(
                lambda: connections_to(peer) >= MANY, what="requests that wait for the store"
            )
            assert alice("GET", "/api/v1/bots").status_code == 200
            assert not any(answer.done() for answer in waiting)
        finally:
            peer.thaw()
    assert {answer.result().status_code for answer in waiting} <= {200, 307}


def connections_to(peer: ObjectStore) -> int:
    """How many connections this process has to the store."""
    port = peer.ports["s3.port"]
    found = psutil.Process().net_connections("tcp")
    return sum(bool(item.raddr) and item.raddr.port == port for item in found)


def test_nobody_is_led_to_a_file_that_is_not_theirs(site: Site, alice: Person, bob: Person) -> None:
    sent(alice)
    assert bob("GET", f"/files/{SHA256}").status_code == 404


def test_a_claim_to_have_sent_a_file_is_worth_nothing(site: Site, alice: Person) -> None:
    assert blob(alice, len(DATA)).json == {"offset": 0, "complete": False}
    assert alice("GET", f"/files/{SHA256}").status_code == 404


def test_clients_of_before_send_and_fetch_through_the_server(site: Site, alice: Person) -> None:
    assert blob(alice, 0, DATA[:1000]).json == {"offset": 1000, "complete": False}
    assert blob(alice, 1000, DATA[1000:]).json == {"offset": len(DATA), "complete": True}
    answer = alice("GET", f"/files/{SHA256}", headers={"User-Agent": "gridbot"})
    assert (answer.status_code, answer.data) == (200, DATA)


def test_an_output_is_sent_to_the_store(site: Site, alice: Person) -> None:
    client = site.client_of(alice)
    manifest = Manifest(alice.name, ("x",), outputs=("*",))
    replica = ReplicaId(make_bot(site.conn, alice.id, manifest=manifest.text()), 0, 0)
    make_lease(site.conn, replica, client.id)
    url = f"/uploads/{replica.bot}/0/0/out?sha256={SHA256}&size={len(DATA)}"
    answer = client("PUT", f"{url}&offset=0")
    headers = json.loads(answer.headers["Upload-Headers"])
    put = requests.put(answer.headers["Location"], data=DATA, headers=headers, timeout=30)
    assert put.status_code == 200
    assert client("PUT", f"{url}&offset={len(DATA)}").json["complete"]
    rows: list[Any] = site.conn.execute("SELECT name, size, content FROM output").fetchall()
    assert rows == [("out", len(DATA), None)]


def test_files_that_nobody_needs_go_and_others_stay(
    site: Site, store: BucketStore, alice: Person
) -> None:
    sent(alice)
    loose = kept(store, b"of nobody").sha256.hex()
    later = datetime.now(UTC) + collector.GRACE + timedelta(hours=1)
    for sha256 in (SHA256, loose):
        collector.remove_files(site.conn, store, later, bytes.fromhex(sha256)[0])
    assert store.size(loose) is None
    assert store.size(SHA256) == len(DATA)
    assert collector.collect(site.conn, store, datetime.now(UTC), bytes.fromhex(SHA256)[0]) == 0


def test_the_bucket_of_another_database_is_told(site: Site, store: BucketStore) -> None:
    known = store_record.read_record(store)
    assert known is not None
    assert store_record.fault(store, known.identity) == ""
    assert "another database" in store_record.fault(store, "another")
    with pytest.raises(StoreAway):
        away = "s3://none?endpoint=http://127.0.0.1:9"
        store_record.read_record(open_bucket_at(away, store.uploads, ENVIRONMENT, store.uploads))
