"""Parked requests in the event loop: requests for work that wait for some, without a thread.

A request that found no work, and says that it may wait, stays without an answer.  It is registered
with the poller, so that a peer that hangs up is noticed before anything is leased to it.  The
feeder wakes the loop when it has put jobs into the buffer (`buffer/wake_up.py`).  Then the engine
is asked again for the oldest parked request, the scout, which shows the loop which BOTs there are;
then for those whose hosts meet the needs of one, a few at a time, until the buffer is empty or all
that may were tried.  So a BOT that suits one host of a thousand costs two attempts.

Parked requests give way: to new connections, to an engine with a full queue, and when the process
stops.  They are then answered without work.
"""

from __future__ import annotations

import math
import os
import random
import selectors
import socket
import time
from functools import partial
from typing import Any, Protocol

from gridbot_server.buffer.wake_up import WakeUpPipe, web_pipe
from gridbot_server.dispatch.candidates import Candidate
from gridbot_server.dispatch.engine import Queued
from gridbot_server.errors import ServerError
from gridbot_server.http.long_poll import MOST_SECONDS
from gridbot_server.http.services import Services
from gridbot_server.overload.gate import Gate
from gridbot_server.web.parked import ParkedRequest, ParkedRequests

# Parked requests for which the engine is asked again together.
_OFFERED_AT_ONCE = 16
# A client that waited in vain comes back soon, to wait again.
_PARK_AGAIN_SECONDS = 0.2
# Between two looks at requests that rest.
_REST_SECONDS = 0.1
# A peer that is gone without a word is noticed after 20 seconds.
_KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 10),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 5),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 2),
)
# One that made room for others comes back later.
_EVICTED_SECONDS = 10.0


class ParkingLoop(Protocol):
    """The event loop, as far as parked requests need it."""

    poller: selectors.BaseSelector
    alive: bool
    worker_connections: int

    @property
    def services(self) -> Services:
        """What the application was made with."""

    @property
    def gate(self) -> Gate:
        """Which requests for work are admitted."""

    def answer(self, conn: Any, item: Queued) -> None:
        """Send what the engine has answered."""

    def refuse(self, conn: Any, error: Exception) -> None:
        """Answer with an error."""

    def hang_up(self, conn: Any) -> None:
        """Close a connection."""


class Parking:
    """The parked requests of a web process; used by its event loop only."""

    def __init__(self, loop: ParkingLoop) -> None:
        self._loop = loop
        self._parked = ParkedRequests()
        self._offered: dict[Any, ParkedRequest] = {}  # in the engine once more, by connection
        self._wake_ups: WakeUpPipe | None = None  # opened with the first parked request
        self._is_woken = False  # and not all of them were tried since
        self._wants_scout = False  # the engine has not looked at the buffer since
        self._offer_at = 0.0  # when they are looked at again

    @property
    def is_empty(self) -> bool:
        """Whether no request is parked."""
        return not self._parked

    def keeps(self, conn: Any, item: Queued) -> bool:
        """Park a request that the engine has served, if it may wait and found nothing.

        False if it is to be answered.
        """
        parked = self._offered.pop(conn, None)
        if parked is None and (last := self._parked.of_client(item.token_hash)):
            self._parked.remove(last.conn)
            self._give_up(last)  # its client has something new to say
        if parked is None and not item.request.wait:
            return False
        is_last_of_round = parked is not None and not self._offered
        if parked is None and self._has_room():
            parked = ParkedRequest(conn, item, time.monotonic() + _seconds(item))
        if is_parked := parked is not None and item.may_wait and self._loop.alive:
            assert parked is not None
            parked.host = item.result().seeker
            self._park(parked)
        if is_last_of_round:
            self._is_woken = self._is_woken and item.may_find_more
        if is_parked and not item.was_parked:
            self._offer_at = 0.0  # the feeder may have called between the engine's look and this
        if is_parked or is_last_of_round:
            self._offer_work()
        return is_parked

    def make_room(self) -> bool:
        """Let the oldest request go; False if there is none."""
        parked = self._parked.oldest()
        if parked is None:
            return False
        self._parked.remove(parked.conn)
        self._give_up(parked, _EVICTED_SECONDS)
        return True

    def turn(self) -> None:
        """Answer those whose time is over; due once a second."""
        for parked in self._parked.expired(time.monotonic() if self._loop.alive else math.inf):
            self._give_up(parked)
        self._offer_work()

    def _has_room(self) -> bool:
        """Whether a request that has just come may be parked."""
        return len(self._parked) < self._loop.worker_connections // 4

    def _park(self, parked: ParkedRequest) -> None:
        if superseded := self._parked.add(parked):
            self._give_up(superseded)
        conn = parked.conn
        for option, value in _KEEPALIVE:
            conn.sock.setsockopt(*option, value)
        self._loop.poller.register(conn.sock, selectors.EVENT_READ, partial(self._on_parked, conn))
        if self._wake_ups is None:
            path = web_pipe(self._loop.services.settings.buffer_path, os.getpid())
            self._wake_ups = WakeUpPipe(path)
            self._loop.poller.register(self._wake_ups, selectors.EVENT_READ, self._on_wake_up)
            self._is_woken = self._wants_scout = True  # work may have come before there was a pipe

    def _on_wake_up(self, wake_ups: WakeUpPipe) -> None:
        wake_ups.drain()
        self._is_woken = self._wants_scout = True
        self._offer_at = 0.0
        self._offer_work()

    def _on_parked(self, conn: Any, sock: socket.socket) -> None:
        """The peer of a parked request hangs up, or sends another request."""
        parked = self._parked.remove(conn)
        if parked is None:  # it was offered work, or let go, since the poller reported it
            return
        self._loop.poller.unregister(sock)
        try:
            has_more = bool(sock.recv(1, socket.MSG_PEEK))
        except OSError:
            has_more = False
        if has_more:
            self._loop.answer(conn, parked.item)
        else:
            self._loop.hang_up(conn)

    def _offer_work(self) -> None:
        """Ask the engine again for parked requests, if woken, and if it is not being asked."""
        now = time.monotonic()
        if not self._is_woken or self._offered or now < self._offer_at:
            return
        admission = self._loop.gate.admission
        if not admission.admits(has_reports=False):
            return
        if self._wants_scout:
            self._wants_scout = False
            found = self._parked.scout(now)
        else:
            found = self._parked.ready(now, _OFFERED_AT_ONCE, self._work())
        if not found:  # all that are left rest, or none is suited
            self._offer_at = now + _REST_SECONDS
        for parked in found:
            self._loop.poller.unregister(parked.conn.sock)
            self._offered[parked.conn] = parked
            admission.begin()
            try:
                self._loop.services.engine.ask_again(parked.item)
            except ServerError as error:
                admission.end(time.monotonic())
                del self._offered[parked.conn]
                self._loop.refuse(parked.conn, error)

    def _work(self) -> dict[str, Candidate]:
        """The BOTs that have some, by what they need of a host."""
        return {item.needs: item for item in self._loop.services.engine.candidates if item.has_work}

    def _give_up(self, parked: ParkedRequest, seconds: float = _PARK_AGAIN_SECONDS) -> None:
        """Answer a parked request, which is no longer kept, without work."""
        self._loop.poller.unregister(parked.conn.sock)
        reply = parked.item.result()
        reply.next_request_seconds = seconds
        self._loop.answer(parked.conn, parked.item)


def _seconds(item: Queued) -> float:
    """For how long a request that found no work is parked.

    That of a client which runs something is answered as often as it would ask without parking: the
    answer tells what it should stop.
    """
    if item.request.holding and item.may_wait:
        return min(item.request.wait, MOST_SECONDS, item.result().next_request_seconds)
    return min(item.request.wait, MOST_SECONDS) * random.uniform(0.7, 1.0)  # noqa: S311
