"""The queue of connections that stands in for gunicorn's deques."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gridbot_server.web.connections import ConnectionQueue


class Connection:
    """Equal to another only if somebody asks, which takes time."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("connections are not to be compared")

    __hash__ = object.__hash__


def filled(count: int) -> tuple[ConnectionQueue, Sequence[Connection]]:
    queue, connections = ConnectionQueue(), [Connection() for _ in range(count)]
    for conn in connections:
        queue.append(conn)
    return queue, connections


def numbers(queue: ConnectionQueue, connections: Sequence[Connection]) -> list[int]:
    places = {id(conn): number for number, conn in enumerate(connections)}
    return [places[id(conn)] for conn in queue]


def test_connections_leave_in_the_order_in_which_they_came() -> None:
    queue, connections = filled(3)
    assert queue[0] is connections[0]
    assert [queue.popleft() is conn for conn in connections] == [True] * 3
    assert not queue


def test_one_is_removed_wherever_it_is_without_a_look_at_others() -> None:
    queue, connections = filled(4)
    queue.remove(connections[2])
    queue.remove(connections[0])
    assert numbers(queue, connections) == [1, 3]
    assert (len(queue), queue[0] is connections[1]) == (2, True)


def test_one_that_comes_again_is_last() -> None:
    queue, connections = filled(3)
    queue.remove(connections[0])
    queue.append(connections[0])
    assert numbers(queue, connections) == [1, 2, 0]


def test_what_is_not_there_cannot_be_removed() -> None:
    queue, connections = filled(1)
    queue.remove(connections[0])
    with pytest.raises(ValueError, match="no such connection"):
        queue.remove(connections[0])
