"""Looks at a server's memory and health in the background, while something happens to it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self

from .installation import BenchFailed
from .usage import Memory, memory_of

_LOOK_SECONDS = 0.25
_WELL_SECONDS = 0.1
_WELL_LOOKS = 4  # in a row, until a server counts as well again
_PATIENCE_SECONDS = 10.0  # of one look
_MOST_SECONDS = 120.0  # until it is well again


@dataclass(frozen=True, slots=True)
class Sight:
    """One health check, on a connection of its own."""

    at: float  # s, of a clock
    seconds: float
    is_well: bool

    @property
    def is_good(self) -> bool:
        """Whether it was answered as an idle server answers."""
        return self.is_well and self.seconds < _WELL_SECONDS


class Watch:
    """Notes a server's memory, and with a `port` its health as well, until the block ends."""

    def __init__(
        self, roots: Mapping[str, int], port: int | None = None, weigh_seconds: float = 0.25
    ) -> None:
        self._roots, self._port = roots, port
        self.memory: list[Memory] = [memory_of(roots)]  # from before the block on
        self.sights: list[Sight] = []
        self._over = threading.Event()
        works = [(weigh_seconds, self._weigh)]
        if port is not None:
            works.append((_LOOK_SECONDS, self._look))
        self._threads = [
            threading.Thread(target=self._repeat, args=work, daemon=True) for work in works
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def most(self) -> Memory:
        """The memory at the moment when all processes together had most."""
        return max(self.memory, key=lambda found: found.pss)

    @property
    def most_growth_mb(self) -> float:
        """How much more the processes had allocated, at the worst moment, than before."""
        return max(found.own for found in self.memory) - self.memory[0].own

    def wait_until_normal(self) -> float:
        """Wait for good looks in a row; return the seconds from now to the first of them."""
        began, seen = time.monotonic(), len(self.sights)
        while time.monotonic() < began + _MOST_SECONDS:
            last = self.sights[seen:][-_WELL_LOOKS:]
            if len(last) == _WELL_LOOKS and all(sight.is_good for sight in last):
                return max(0.0, last[0].at - began)
            time.sleep(_LOOK_SECONDS)
        raise BenchFailed(f"the server is not well {_MOST_SECONDS:g} s after the flood")

    def _repeat(self, seconds: float, work: Callable[[], None]) -> None:
        while not self._over.wait(seconds):
            work()

    def _weigh(self) -> None:
        self.memory.append(memory_of(self._roots))

    def _look(self) -> None:
        began = time.monotonic()
        is_well = self._is_well()
        self.sights.append(Sight(began, time.monotonic() - began, is_well))

    def _is_well(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_SECONDS)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        else:
            return answer.status == HTTPStatus.OK
        finally:
            connection.close()
