"""How many replicas fit into a host at once."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridbot_client.agent import LocalReplica, Room, Stage, to_start
from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_server.matching.places import free_places

SIZES = st.builds(Resources, cpus=st.integers(1, 12), memory_mb=st.integers(0, 12))


def host(cpus: int, memory_mb: int = 10**6, nodes: int = 1) -> dict[str, int]:
    return {"NumCpus": cpus, "Memory": memory_mb, "NumNodes": nodes}


def size(cpus: int, memory_mb: int = 1) -> Resources:
    return Resources(cpus=cpus, memory_mb=memory_mb)


def started(room: Room, sizes: list[Resources]) -> int:
    """How many replicas the client starts of those that wait, in this order."""
    waiting = [
        LocalReplica(ReplicaId(1, seq, 1), wanted, Stage.WAITING)
        for seq, wanted in enumerate(sizes)
    ]
    return len(to_start(waiting, room))


@given(nodes=st.integers(1, 4), node=SIZES, wanted=SIZES, held=st.integers(0, 9))
def test_replicas_of_one_size_fit_as_the_client_places_them(
    nodes: int, node: Resources, wanted: Resources, held: int
) -> None:
    room = Room(node.cpus * nodes, node.memory_mb * nodes, nodes=nodes)
    if wanted.cpus > room.cpus or wanted.memory_mb > room.memory_mb:
        return  # such a host gets none of them anyway
    fit = started(room, [wanted] * 50)
    held = min(held, fit)
    there = host(room.cpus, room.memory_mb, nodes)
    assert free_places(there, wanted, {wanted: held}) == fit - held


@given(room=SIZES, wanted=SIZES, held=st.lists(SIZES, max_size=4))
def test_beside_replicas_of_other_sizes_one_machine_has_room_as_the_client_sees_it(
    room: Resources, wanted: Resources, held: list[Resources]
) -> None:
    all_of_it = Room(room.cpus, room.memory_mb)
    if wanted.cpus > room.cpus or wanted.memory_mb > room.memory_mb:
        return
    held = [item for item in held if item.cpus <= room.cpus and item.memory_mb <= room.memory_mb]
    held = held[: started(all_of_it, held)]
    fit = started(all_of_it, [*held, *[wanted] * 50]) - len(held)
    assert free_places(host(room.cpus, room.memory_mb), wanted, Counter(held)) == fit


def test_nodes_are_filled_one_after_the_other() -> None:
    assert free_places(host(64, nodes=2), size(20), {}) == 2
    assert free_places(host(64, nodes=2), size(8), {size(4): 8}) == 4
    assert free_places(host(64, nodes=2), size(8), {size(4): 9}) == 3
    assert free_places(host(64, nodes=2), size(40), {size(1): 1}) == 0
    assert free_places(host(64, nodes=2), size(1), {size(40): 1}) == 0


@pytest.mark.parametrize("nodes", [0, -1, "x", None, 0.5])
def test_a_host_that_says_nonsense_of_its_nodes_is_one_machine(nodes: object) -> None:
    assert free_places({"NumCpus": 4, "NumNodes": nodes}, size(2), {}) == 2


def test_what_a_host_does_not_say_bounds_nothing() -> None:
    assert free_places({}, size(1), {size(1): 9}) == math.inf
    assert free_places({"NumCpus": 4}, size(1, 10**6), {}) == 4
    assert free_places({"NumCpus": -4}, size(1), {size(1): 1}) == 0
    assert free_places({"NumCpus": 4, "NumNodes": 1e308}, size(1), {}) == 0
