"""Looks at a server's health and memory while something happens to it."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self

from .installation import BenchFailed
from .measures import memory_of

LOOK_SECONDS = 0.25
_WEIGH_SECONDS = 1.0  # reading the memory of all processes costs some
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


class Vigil:
    """Looks every quarter of a second, until the block ends."""

    def __init__(self, port: int, roots: Mapping[str, int]) -> None:
        self._port, self._roots = port, roots
        self.sights: list[Sight] = []  # all so far
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._weighing = threading.Thread(target=self._weigh, daemon=True)
        self._before = self._most = memory_of(roots).own

    def __enter__(self) -> Self:
        self._watching.start()
        self._weighing.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._watching.join()
        self._weighing.join()

    @property
    def memory_growth_mb(self) -> float:
        """How much more the server's processes had allocated at the worst moment."""
        return self._most - self._before

    def wait_until_normal(self) -> float:
        """Wait for good looks in a row; return the seconds from now to the first of them."""
        began, seen = time.monotonic(), len(self.sights)
        while time.monotonic() < began + _MOST_SECONDS:
            last = self.sights[seen:][-_WELL_LOOKS:]
            if len(last) == _WELL_LOOKS and all(map(_is_good, last)):
                return max(0.0, last[0].at - began)
            time.sleep(LOOK_SECONDS)
        raise BenchFailed(f"the server is not well {_MOST_SECONDS:g} s after the flood")

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            began = time.monotonic()
            is_well = self._is_well()
            self.sights.append(Sight(began, time.monotonic() - began, is_well))

    def _weigh(self) -> None:
        while not self._over.wait(_WEIGH_SECONDS):
            self._most = max(self._most, memory_of(self._roots).own)

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


def _is_good(sight: Sight) -> bool:
    return sight.is_well and sight.seconds < _WELL_SECONDS
