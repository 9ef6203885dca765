"""Looks at a server's health and memory while something happens to it."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from .installation import BenchFailed
from .measures import Watch, memory_of

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


class Vigil(Watch):
    """Looks every quarter of a second, until the block ends."""

    def __init__(self, port: int, roots: Mapping[str, int]) -> None:
        super().__init__((LOOK_SECONDS, self._look), (_WEIGH_SECONDS, self._weigh))
        self._port, self._roots = port, roots
        self.sights: list[Sight] = []  # all so far
        self._before = self._most = memory_of(roots).own

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

    def _look(self) -> None:
        began = time.monotonic()
        is_well = self._is_well()
        self.sights.append(Sight(began, time.monotonic() - began, is_well))

    def _weigh(self) -> None:
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
