"""Members of a gang start at the same time, and end when one of them has failed.

A member that has all it needs arrives at the server's barrier, and waits there until all have.  A
request that the server keeps tells it so, and later that the gang is over: another member failed or
vanished, or too few came in time.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

from gridbot_client.backoff import REQUESTS
from gridbot_client.net.transport import RequestRefused, Transport, TransportError
from gridbot_client.protocol.messages import ReplicaId
from gridbot_client.work.runner import Stop

log = logging.getLogger(__name__)

_WAIT_SECONDS = 45  # for another state, in one request
_LEAST_SECONDS = 1.0  # between two requests that told nothing new
_LOOK_SECONDS = 0.5  # whoever stops a replica wakes nobody here
_PATH = "/api/v1/clients/self/gang"

# What a member is told, by variables.
SIZE, RANK, MEMBERS = "GRIDBOT_GANG_SIZE", "GRIDBOT_GANG_RANK", "GRIDBOT_GANG_MEMBERS"


class Gang:
    """The gang of one replica, as a context: leaving it ends the watch."""

    def __init__(
        self, connect: Callable[[], Transport], id: ReplicaId, size: int, stop: Stop
    ) -> None:
        self._connect, self._id, self._size, self._stop = connect, id, size, stop
        self._run = uuid.uuid4().hex  # a member that began its program again is another one
        self._changed = threading.Condition()
        self._members: list[str] = []
        self._is_left = False
        self.is_over = False  # the server has taken the replica back

    def __enter__(self) -> Gang:
        threading.Thread(target=self._watch, name=f"gang of {self._id}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        with self._changed:
            self._is_left = True
            self._changed.notify_all()

    def gather(self) -> Mapping[str, str]:
        """Wait until all have arrived, or the replica is stopped; return variables for it."""
        with self._changed:
            while not (self._members or self._stop.is_asked):
                self._changed.wait(_LOOK_SECONDS)
            return {
                SIZE: str(self._size),
                RANK: str(self._id.seq % self._size),
                MEMBERS: ",".join(self._members),
            }

    def _watch(self) -> None:
        """Tell the server that the member is here, and follow what the gang does.

        Failures only put off the next question: it asks as long as the gang is there.
        """
        known, failures = "", 0
        with self._connect() as transport:
            address = free_address(transport.url)
            while not self._is_left:
                began, pause = time.monotonic(), 0.0
                try:
                    state, members = self._ask(transport, address, known)
                    failures = 0
                except TransportError as error:
                    if isinstance(error, RequestRefused) and not error.shuts_out:
                        log.warning("gang of %s: %s", self._id, error)
                        return self._end()
                    failures += 1
                    pause = REQUESTS.after(error, failures, random.random())  # noqa: S311
                else:
                    if state == "over":
                        return self._end()
                    if state == known:
                        pause = began + _LEAST_SECONDS - time.monotonic()
                    known = state
                    self._take(members)
                self._rest(pause)

    def _ask(self, transport: Transport, address: str, known: str) -> tuple[str, list[str]]:
        """Arrive if nothing is known; else wait for another state."""
        if known:
            asked = f"{self._id.bot}/{self._id.seq}/{self._id.replica}"
            told = transport.get_json(f"{_PATH}/{asked}?known={known}&wait={_WAIT_SECONDS}")
        else:
            said = {"replica": list(self._id), "address": address, "run": self._run}
            told = transport.post_json(_PATH, said)
        return str(told["state"]), [str(member) for member in told["members"]]

    def _take(self, members: list[str]) -> None:
        with self._changed:
            self._members = members
            self._changed.notify_all()

    def _rest(self, seconds: float) -> None:
        with self._changed:
            if seconds > 0 and not self._is_left:
                self._changed.wait(seconds)

    def _end(self) -> None:
        with self._changed:
            if not self._is_left:
                self.is_over = True
                self._stop.ask()
                self._changed.notify_all()


def free_address(url: str) -> str:
    """HOST:PORT under which others of the server's network may reach this machine.

    The host is that from which the server is reached, the port one that nobody has now.
    """
    host = _host_towards(urlsplit(url).hostname or "localhost")
    is_v6 = ":" in host
    with socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return f"[{host}]:{port}" if is_v6 else f"{host}:{port}"


def _host_towards(server: str) -> str:
    """The address of this machine on the way to a server; nothing is sent."""
    with suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(server, 9, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(address)
                return str(ipaddress.ip_address(probe.getsockname()[0]))
    return "127.0.0.1"
