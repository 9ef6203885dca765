"""Claims about who may have how many answers sent at once."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tests.factories import lease_with_input, make_bot
from tests.http.conftest import Answer, Person, Site

from gridbot_server.http.slow_readers import PIECE_BYTES, UNBOUNDED_BYTES
from gridbot_server.overload.transfer_slots import Party, Slots

LONG = bytes(range(256)) * 1000
SHORT = LONG[:UNBOUNDED_BYTES]


def _put(person: Person, data: bytes) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    path = f"/api/v1/blobs/{sha256}?size={len(data)}&offset=0"
    assert person("PUT", path, data=data).json["complete"]
    return f"/files/{sha256}"


def _slots(site: Site) -> Slots:
    slots = site.app.extensions["gridbot"].downloads
    assert isinstance(slots, Slots)
    return slots


def _total(site: Site) -> int:
    return site.settings.web_threads * 3 // 8


@pytest.fixture
def client(site: Site, alice: Person) -> Person:
    """A client that needs the files of this page."""
    return _reader(site, alice)


def _reader(site: Site, owner: Person) -> Person:
    found = site.client_of(owner)
    for content in (LONG, SHORT):
        lease_with_input(site.conn, owner.id, found.id, content)
    return found


@pytest.mark.parametrize("kind", ["/results", "/logs", "/archive"])
def test_without_a_slot_no_stream_begins(site: Site, alice: Person, kind: str) -> None:
    path = f"/api/v1/bots/{make_bot(site.conn, alice.id)}{kind}"
    for _ in range(_total(site)):
        _slots(site).take(Party())
    refused = alice("GET", path)
    assert (refused.status_code, refused.json["retry"]) == (503, True)
    assert int(refused.headers["Retry-After"]) > 0
    _slots(site).release(Party())
    assert alice("GET", path).status_code == 200


def test_without_a_slot_only_short_files_are_sent(
    site: Site, alice: Person, client: Person
) -> None:
    long, short = _put(alice, LONG), _put(alice, SHORT)
    for _ in range(_total(site)):
        _slots(site).take(Party())
    assert client("GET", long).status_code == 503
    assert client("GET", short).data == SHORT
    part = client("GET", long, headers={"Range": f"bytes=5-{UNBOUNDED_BYTES}"})
    assert (part.status_code, part.data) == (206, LONG[5 : UNBOUNDED_BYTES + 1])
    _slots(site).release(Party())
    assert client("GET", long).data == LONG


@pytest.mark.parametrize(
    ("method", "headers", "status", "size"),
    [
        ("GET", {}, 200, len(LONG)),
        ("HEAD", {}, 200, 0),
        ("GET", {"Range": f"bytes={PIECE_BYTES - 1}-"}, 206, len(LONG) - PIECE_BYTES + 1),
        ("GET", {"Range": f"bytes={len(LONG)}-"}, 416, None),
        ("GET", {"If-None-Match": f'"{hashlib.sha256(LONG).hexdigest()}"'}, 304, 0),
    ],
)
def test_whatever_is_answered_the_slot_is_given_back(
    site: Site, alice: Person, method: str, headers: dict[str, Any], status: int, size: int | None
) -> None:
    path = _put(alice, LONG)
    answers: list[Answer] = [alice(method, path, headers=headers) for _ in range(_total(site) + 1)]
    assert {answer.status_code for answer in answers} == {status}
    assert size is None or {len(answer.data) for answer in answers} == {size}
    for _ in range(_total(site)):
        _slots(site).take(Party())


def test_one_who_reads_slowly_leaves_slots_to_others(
    site: Site, alice: Person, bob: Person, client: Person
) -> None:
    path, begun = _put(alice, LONG), []
    _put(bob, LONG)
    other = _reader(site, bob)
    while True:
        asked = site.app.test_client().get(
            path, headers={"Authorization": f"Bearer {client.token}"}
        )
        if asked.status_code == 503:
            break
        begun.append(asked)
    assert len(begun) == _total(site) // 4
    assert other("GET", path).data == LONG
    for answer in begun:
        answer.close()
    assert client("GET", path).data == LONG


def test_an_owner_whose_clients_read_slowly_leaves_slots_to_others(
    site: Site, alice: Person, bob: Person, client: Person
) -> None:
    path = _put(bob, LONG)
    _put(alice, LONG)
    for _ in range(_total(site) // 2):
        _slots(site).take(Party(owner=f"owner {alice.id}"))
    assert client("GET", path).status_code == 503
    assert alice("GET", path).data == LONG  # a person, not a machine
    assert _reader(site, bob)("GET", path).data == bob("GET", path).data == LONG
