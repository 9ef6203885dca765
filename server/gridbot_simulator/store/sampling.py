"""The order in which `running_jobs` samples: PostgreSQL's `hashint8extended`, in Python.

PostgreSQL hashes with the last rounds of Bob Jenkins' lookup3 (`src/common/hashfn.c`); hash
partitions depend on it, so that it stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_ALL = 0xFFFFFFFF
_START = (0x9E3779B9 + 4 + 3_923_095) & _ALL  # of a key of four bytes
_MIX = (4, 6, 8, 16, 19, 4)
_END = (14, 11, 25, 16, 4, 14, 24)


def order_of(chance: int) -> Callable[[int, int], float]:
    """Return what orders jobs, given by their numbers and how many replicas of them run.

    The exponential clock of a job rings the later the more replicas it has.
    """
    state = _mixed(_START + (chance >> 32), _START + chance, _START) if chance else (_START,) * 3

    def order(seq: int, count: int) -> float:
        chance = (_hashed(seq, *state) + 0.5) / 4_294_967_296
        return -math.log(chance) * count

    return order


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    a, b, c = a & _ALL, b & _ALL, c & _ALL
    for shift in _MIX:
        a = ((a - c) & _ALL) ^ _turned(c, shift)
        c = (c + b) & _ALL
        a, b, c = b, c, a  # the next round does the same to the next of them
    return a, b, c


def _hashed(number: int, a: int, b: int, c: int) -> int:
    """The lower half of the hash of a whole number of 64 bits that is not negative."""
    a = (a + (number ^ (number >> 32))) & _ALL
    for shift in _END:
        c = ((c ^ b) - _turned(b, shift)) & _ALL
        a, b, c = b, c, a
    # Seven rounds on three numbers: the last one that was changed stands in the middle.
    return b


def _turned(number: int, by: int) -> int:
    return ((number << by) | (number >> (32 - by))) & _ALL
