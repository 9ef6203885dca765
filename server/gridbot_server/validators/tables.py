"""Tables of plain numbers: the fast path of `numbers`.

A block of whole lines that holds nothing but decimal numbers and blanks is one JSON array but for
its separators, and orjson reads such an array five times as fast as Python's `float` does word by
word.  Whatever is not certain here is left to `numbers.py`, which says the same, slowly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from operator import truediv

import orjson

from gridbot_server.validators.spec import Tolerance

_OF_NUMBERS = b"0123456789+-.eE"
_SEPARATORS = b" \t\r\n"
_AS_JSON = bytes.maketrans(b" \t\n", b",,,")  # CR is a blank to JSON, too
_EXACT_TO = float(1 << 53)
_STEP = 500  # bytes: where each has a blank, no word has a thousand


class NearTables:
    """Whether two blocks of lines are tables of numbers that are all near."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._is_close = partial(math.isclose, rel_tol=tolerance.rel, abs_tol=tolerance.abs)
        # Quotients of two doubles between these are certainly near; one rounding is far less.
        self._least = 1 - tolerance.rel + 1e-14
        self._most = 1 / self._least - 1e-14
        self._sum = tolerance.rel - 2e-14  # so is all whose distances from 1 have this sum
        self._are_padded = False

    def __call__(self, one: bytes, other: bytes) -> bool:
        """Tell; False if that is not sure."""
        if self._are_padded:
            one, other = _unpadded(one), _unpadded(other)
        blanks = one.translate(None, _OF_NUMBERS)
        if blanks.strip(_SEPARATORS):
            return False
        if blanks == other.translate(None, _OF_NUMBERS):
            try:
                lefts, rights = _numbers(one), _numbers(other)
            except orjson.JSONDecodeError:
                pass
            else:
                return self._are_near(lefts, rights) and _has_short_words(one, other)
        if self._are_padded:
            return False
        self._are_padded = True  # so are the next ones
        return self(one, other)

    def _are_near(self, lefts: Sequence[float], rights: Sequence[float]) -> bool:
        if len(lefts) != len(rights):
            return False
        try:
            quotients = list(map(truediv, lefts, rights))
        except (ZeroDivisionError, OverflowError):
            pairs: Iterable[tuple[float, float]] = zip(lefts, rights, strict=True)
        else:
            if math.dist(quotients, [1.0] * len(quotients)) <= self._sum:
                return True
            pairs = (
                pair
                for pair, quotient in zip(zip(lefts, rights, strict=True), quotients, strict=True)
                if not self._least <= quotient <= self._most
            )
        # Beyond it are whole numbers that doubles do not hold.
        return all(
            abs(one) < _EXACT_TO and abs(other) < _EXACT_TO and self._is_close(one, other)
            for one, other in pairs
        )


def _unpadded(block: bytes) -> bytes:
    """Lines with one space between words."""
    return b"\n".join([b" ".join(line.split()) for line in block.split(b"\n")])


def _numbers(block: bytes) -> list[float]:
    """Read numbers between which there is one blank.  Raises JSONDecodeError."""
    found: list[float] = orjson.loads(b"[%b]" % block.removesuffix(b"\n").translate(_AS_JSON))
    return found


def _has_short_words(*blocks: bytes) -> bool:
    return all(
        block.find(b"\n", at, at + _STEP) >= 0 or block.find(b" ", at, at + _STEP) >= 0
        for block in blocks
        for at in range(0, len(block) - _STEP, _STEP)
    )
