"""Which idle CPUs friends get, and when home gets them back."""

import pytest

from gridbot_client.agent import LocalReplica, Room, Stage
from gridbot_client.friends.guests import environment
from gridbot_client.friends.lending import (
    Friend,
    LateUse,
    Loan,
    Rest,
    to_lend,
    to_take_back,
)
from gridbot_client.options import LEND_AFTER_SECONDS
from gridbot_client.protocol.manifest import Resources
from gridbot_client.protocol.messages import ReplicaId

ROOM = Room(cpus=8, memory_mb=8000)
NOTHING = Resources(cpus=0, memory_mb=0)


def friend(name: str, share: int = 100) -> Friend:
    return Friend(name, f"https://{name}.example", share)


def lent(friends: list[Friend], used: Resources = NOTHING, *loans: Loan) -> dict[str, int]:
    return {loan.friend: loan.cpus for loan in to_lend(friends, loans, used, ROOM)}


def replica(number: int, stage: Stage, cpus: int = 1, gpus: int = 0) -> LocalReplica:
    resources = Resources(cpus=cpus, memory_mb=500 * cpus, gpus=gpus)
    return LocalReplica(ReplicaId(1, number, 1), resources, stage)


def test_the_first_friend_gets_all_that_its_share_allows_and_the_next_ones_the_rest() -> None:
    assert lent([friend("a"), friend("b")]) == {"a": 8}
    assert lent([friend("a", 25), friend("b", 50), friend("c")]) == {"a": 2, "b": 4, "c": 2}
    assert lent([friend("a", 1), friend("b")]) == {"a": 1, "b": 7}


def test_what_home_uses_and_what_is_lent_is_not_lent_again() -> None:
    used, loan = Resources(cpus=3, memory_mb=1500), Loan("a", 2, 1000)
    assert lent([friend("b")], used, loan) == {"b": 3}
    assert lent([friend("b")], Resources(cpus=8, memory_mb=4000)) == {}
    assert lent([friend("b")], Resources(cpus=1, memory_mb=8000)) == {}


def test_memory_is_divided_as_cpus_are() -> None:
    half, rest = to_lend([friend("a", 50), friend("b")], [], NOTHING, ROOM)
    assert (half.memory_mb, rest.memory_mb) == (4000, 4000)


def test_home_takes_back_no_more_than_its_next_replica_needs() -> None:
    loans = [Loan("a", 4, 4000), Loan("b", 4, 4000)]
    waiting = [replica(1, Stage.WAITING)]
    assert to_take_back(loans, waiting, ROOM) == [loans[1]]
    assert to_take_back(loans, [replica(1, Stage.WAITING, cpus=6)], ROOM) == [loans[1], loans[0]]
    # It starts once the other one has left.
    assert to_take_back(loans[:1], waiting, ROOM) == []


def test_nothing_is_taken_back_that_would_not_help() -> None:
    loans = [Loan("a", 4, 4000)]
    assert to_take_back(loans, [replica(1, Stage.RUNNING)], ROOM) == []
    busy = [replica(1, Stage.RUNNING, cpus=4), replica(2, Stage.WAITING, gpus=1)]
    assert to_take_back(loans, busy, ROOM) == []


@pytest.mark.parametrize("cpus", [1, 2])
def test_cpus_that_home_used_a_moment_ago_are_not_idle(cpus: int) -> None:
    use = LateUse(LEND_AFTER_SECONDS)
    assert use.note([], 0.0) is None
    assert use.note([], LEND_AFTER_SECONDS) == NOTHING
    use.note([replica(1, Stage.RUNNING, cpus)], LEND_AFTER_SECONDS + 1)
    late = use.note([], LEND_AFTER_SECONDS + 2)
    assert late == Resources(cpus=cpus, memory_mb=500 * cpus)
    assert use.note([], 2 * LEND_AFTER_SECONDS + 1.5) == late
    assert use.note([], 2 * LEND_AFTER_SECONDS + 2) == NOTHING


def test_a_friend_whose_guest_fails_is_asked_less_and_less() -> None:
    idle = Rest().after(0.0, has_failed=False)
    failed = idle.after(0.0, has_failed=True)
    assert idle.until < failed.until < failed.after(0.0, has_failed=True).until
    assert failed.after(0.0, has_failed=False).until == idle.until


def test_a_guest_has_not_the_key_of_home_which_it_could_show_a_friend() -> None:
    given = {"GRIDBOT_KEY": "gb_of_home", "GRIDBOT_SERVER": "https://home.example", "PATH": "/bin"}
    assert environment(given) == {"PATH": "/bin"}
