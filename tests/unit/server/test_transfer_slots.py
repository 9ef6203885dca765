"""Claims about how slots for transfers are shared."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from gridbot_server.errors import ServerBusy
from gridbot_server.overload.transfer_slots import Party, Slots


def taken(slots: Slots, party: Party) -> int:
    """How many slots somebody gets who takes all that he can."""
    count = 0
    while True:
        try:
            slots.take(party)
        except ServerBusy:
            return count
        count += 1


@pytest.mark.parametrize(("total", "few"), [(1, 1), (2, 1), (3, 1), (8, 2), (16, 4), (64, 16)])
def test_a_client_gets_a_quarter(total: int, few: int) -> None:
    assert taken(Slots(total), Party("client")) == few


@pytest.mark.parametrize(("total", "half"), [(1, 1), (2, 1), (3, 2), (16, 8)])
def test_an_owner_with_many_clients_gets_half(total: int, half: int) -> None:
    slots = Slots(total)
    count = sum(taken(slots, Party(f"client {number}", "owner")) for number in range(total))
    assert count == half


def test_each_owner_leaves_something_to_the_next() -> None:
    slots = Slots(16)
    found = [taken(slots, Party(owner=f"owner {number}")) for number in range(5)]
    assert found == [8, 4, 2, 1, 1]


def test_who_is_not_known_gets_what_is_free_and_no_more() -> None:
    slots = Slots(16)
    assert taken(slots, Party("client", "owner")) == 4
    assert taken(slots, Party()) == 12
    assert taken(slots, Party("other", "another")) == 0


def test_what_is_given_back_is_anybodys() -> None:
    slots, party = Slots(4), Party("client", "owner")
    for _ in range(10):
        with slots.held(party), pytest.raises(ServerBusy):
            slots.take(party)
    assert taken(slots, Party()) == 4


def test_a_slot_is_given_back_when_its_transfer_fails() -> None:
    slots = Slots(1)
    for _ in range(3):
        with pytest.raises(KeyError), slots.held(Party("client", "owner")):
            raise KeyError
    assert taken(slots, Party()) == 1


def test_many_who_come_at_once_get_no_more_than_there_are() -> None:
    slots, together, found = Slots(16), Barrier(32), []

    def come(number: int) -> None:
        together.wait()
        found.append(taken(slots, Party(f"client {number}")))

    threads = [Thread(target=come, args=[number]) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found) == 16
    assert max(found) <= 4
