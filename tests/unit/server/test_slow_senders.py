"""Claims about peers that send slowly; the clock is the test's."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gridbot_server.overload.slow_senders import BYTES_PER_SECOND, PATIENCE_SECONDS, PacedSocket


class Line:
    """A connection whose peer lets so many seconds pass before each piece."""

    def __init__(self, ours: socket.socket, peer: socket.socket) -> None:
        self.now, self.between, self.ours, self.peer = 0.0, 0.0, ours, peer
        self.wait_in_queue(0)

    def wait_in_queue(self, seconds: float) -> None:
        self.paced = PacedSocket(self.ours, seconds, self._clock)

    def _clock(self) -> float:
        self.now += self.between / 2
        return self.now

    def send(self, data: bytes, seconds: float) -> bytes:
        self.between = 2 * seconds
        self.peer.sendall(data)
        return self.paced.recv(len(data))


@pytest.fixture
def line() -> Iterator[Line]:
    ours, peer = socket.socketpair()
    with ours, peer:
        yield Line(ours, peer)


def test_a_peer_that_sends_byte_by_byte_is_waited_for_once(line: Line) -> None:
    for _ in range(int(PATIENCE_SECONDS / 8)):
        assert line.send(b"x", seconds=8) == b"x"
    with pytest.raises(TimeoutError, match="too slowly"):
        line.send(b"x", seconds=8)


def test_a_peer_that_is_fast_enough_may_send_for_ever(line: Line) -> None:
    piece = bytes(BYTES_PER_SECOND)
    for _ in range(100):
        assert line.send(piece, seconds=1) == piece


def test_nobody_saves_patience_for_later(line: Line) -> None:
    for _ in range(10):
        line.send(bytes(10 * BYTES_PER_SECOND), seconds=0)
    with pytest.raises(TimeoutError):
        line.send(b"x", seconds=PATIENCE_SECONDS + 1)


def test_the_time_in_a_queue_counts_but_for_a_second(line: Line) -> None:
    line.wait_in_queue(60)
    assert line.send(b"x", seconds=0.5) == b"x"
    with pytest.raises(TimeoutError):
        line.send(b"x", seconds=1)


def test_the_sockets_own_limit_stays_as_it_was(line: Line) -> None:
    line.paced.settimeout(60)
    line.send(b"x", seconds=0)
    assert line.paced.gettimeout() == 60


def test_a_peer_that_sends_nothing_is_not_waited_for_longer_than_before(line: Line) -> None:
    line.paced.settimeout(0.01)
    with pytest.raises(TimeoutError, match="too slowly"):
        line.paced.recv(1)
