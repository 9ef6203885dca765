"""Checkpoints at the server: who may send one, who gets which, and when they go."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.factories import make_bot, make_ended, make_lease
from tests.http.conftest import Answer, Person, Site

from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.messages import MAX_BIGINT, Manifest, ReplicaId
from gridbot_server.cycles import checkpoints
from gridbot_server.storage.rows import fetch_values

RULE = CheckpointRule(("state",))


def _bot(site: Site, owner: Person, **columns: Any) -> int:
    manifest = Manifest(owner.name, ("x",), checkpoint=RULE, max_output_bytes=1000)
    return make_bot(site.conn, owner.id, manifest=manifest.text(), **columns)


def _place(replica: ReplicaId) -> str:
    return f"/checkpoints/{replica.bot}/{replica.seq}/{replica.replica}"


def _put(
    who: Person, replica: ReplicaId, data: bytes, number: int = 1, part: slice = slice(None)
) -> Answer:
    sha256 = hashlib.sha256(data).hexdigest()
    query = f"sha256={sha256}&size={len(data)}&number={number}&offset={part.start or 0}"
    return who("PUT", f"{_place(replica)}?{query}", data=data[part])


def _latest(who: Person, replica: ReplicaId) -> int | None:
    found: int | None = who("GET", f"{_place(replica)}/latest").json["number"]
    return found


def _content(who: Person, replica: ReplicaId, data: bytes) -> Answer:
    sha256 = hashlib.sha256(data).hexdigest()
    return who("GET", f"{_place(replica)}/content?sha256={sha256}")


def _files(site: Site) -> set[str]:
    store = site.settings.open_store()
    return {
        name
        for prefix in range(256)
        for name in store.old(prefix, datetime.max.replace(tzinfo=UTC))
    }


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


@pytest.fixture
def other(site: Site, alice: Person) -> Person:
    return site.client_of(alice)


@pytest.fixture
def replica(site: Site, alice: Person, client: Person) -> ReplicaId:
    found = ReplicaId(_bot(site, alice), 0, 1)
    make_lease(site.conn, found, client.id)
    return found


def _moved_to(site: Site, replica: ReplicaId, client: Person, other: Person) -> ReplicaId:
    """The job's next replica, on another machine."""
    site.conn.execute("DELETE FROM lease WHERE bot = %s", [replica.bot])
    make_ended(site.conn, replica, client.id, "expired")
    following = replica._replace(replica=replica.replica + 1)
    make_lease(site.conn, following, other.id)
    return following


def test_a_checkpoint_arrives_in_parts_and_is_given_to_the_next_machine(
    site: Site, client: Person, other: Person, replica: ReplicaId
) -> None:
    data = b"saved" * 20
    assert _put(client, replica, data, part=slice(0, 10)).json == {"offset": 10, "complete": False}
    assert _latest(client, replica) is None
    assert _put(client, replica, data, part=slice(10, None)).json["complete"]
    assert _put(client, replica, data).json["complete"]
    following = _moved_to(site, replica, client, other)
    assert _latest(other, following) == 1
    assert _content(other, following, data).data == data


def test_only_the_latest_is_kept_and_none_replaces_a_later_one(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    for number, data in ((1, b"first"), (2, b"second")):
        assert _put(client, replica, data, number).json["complete"]
    assert _files(site) == {hashlib.sha256(b"second").hexdigest()}
    assert _put(client, replica, b"late", 1).status_code == 409
    assert _latest(client, replica) == 2
    assert _files(site) == {hashlib.sha256(b"second").hexdigest()}


@pytest.mark.parametrize("number", [0, MAX_BIGINT, 10**30])
def test_a_number_that_leaves_none_for_the_next_checkpoint_is_refused(
    client: Person, replica: ReplicaId, number: int
) -> None:
    assert _put(client, replica, b"saved", number).status_code == 400
    assert _put(client, replica, b"saved", MAX_BIGINT - 1).json["complete"]


def test_who_has_lost_the_lease_sends_no_checkpoint(
    site: Site, client: Person, other: Person, replica: ReplicaId
) -> None:
    data = b"saved" * 20
    _put(client, replica, data, part=slice(0, 10))
    following = _moved_to(site, replica, client, other)
    assert _put(client, replica, data, part=slice(10, None)).status_code == 410
    assert _put(client, following, data).status_code == 410
    assert _latest(client, following) is None
    assert _latest(other, following) is None


def test_nobody_but_who_holds_a_replica_of_the_job_reads_its_checkpoint(
    site: Site, bob: Person, client: Person, other: Person, replica: ReplicaId
) -> None:
    assert _put(client, replica, b"saved").json["complete"]
    assert _content(client, replica, b"saved").data == b"saved"
    for who in (other, site.client_of(bob)):
        assert _content(who, replica, b"saved").status_code == 404
        assert _latest(who, replica) is None
    assert bob("GET", f"{_place(replica)}/latest").status_code == 401


@pytest.mark.parametrize("quorum", [1, 2])
def test_strangers_and_members_of_a_quorum_go_on_from_their_own_only(
    site: Site, alice: Person, bob: Person, quorum: int
) -> None:
    whose = alice if quorum == 2 else bob  # bob is a stranger to alice's BOT
    first, second = site.client_of(whose), site.client_of(whose)
    replica = ReplicaId(_bot(site, alice, quorum=quorum), 0, 1)
    make_lease(site.conn, replica, first.id)
    assert _put(first, replica, b"saved").json["complete"]
    assert _latest(first, replica) == 1
    assert _latest(second, _moved_to(site, replica, first, second)) is None


def test_nobody_goes_on_from_what_a_machine_saved_that_is_banned_by_now(
    site: Site, operator: Person, client: Person, other: Person, replica: ReplicaId
) -> None:
    assert _put(client, replica, b"saved").json["complete"]
    (host,) = fetch_values(site.conn, int, b"SELECT host FROM checkpoint", {})
    following = _moved_to(site, replica, client, other)
    ban = f"/api/v1/hosts/{host}/ban"
    assert operator("PUT", ban, json={"why": "it lies"}).status_code == 200
    assert _latest(other, following) is None
    assert operator("DELETE", ban).status_code == 200
    assert _latest(other, following) == 1


def test_a_checkpoint_with_which_two_replicas_failed_is_left(
    site: Site, client: Person, replica: ReplicaId
) -> None:
    assert _put(client, replica, b"saved").json["complete"]
    for expected in (1, 1, None):
        assert _latest(client, replica) == expected
        site.conn.execute("DELETE FROM lease WHERE bot = %s", [replica.bot])
        make_ended(site.conn, replica, client.id, "error")
        replica = replica._replace(replica=replica.replica + 1)
        make_lease(site.conn, replica, client.id)


def test_a_checkpoint_is_no_larger_than_outputs_may_be(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    assert _put(client, replica, bytes(200_000)).status_code == 413
    without = ReplicaId(make_bot(site.conn, alice.id), 0, 1)
    make_lease(site.conn, without, client.id)
    assert _put(client, without, b"saved").status_code == 404


def test_checkpoints_go_with_the_end_of_their_job_and_leave_what_others_have(
    site: Site, alice: Person, client: Person, replica: ReplicaId
) -> None:
    shared = b"of an output, too"
    sha256 = hashlib.sha256(shared).hexdigest()
    assert alice("PUT", f"/api/v1/blobs/{sha256}?size={len(shared)}", data=shared).json["complete"]
    assert _put(client, replica, b"saved", 1).json["complete"]
    assert _put(client, replica, shared, 2).json["complete"]
    store, now = site.settings.open_store(), datetime.now(UTC)
    assert checkpoints.run_once(site.conn, store, now) == 0
    site.conn.execute("UPDATE bot SET state = 'cancelled' WHERE id = %s", [replica.bot])
    assert checkpoints.run_once(site.conn, store, now) == 1
    assert checkpoints.run_once(site.conn, store, now) == 0
    assert _files(site) == {sha256}
    assert store.size(sha256) == len(shared)
