"""Claims about how slowly a peer may take an answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gridbot_server.http.slow_readers import BYTES_PER_SECOND, paced
from gridbot_server.overload.slow_senders import PATIENCE_SECONDS

PIECE = bytes(BYTES_PER_SECOND)  # what must be taken in a second


class Sending:
    """An endless answer; the test says how long each piece takes, and the next is to come."""

    def __init__(self, sock: socket.socket) -> None:
        self.now, self.away = 0.0, 0.0
        self.socket = sock
        self._pieces = paced(self._source(), sock, clock=lambda: self.now)

    def _source(self) -> Iterator[bytes]:
        while True:
            self.now += self.away
            yield PIECE

    def goes_on(self, seconds: float) -> bool:
        """Send a piece; whether the next one is to be sent."""
        self.now += seconds
        try:
            next(self._pieces)
        except ConnectionResetError:
            return False
        return True


@pytest.fixture
def sending() -> Iterator[Sending]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sock,
    ):
        made = Sending(sock)
        assert made.goes_on(0)  # the first one
        yield made


def test_who_keeps_the_pace_is_served_for_ever(sending: Sending) -> None:
    assert all(sending.goes_on(1.0) for _ in range(10_000))


def test_who_takes_half_of_it_is_cut_off_when_patience_ends(sending: Sending) -> None:
    pieces = 0
    while sending.goes_on(2.0):
        pieces += 1
    assert pieces == PATIENCE_SECONDS - 1  # of a second too many each; with the next it is gone


def test_who_was_fast_before_has_no_more_patience_than_others(sending: Sending) -> None:
    assert all(sending.goes_on(0.0) for _ in range(1000))
    assert not sending.goes_on(PATIENCE_SECONDS + 1.0)


def test_who_is_slow_for_once_gets_his_patience_back(sending: Sending) -> None:
    for _ in range(10):
        assert sending.goes_on(PATIENCE_SECONDS)
        assert all(sending.goes_on(0.0) for _ in range(20))


def test_who_takes_nothing_is_waited_for_as_long_as_there_is_patience(sending: Sending) -> None:
    assert sending.socket.gettimeout() == PATIENCE_SECONDS + 1.0
    assert sending.goes_on(11.0)
    assert sending.socket.gettimeout() == PATIENCE_SECONDS + 1.0 - 10.0


def test_a_server_that_is_slow_itself_blames_nobody(sending: Sending) -> None:
    sending.away = 1000.0
    assert all(sending.goes_on(1.0) for _ in range(100))
