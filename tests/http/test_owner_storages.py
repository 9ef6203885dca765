"""Claims about storages of owners: a real SeaweedFS, which checks signatures."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from tests.factories import (
    HOST,
    make_bot,
    make_client,
    make_host,
    make_lease,
    make_outcome,
    submission,
)
from tests.http.conftest import Answer, Person, Site
from tests.object_store import ACCESS_KEY, SECRET_KEY, SIGNER, ObjectStore, object_store
from tests.system.deployment import eventually

from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_server.cycles import retention
from gridbot_server.cycles.storages import turn
from gridbot_server.cycles.storages.cycle import StorageTurns
from gridbot_server.cycles.storages.place import OwnerStorage, StorageUnreadable
from gridbot_server.errors import StoreAway
from gridbot_server.settings import Settings
from gridbot_server.storage import rows, storage_key
from gridbot_server.storage.files.s3 import Bucket, BucketPlace

DATA = b"an answer of a job\n" * 2000
STORAGES = "/api/v1/storages"


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("seaweedfs")) as found:
        yield found


@pytest.fixture
def settings(settings: Settings, peer: ObjectStore) -> Settings:
    return replace(settings, storage_endpoints=f"{peer.endpoint}, http://127.0.0.1:9")


@pytest.fixture
def prefix() -> str:
    return uuid4().hex


def storage(place: str, name: str = "lab", **changes: str) -> dict[str, str]:
    keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    return {"name": name, "place": place, **keys, **changes}


def add(person: Person, place: str, name: str = "lab") -> dict[str, Any]:
    answer = person("POST", STORAGES, json=storage(place, name))
    assert answer.status_code == 201, answer.json
    made: dict[str, Any] = answer.json
    return made


@pytest.fixture
def lab(alice: Person, peer: ObjectStore, prefix: str) -> dict[str, Any]:
    return add(alice, peer.url(prefix))


def objects(peer: ObjectStore, prefix: str) -> dict[str, int]:
    """Sizes of all objects below a prefix, by what follows the storage's tag."""
    bucket = Bucket(BucketPlace.parse(peer.url(prefix)), SIGNER)
    return {item.key.partition("/")[2]: item.size for item in bucket.objects("")}


def row_of(site: Site, name: str = "lab") -> OwnerStorage:
    query = (
        b"SELECT id, owner, name, tag, place, access_key, secret_key"
        b"  FROM owner_storage WHERE name = %(name)s"
    )
    found = rows.read_one(site.conn, OwnerStorage, query, {"name": name})
    assert found is not None
    return found


def take_turn(site: Site, name: str = "lab") -> int:
    return turn.take(site.conn, row_of(site, name), site.settings)


def expire_urls(site: Site) -> None:
    site.conn.execute("UPDATE incoming SET url_ends = now() - interval '1 day'")


class Uploader:
    """A client that sends an output as the native client does."""

    def __init__(self, client: Person, replica: ReplicaId, data: bytes = DATA) -> None:
        self.client, self.data = client, data
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.url = (
            f"/uploads/{replica.bot}/{replica.seq}/{replica.replica}/out.txt"
            f"?sha256={self.sha256}&size={len(data)}"
        )

    def ask(self, offset: int = 0) -> Answer:
        return self.client("PUT", f"{self.url}&offset={offset}")

    def write(self, answer: Answer, data: bytes | None = None) -> int:
        headers = json.loads(answer.headers["Upload-Headers"])
        body = self.data if data is None else data
        return requests.put(
            answer.headers["Location"], data=body, headers=headers, timeout=30
        ).status_code

    def send(self) -> Answer:
        assert self.write(self.ask()) == 200
        return self.ask(len(self.data))


def make_stored_bot(site: Site, owner: Person, jobs: int = 1, **columns: Any) -> int:
    manifest = Manifest(owner.name, ("x",), outputs=("out.txt",))
    return make_bot(
        site.conn,
        owner.id,
        jobs,
        manifest=manifest.text(),
        owner_storage=row_of(site).id,
        **columns,
    )


def finish(site: Site, replica: ReplicaId, client: Person) -> None:
    """End a replica as the canonical one of its job."""
    site.conn.execute("DELETE FROM lease WHERE (bot, seq, replica) = (%s, %s, %s)", list(replica))
    make_outcome(site.conn, replica, client.id, {})


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


@pytest.fixture
def replica(site: Site, alice: Person, lab: dict[str, Any], client: Person) -> ReplicaId:
    found = ReplicaId(make_stored_bot(site, alice), 0, 1)
    make_lease(site.conn, found, client.id)
    return found


# ------------------------------------------------------------------------------- storages


def test_a_storage_is_added_listed_and_removed_and_never_tells_its_secret(
    site: Site, alice: Person, bob: Person, peer: ObjectStore, prefix: str
) -> None:
    made = add(alice, peer.url(prefix))
    listed = alice("GET", STORAGES)
    assert listed.json == {"storages": [made]}
    assert SECRET_KEY not in listed.data.decode()
    assert bob("GET", STORAGES).json == {"storages": []}
    assert bob("DELETE", f"{STORAGES}/lab").status_code == 404
    assert objects(peer, prefix) == {}, "the object that was written to try it"
    sealed = row_of(site).secret_key
    assert SECRET_KEY.encode() not in sealed
    gone = alice("DELETE", f"{STORAGES}/lab")
    assert (gone.status_code, gone.json["objects_left"]) == (200, 0)
    assert alice("GET", STORAGES).json == {"storages": []}


def test_the_same_storage_gets_other_keys_and_another_place_needs_another_name(
    alice: Person, peer: ObjectStore, prefix: str
) -> None:
    made = add(alice, peer.url(prefix))
    assert add(alice, peer.url(prefix))["tag"] == made["tag"]
    answer = alice("POST", STORAGES, json=storage(peer.url(f"{prefix}2")))
    assert answer.status_code == 409
    assert "give another name" in answer.json["detail"]


def test_keys_that_the_store_refuses_are_refused(
    alice: Person, peer: ObjectStore, prefix: str
) -> None:
    answer = alice("POST", STORAGES, json=storage(peer.url(prefix), secret_key="wrong"))
    assert answer.status_code == 400
    assert answer.json["detail"].endswith("refuses PUT: 403 SignatureDoesNotMatch")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("s3://files/x?endpoint=http://127.0.0.1:5432", "reaches no 'http://127.0.0.1:5432'"),
        ("s3://files/x?endpoint=http://169.254.169.254", "reaches no 'http://169.254.169.254'"),
        ("s3://files/x", "reaches no 'https://s3.us-east-1.amazonaws.com'"),
        ("s3://files/../x?endpoint=http://127.0.0.1:9", "no usable prefix"),
        ("s3://files/a%2f?endpoint=http://127.0.0.1:9", "no usable prefix"),
        ("s3://f/x?endpoint=http://127.0.0.1:9", "no usable bucket"),
        ("s3://files/x?endpoint=http://127.0.0.1:9&region=a/b", "no usable region"),
        ("s3://files/x?endpoint=http://127.0.0.1:9&public=http://10.0.0.1", "no option 'public'"),
        ("s3://files/x?endpoint=http://127.0.0.1:9", "does not answer"),
        ("https://files", "is no place for files"),
        ("s3://files/" + "x" * 600, "up to 500 printable characters"),
    ],
)
def test_a_place_that_the_operator_does_not_allow_or_that_is_none_is_refused(
    alice: Person, place: str, words: str
) -> None:
    answer = alice("POST", STORAGES, json=storage(place))
    assert answer.status_code == 400
    assert words in answer.json["detail"]


def test_an_owner_has_ten_storages_at_most(alice: Person, peer: ObjectStore, prefix: str) -> None:
    for number in range(10):
        add(alice, peer.url(prefix), f"lab{number}")
    answer = alice("POST", STORAGES, json=storage(peer.url(prefix), "one-more"))
    assert (answer.status_code, answer.json["error"]) == (409, "Conflict")


def test_a_damaged_or_missing_key_of_the_server_is_refused_and_never_replaced(
    site: Site, alice: Person, lab: dict[str, Any], replica: ReplicaId, client: Person,
    peer: ObjectStore, prefix: str,
) -> None:  # fmt: skip
    path = site.settings.storage_key_path
    whole = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    for text in ("", whole[:40], "0" * 64 + "\n", None):
        path.unlink()
        if text is not None:
            path.write_text(text)
        answer = Uploader(client, replica).ask()
        assert (answer.status_code, answer.json["error"]) == (503, "StorageUnreadable")
        assert str(path) not in answer.json["detail"]
        if text != "0" * 64 + "\n":
            added = alice("POST", STORAGES, json=storage(peer.url(prefix), "other"))
            assert added.status_code == 503
        assert (path.read_text() if path.exists() else None) == text
        path.touch()
    path.write_text(whole)
    assert Uploader(client, replica).ask().status_code == 307


def test_a_secret_opens_only_in_the_row_for_which_it_was_sealed(tmp_path: Path) -> None:
    key = storage_key.create(tmp_path / "storage.key")
    assert storage_key.create(tmp_path / "storage.key") == key
    assert [item.name for item in tmp_path.iterdir()] == ["storage.key"]
    sealed = storage_key.seal(key, "secret", "1 tag s3://a")
    assert storage_key.unseal(key, sealed, "1 tag s3://a") == "secret"
    with pytest.raises(storage_key.StorageKeyError):
        storage_key.unseal(key, sealed, "2 tag s3://a")


# ----------------------------------------------------------------------------- submissions


def test_a_bot_whose_outputs_go_to_a_storage_needs_one_and_no_contents_at_the_server(
    alice: Person, bob: Person, lab: dict[str, Any]
) -> None:
    def refusal(person: Person, **changes: Any) -> str:
        answer = person("POST", "/api/v1/bots", json=submission(outputs_to="lab", **changes))
        assert answer.status_code == 400
        detail: str = answer.json["detail"]
        return detail

    assert "you have no storage lab" in refusal(bob)
    assert "only exact goes with it" in refusal(alice, validator="text")
    assert "reused" in refusal(alice, reuse=True)
    made = alice("POST", "/api/v1/bots", json=submission(outputs_to="lab"))
    assert made.status_code == 201
    shown = alice("GET", f"/api/v1/bots/{made.json['id']}").json
    assert (shown["outputs_to"], shown["unpublished"]) == ("lab", 0)
    removed = alice("DELETE", f"{STORAGES}/lab")
    assert removed.status_code == 409
    assert f"outputs of BOTs are there: {made.json['id']}" in removed.json["detail"]


def test_an_old_client_is_said_to_be_too_old_to_send_to_a_storage(
    site: Site, alice: Person, lab: dict[str, Any]
) -> None:
    def told(version: int) -> bool:
        host = make_host(site.conn, alice.id, {**HOST, "ManifestVersion": version})
        make_client(site.conn, alice.id, host)
        bot = make_stored_bot(site, alice)
        found = alice("GET", f"/api/v1/bots/{bot}/explanation?host={host}").data.decode()
        return "too old to send outputs to a storage" in found

    assert (told(6), told(7)) == (True, False)


# -------------------------------------------------------------------------------- the path


def test_an_output_goes_past_the_server_and_gets_its_final_name_once_its_job_is_done(
    site: Site, alice: Person, client: Person, replica: ReplicaId, lab: dict[str, Any],
    peer: ObjectStore, prefix: str,
) -> None:  # fmt: skip
    uploader = Uploader(client, replica)
    head = client("HEAD", uploader.url)
    assert (head.headers["Upload-Redirect"], head.headers["Upload-Complete"]) == ("?1", "?0")
    assert uploader.send().json == {"offset": len(DATA), "complete": True}
    assert client("HEAD", uploader.url).headers["Upload-Complete"] == "?1"
    (sent,) = objects(peer, prefix)
    assert sent.startswith("incoming/")
    assert list(site.settings.files.glob("??/*")) == []
    assert take_turn(site) == 0, "the job has no outcome"
    finish(site, replica, client)
    output = f"/api/v1/bots/{replica.bot}/outputs/0/out.txt"
    early = alice("GET", output)
    assert requests.get(early.headers["Location"], timeout=30).content == DATA
    assert take_turn(site) == 1
    expire_urls(site)
    assert take_turn(site) == 1
    assert objects(peer, prefix) == {f"{replica.bot}/0/out.txt": len(DATA)}
    late = alice("GET", output)
    found = requests.get(late.headers["Location"], timeout=30)
    assert (late.status_code, found.content) == (307, DATA)
    assert found.headers["Content-Disposition"] == "attachment"
    (line,) = alice("GET", f"/api/v1/bots/{replica.bot}/results").data.splitlines()
    place = f"s3://files/{prefix}/{lab['tag']}/{replica.bot}/0/out.txt"
    told = {"sha256": uploader.sha256, "size": len(DATA), "place": place}
    assert json.loads(line)["outputs"] == {"out.txt": told}
    assert alice("GET", f"/api/v1/bots/{replica.bot}").json["unpublished"] == 0
    assert take_turn(site) == 0


def test_outputs_that_travel_in_reports_are_written_by_the_server(
    site: Site, alice: Person, client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    site.conn.execute(
        "INSERT INTO output (bot, seq, replica, name, sha256, size, content)"
        " VALUES (%s, %s, %s, 'out.txt', %s, 5, 'small')",
        [*replica, hashlib.sha256(b"small").digest()],
    )
    finish(site, replica, client)
    assert take_turn(site) == 1
    assert objects(peer, prefix) == {f"{replica.bot}/0/out.txt": 5}


def test_a_url_takes_only_what_was_announced(
    client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    uploader = Uploader(client, replica)
    answer = uploader.ask()
    assert uploader.write(answer, DATA + b"more") == 403
    assert uploader.write(answer, bytes(len(DATA))) == 400
    assert objects(peer, prefix) == {}


def test_an_output_that_has_not_arrived_is_not_taken_for_one_that_has(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    uploader = Uploader(client, replica)
    assert uploader.ask().status_code == 307
    answer = uploader.ask(len(DATA))
    assert (answer.status_code, answer.json["retry"]) == (503, True)
    assert site.conn.execute("SELECT count(*) FROM output").fetchone() == (0,)


def test_a_body_for_the_server_is_refused(client: Person, replica: ReplicaId) -> None:
    answer = client("PUT", f"{Uploader(client, replica).url}&offset=0", data=DATA)
    assert answer.status_code == 409
    assert "go to a storage" in answer.json["detail"]


def test_a_replica_announces_few_contents_of_an_output(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    answers = [Uploader(client, replica, bytes([n]) * 9000).ask() for n in range(6)]
    assert [answer.status_code for answer in answers] == [307] * 4 + [413] * 2
    again = Uploader(client, replica, bytes([0]) * 9000).ask()
    assert again.status_code == 307, "to ask once more is no other content"
    assert site.conn.execute("SELECT count(*) FROM incoming").fetchone() == (4,)


def test_a_replica_announces_few_bytes_whatever_it_said_of_them_before(
    site: Site, alice: Person, client: Person, lab: dict[str, Any]
) -> None:
    manifest = Manifest("alice", ("x",), outputs=("part*",), max_output_bytes=1000)
    bot = make_bot(site.conn, alice.id, 1, manifest=manifest.text(), owner_storage=row_of(site).id)
    make_lease(site.conn, ReplicaId(bot, 0, 1), client.id)
    asked = []
    for size in (1, 1000):
        for n in range(5):
            sha256 = hashlib.sha256(bytes([n])).hexdigest()
            path = f"/uploads/{bot}/0/1/part{n}?sha256={sha256}&size={size}&offset=0"
            asked.append(client("PUT", path).status_code)
    assert asked == [307] * 5 + [307] * 3 + [413] * 2


def test_an_empty_output_has_the_hash_of_nothing_and_can_be_read_before_it_is_published(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    forged = f"/uploads/{replica.bot}/0/1/out.txt?sha256={'7' * 64}&size=0&offset=0"
    assert client("PUT", forged).status_code == 422
    assert site.conn.execute("SELECT count(*) FROM output").fetchone() == (0,)
    assert Uploader(client, replica, b"").ask().json["complete"]
    finish(site, replica, client)
    found = alice("GET", f"/api/v1/bots/{replica.bot}/outputs/0/out.txt")
    assert (found.status_code, found.data) == (200, b"")


def test_what_a_store_holds_is_hashed_where_it_does_not_tell_the_hash(
    site: Site, client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    """Another content under the name of one that was announced is never published."""
    uploader = Uploader(client, replica)
    uploader.send()
    bucket = row_of(site).bucket(site.settings)
    (key,) = (item.key for item in bucket.objects("incoming/"))
    forged = bytes(len(DATA))
    bucket.write(key, forged, hashlib.sha256(forged).hexdigest())
    finish(site, replica, client)
    assert take_turn(site) == 0
    assert [name for name in objects(peer, prefix) if "out.txt" in name] == []


# ------------------------------------------------------------------------- losers and losses


def test_no_object_of_a_replica_that_lost_stays_after_its_urls_have_expired(
    site: Site, alice: Person, bob: Person, lab: dict[str, Any], peer: ObjectStore, prefix: str
) -> None:
    bot = make_stored_bot(site, alice, quorum=2)
    clients = [site.client_of(alice), site.client_of(bob)]
    for number, client in enumerate(clients, 1):
        replica = ReplicaId(bot, 0, number)
        make_lease(site.conn, replica, client.id)
        assert Uploader(client, replica).send().json["complete"]
    assert len(objects(peer, prefix)) == 2
    finish(site, ReplicaId(bot, 0, 1), clients[0])
    take_turn(site)
    assert len(objects(peer, prefix)) == 3, "URLs are good yet"
    expire_urls(site)
    take_turn(site)
    assert objects(peer, prefix) == {f"{bot}/0/out.txt": len(DATA)}
    assert site.conn.execute("SELECT count(*) FROM incoming").fetchone() == (0,)


def test_what_a_job_without_an_outcome_has_sent_stays_and_goes_with_its_bot(
    site: Site, client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    Uploader(client, replica).send()
    expire_urls(site)
    assert take_turn(site) == 0
    assert len(objects(peer, prefix)) == 1
    site.conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [replica.bot])
    assert take_turn(site) == 1
    assert objects(peer, prefix) == {}


def test_two_storages_at_one_place_or_inside_of_each_other_share_no_object(
    site: Site, alice: Person, client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    add(alice, peer.url(prefix), "same")
    add(alice, peer.url(f"{prefix}/deeper"), "inner")
    bucket = Bucket(BucketPlace.parse(peer.url(prefix)), SIGNER)
    strange = "incoming/12345678901234567890"
    bucket.write(strange, b"of somebody else", hashlib.sha256(b"of somebody else").hexdigest())
    Uploader(client, replica).send()
    site.conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [replica.bot])
    expire_urls(site)
    assert [take_turn(site, name) for name in ("same", "inner", "lab")] == [0, 0, 1]
    assert [item.key for item in bucket.objects("")] == [strange]


def test_an_object_counts_as_lost_only_when_it_was_missing_for_an_hour(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    Uploader(client, replica).send()
    finish(site, replica, client)
    bucket = row_of(site).bucket(site.settings)
    for item in list(bucket.objects("incoming/")):
        bucket.delete(item.key)

    def unpublished() -> int:
        site.conn.execute("UPDATE output SET retry_at = NULL")
        take_turn(site)
        found: int = alice("GET", f"/api/v1/bots/{replica.bot}").json["unpublished"]
        return found

    assert [unpublished(), unpublished()] == [1, 1]
    site.conn.execute("UPDATE output SET missing_since = now() - interval '2 hours'")
    assert unpublished() == 0
    (line,) = alice("GET", f"/api/v1/bots/{replica.bot}/results").data.splitlines()
    assert json.loads(line)["outputs"]["out.txt"]["lost"] is True
    answer = alice("GET", f"/api/v1/bots/{replica.bot}/outputs/0/out.txt")
    assert answer.status_code == 404
    assert "is lost" in answer.json["detail"]


def test_an_object_that_has_its_final_name_already_is_published(
    site: Site, client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    """As after a crash, or the restore of a backup."""
    Uploader(client, replica).send()
    finish(site, replica, client)
    take_turn(site)
    site.conn.execute("UPDATE output SET published_at = NULL")
    site.conn.execute("UPDATE bot SET published = 0")
    bucket = row_of(site).bucket(site.settings)
    for item in list(bucket.objects("incoming/")):
        bucket.delete(item.key)
    assert take_turn(site) == 1
    assert objects(peer, prefix) == {f"{replica.bot}/0/out.txt": len(DATA)}


def test_a_bot_is_kept_until_its_outputs_are_published_or_a_month_longer(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    Uploader(client, replica).send()
    finish(site, replica, client)
    site.conn.execute("UPDATE bot SET state = 'done', ended_at = now() - interval '10 days'")
    assert retention.delete_kept_too_long(site.conn, 5) == 0
    site.conn.execute("UPDATE bot SET ended_at = now() - interval '36 days'")
    with site.conn.transaction(force_rollback=True):
        assert retention.delete_kept_too_long(site.conn, 5) == 1
    take_turn(site)
    assert retention.delete_kept_too_long(site.conn, 5) == 1


# ------------------------------------------------------------------------------ bad weather


def test_a_storage_that_hangs_keeps_no_other_and_waits_longer_from_turn_to_turn(
    site: Site, alice: Person, bob: Person, client: Person, replica: ReplicaId, peer: ObjectStore,
    prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    monkeypatch.setattr(turn, "_CALL_SECONDS", 12.0)
    Uploader(client, replica).send()
    finish(site, replica, client)
    storages = StorageTurns(site.settings)

    def due_in() -> float:
        query = "SELECT extract(epoch FROM due_at - now())::float8, error FROM owner_storage"
        found = site.conn.execute(query).fetchone()
        assert found is not None
        return float(found[0]) if found[1] else 0.0

    with peer.frozen():
        began = time.monotonic()
        assert storages.run_once(site.conn) == 0
        assert time.monotonic() - began < 10, "a pass does not wait for a storage"
        assert storages.run_once(site.conn) == 0, "nor has one two turns at a time"
        assert sum(thread.name.startswith("storage-") for thread in threading.enumerate()) == 1
        eventually(lambda: due_in() > 0, what="the end of the turn")
    site.conn.execute("UPDATE owner_storage SET due_at = now()")
    site.conn.execute("UPDATE output SET retry_at = NULL")
    storages.run_once(site.conn)
    eventually(lambda: objects(peer, prefix).keys() >= {f"{replica.bot}/0/out.txt"},
               what="the output")  # fmt: skip
    eventually(lambda: storages.run_once(site.conn) > 0, what="what the turn has done")
    assert alice("GET", STORAGES).json["storages"][0]["error"] is None


def test_a_storage_that_hangs_leaves_web_threads_to_others(
    site: Site, alice: Person, client: Person, replica: ReplicaId, peer: ObjectStore
) -> None:
    uploader = Uploader(client, replica)
    assert uploader.write(uploader.ask()) == 200
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(uploader.ask(len(DATA)).status_code))
        for _ in range(4)
    ]
    with peer.frozen():
        began = time.monotonic()
        for thread in threads:
            thread.start()
        eventually(lambda: len(answers) == 2, what="two that find no slot")
        assert alice("GET", "/api/v1/bots").status_code == 200
        for thread in threads:
            thread.join()
    assert time.monotonic() - began < 30
    assert answers == [503] * 4
    assert uploader.ask(len(DATA)).json["complete"]


def test_an_endpoint_that_the_operator_takes_from_the_list_is_reached_no_more(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    Uploader(client, replica).send()
    finish(site, replica, client)
    fewer = replace(site.settings, storage_endpoints="http://127.0.0.1:9")
    with pytest.raises(StorageUnreadable, match=r"reaches no http://127.* any more"):
        turn.take(site.conn, row_of(site), fewer)


def test_what_a_failing_storage_says_names_no_secret(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    Uploader(client, replica).send()
    finish(site, replica, client)
    found = row_of(site)
    key = storage_key.load(site.settings.storage_key_path)
    about = f"{found.owner} {found.tag} {found.place}"
    wrong = storage_key.seal(key, "another", about)
    site.conn.execute("UPDATE owner_storage SET secret_key = %s", [wrong])
    with pytest.raises(StoreAway) as caught:
        take_turn(site)
    assert caught.value.detail.endswith("refuses HEAD: 403 ")
    assert SECRET_KEY not in caught.value.detail


def test_an_output_that_the_store_refuses_keeps_no_other_of_the_storage_waiting(
    site: Site, alice: Person, client: Person, lab: dict[str, Any], peer: ObjectStore,
    prefix: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    bot = make_stored_bot(site, alice, jobs=3)
    for seq in range(3):
        replica = ReplicaId(bot, seq, 1)
        make_lease(site.conn, replica, client.id)
        Uploader(client, replica).send()
        finish(site, replica, client)
    copied = Bucket.copy

    def refused(self: Bucket, source: str, target: str, etag: str) -> None:
        if target.startswith(f"{bot}/0/"):
            raise StoreAway("refuses PUT: 400")
        copied(self, source, target, etag)

    monkeypatch.setattr(Bucket, "copy", refused)
    for _ in range(3):
        site.conn.execute("UPDATE output SET retry_at = retry_at - interval '10 minutes'")
        with pytest.raises(StoreAway, match="400"):
            take_turn(site)
    finals = {name for name in objects(peer, prefix) if "incoming" not in name}
    assert finals == {f"{bot}/1/out.txt", f"{bot}/2/out.txt"}
    expire_urls(site)
    with pytest.raises(StoreAway, match="400"):
        site.conn.execute("UPDATE output SET retry_at = retry_at - interval '10 minutes'")
        take_turn(site)
    assert sum("incoming" in name for name in objects(peer, prefix)) == 1


def test_an_output_that_an_older_server_took_while_an_update_rolled_out_is_not_lost(
    site: Site, alice: Person, client: Person, replica: ReplicaId, peer: ObjectStore, prefix: str
) -> None:
    sha256 = hashlib.sha256(DATA).hexdigest()
    alice("PUT", f"/api/v1/blobs/{sha256}?size={len(DATA)}&offset=0", data=DATA)
    site.conn.execute(
        "INSERT INTO output (bot, seq, replica, name, sha256, size)"
        " VALUES (%s, %s, %s, 'out.txt', %s, %s)",
        [*replica, bytes.fromhex(sha256), len(DATA)],
    )
    finish(site, replica, client)
    output = f"/api/v1/bots/{replica.bot}/outputs/0/out.txt"
    assert alice("GET", output).data == DATA
    assert take_turn(site) == 1
    assert objects(peer, prefix) == {f"{replica.bot}/0/out.txt": len(DATA)}
    found = requests.get(alice("GET", output).headers["Location"], timeout=30)
    assert found.content == DATA
