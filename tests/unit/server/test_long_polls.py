"""How often a request that waits for news of a BOT looks for them."""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.system.deployment import eventually

from gridbot_server.http.long_poll import NoNews
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.web.long_polls import LongPoll, LongPolls

BOT, OTHER_BOT = 1, 2


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock


class Loop:
    """Where views find nothing new, however often they run."""

    def __init__(self) -> None:
        self.poller: selectors.BaseSelector = selectors.DefaultSelector()
        self.alive = True
        self.worker_connections = 1000
        self.polls = LongPolls(self, lambda: None)
        self.answered = 0
        self.looked = 0

    def run_again(self, conn: Any, poll: LongPoll) -> None:
        if poll.until <= time.monotonic():
            self.answered += 1
            return
        self.looked += 1
        self.polls.keep_on(conn, poll, time.monotonic())

    def hang_up(self, conn: Any) -> None:
        raise AssertionError(f"{conn} did not hang up")


@pytest.fixture
def loop() -> Iterator[Loop]:
    """One request waits in it."""
    here, there = socket.socketpair()
    made = Loop()
    wish = NoNews(BOT, until_end=False, seconds=50, party=Party("key"))
    with here, there, closing(made.poller):
        made.polls.listening()
        made.polls.keep(Connection(here), None, wish, time.monotonic())
        yield made


def test_news_that_a_request_does_not_want_are_looked_at_ever_more_rarely(loop: Loop) -> None:
    began = time.monotonic()
    for _ in range(10_000):
        loop.polls.tell(BOT, has_ended=False)
    seconds = time.monotonic() - began
    assert 1 <= loop.looked <= 2 + math.log2(1 + 64 * seconds) + seconds
    assert not loop.answered


def test_news_that_came_while_a_request_rested_are_looked_at_after_it(loop: Loop) -> None:
    while loop.looked < 3:  # it rests longer than the machine may
        loop.polls.tell(BOT, has_ended=False)
    loop.polls.tell(BOT, has_ended=False)

    def looks() -> bool:
        loop.polls.turn()
        return loop.looked > 3

    eventually(looks, what="a look at the news")


def test_news_of_another_bot_wake_nobody(loop: Loop) -> None:
    loop.polls.tell(OTHER_BOT, has_ended=True)
    loop.polls.turn()
    assert not loop.looked


def test_requests_that_wait_are_answered_when_the_process_ends(loop: Loop) -> None:
    loop.alive = False
    loop.polls.turn()
    assert loop.answered == 1
