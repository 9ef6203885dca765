"""Requests that wait for news of a BOT in the event loop, and who brings the news.

A thread has run the view, which found nothing new (`http/long_poll.py`).  The connection and the
parsed request come back to the loop; they go to a thread again when the BOT has news, when the time
is over, or when the process stops.  The last two times the view answers as it is.  A request whose
view ran again in vain rests, twice as long each time: news that it does not want cost little.

PostgreSQL notifies of news (`gridbot_news`: a BOT's number, and whether it has ended); a thread
listens.  News that came while the view looked are not missed: their time is kept, and compared with
the view's start.
"""

from __future__ import annotations

import logging
import math
import selectors
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import psycopg

from gridbot_server.http.long_poll import MOST_SECONDS, NoNews
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage import db, sql

log = logging.getLogger(__name__)

SQL = sql.load("news.sql")

# Of one key: others are to have room, too.
_MOST_OF_PARTY = 64
# News of so many BOTs are remembered, far longer than a view takes.
_REMEMBERED = 10_000
_LEAST_REST, _MOST_REST = 1 / 64, 1.0  # seconds after a view ran again in vain
_LOOK_SECONDS = 0.5  # of the listener, for the process's end
_RETRY_SECONDS = 1.0


class _Topic(NamedTuple):
    """What a request waits for: a BOT's end, or any news of it."""

    bot: int
    until_end: bool


@dataclass(slots=True)
class LongPoll:
    """A request that waits."""

    request: Any  # as gunicorn has parsed it
    topic: _Topic
    party: Party
    until: float  # when it must be answered
    rest: float = 0.0  # seconds, after its view ran again in vain
    rests_until: float = 0.0
    has_news: bool = False  # that came while it rested

    def begin_to_rest(self, now: float) -> None:
        """Its view ran again in vain."""
        self.rest = min(_MOST_REST, max(_LEAST_REST, 2 * self.rest))
        self.rests_until = now + self.rest


class PollingLoop(Protocol):
    """The event loop, as far as long polls need it."""

    poller: selectors.BaseSelector
    alive: bool
    worker_connections: int

    def run_again(self, conn: Any, poll: LongPoll) -> None:
        """Let a thread run the view of a request that waited; it may wait on until its time."""

    def hang_up(self, conn: Any) -> None:
        """Close a connection."""


class LongPolls:
    """The long polls of a web process; used by its event loop only."""

    def __init__(self, loop: PollingLoop, start_listener: Callable[[], None]) -> None:
        self._loop, self._start_listener = loop, start_listener
        self._waiting: dict[Any, LongPoll] = {}
        self._of_topic: defaultdict[_Topic, set[Any]] = defaultdict(set)
        self._of_party: Counter[Party] = Counter()
        self._news_at: dict[_Topic, float] = {}  # the newest last
        self._is_listened_for = False  # the listener was started
        self._heard_since = 0.0  # nothing is missed since

    def keep(self, conn: Any, request: Any, wish: NoNews, began: float) -> None:
        """Let a request wait whose view began to look at `began`."""
        until = time.monotonic() + min(wish.seconds, MOST_SECONDS)
        poll = LongPoll(request, _Topic(wish.bot, wish.until_end), wish.party, until)
        self._wait(conn, poll, began)

    def keep_on(self, conn: Any, poll: LongPoll, began: float) -> None:
        """Let a request wait on whose view began to look again at `began`, in vain."""
        poll.begin_to_rest(time.monotonic())
        self._wait(conn, poll, began)

    def _wait(self, conn: Any, poll: LongPoll, began: float) -> None:
        if not self._is_listened_for:
            self._is_listened_for = True
            self._start_listener()
        if poll.until <= time.monotonic() or not self._has_room(poll.party):
            self._answer(conn, poll)
            return
        poll.has_news = max(self._news_at.get(poll.topic, 0.0), self._heard_since) >= began
        self._waiting[conn] = poll
        self._of_topic[poll.topic].add(conn)
        self._of_party[poll.party] += 1
        conn.sock.setblocking(False)
        self._loop.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_read, conn))
        if poll.has_news:
            self._look_again(conn)

    def tell(self, bot: int, has_ended: bool) -> None:
        """A BOT has news."""
        for topic in (_Topic(bot, False), *((_Topic(bot, True),) if has_ended else ())):
            self._news_at.pop(topic, None)
            self._news_at[topic] = time.monotonic()
            for conn in list(self._of_topic.get(topic, ())):
                self._look_again(conn)
        while len(self._news_at) > _REMEMBERED:
            del self._news_at[next(iter(self._news_at))]

    def listening(self) -> None:
        """From now on news are heard; what came before may have been missed."""
        self._heard_since = time.monotonic()
        for conn in list(self._waiting):
            self._look_again(conn)

    def turn(self) -> None:
        """Answer those whose time is over, look for those that rested; due once a second."""
        now = time.monotonic() if self._loop.alive else math.inf
        for conn, poll in list(self._waiting.items()):
            if poll.until <= now:
                self._answer(conn, self._remove(conn))
            elif poll.has_news:
                self._look_again(conn)

    def _has_room(self, party: Party) -> bool:
        most = self._loop.worker_connections // 8
        is_free = len(self._waiting) < most and self._of_party[party] < _MOST_OF_PARTY
        return is_free and self._loop.alive

    def _look_again(self, conn: Any) -> None:
        """There are news for a request; its view runs again once it has rested."""
        poll = self._waiting[conn]
        poll.has_news = True
        if poll.rests_until <= time.monotonic():
            self._loop.run_again(conn, self._remove(conn))

    def _answer(self, conn: Any, poll: LongPoll) -> None:
        """Have a request answered as it is."""
        poll.until = 0.0
        self._loop.run_again(conn, poll)

    def _remove(self, conn: Any) -> LongPoll:
        poll = self._waiting.pop(conn)
        self._loop.poller.unregister(conn.sock)
        self._of_topic[poll.topic].remove(conn)
        if not self._of_topic[poll.topic]:
            del self._of_topic[poll.topic]
        self._of_party[poll.party] -= 1
        if not self._of_party[poll.party]:
            del self._of_party[poll.party]
        return poll

    def _on_read(self, conn: Any, sock: socket.socket) -> None:
        """The peer hangs up, or sends another request."""
        if conn not in self._waiting:  # it went to a thread since the poller reported it
            return
        try:
            has_more = bool(sock.recv(1, socket.MSG_PEEK))
        except OSError:
            has_more = False
        poll = self._remove(conn)
        if has_more:
            self._answer(conn, poll)
        else:
            self._loop.hang_up(conn)


def listen(
    dsn: str,
    is_alive: Callable[[], bool],
    listening: Callable[[], None],
    tell: Callable[[int, bool], None],
) -> None:
    """Hear the database's news until the process ends; a database that goes away is waited for."""
    while is_alive():
        try:
            with db.connect(dsn, "gridbot-news", autocommit=True) as database:
                database.execute(SQL["listen"])
                listening()
                while is_alive():
                    for news in database.notifies(timeout=_LOOK_SECONDS):
                        bot, has_ended = news.payload.split()
                        tell(int(bot), has_ended == "true")
        except psycopg.OperationalError as error:
            log.warning("news of BOTs: the database is away: %s", str(error).strip())
            time.sleep(_RETRY_SECONDS)
