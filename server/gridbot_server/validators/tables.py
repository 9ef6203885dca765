"""Plain numbers in tables and in texts: the fast paths of `numbers`.

A block of whole lines that holds nothing but decimal numbers and what separates them is one JSON
array but for its separators, and orjson reads such an array five times as fast as Python's `float`
does word by word.  Of other texts the numbers are split off by a simple pattern, which Python's
regular expressions look for by its first characters.  It takes nothing for a number that
`near.NUMBER` does not; what it takes for text must be equal.

Whatever is not certain here is left to `numbers.py`, which says the same, slowly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson

from gridbot_server.validators.nearness import NearLists

_OF_NUMBERS = b"0123456789+-.eE"
_SEPARATORS = b" \t\r\n,;"
_AS_JSON = bytes.maketrans(b" \t\n;", b",,,,")  # CR is a blank to JSON, too
_NUMBER = re.compile(rb"([-+.0-9](?<![A-Za-z0-9_.][-+.0-9])[-+.0-9eE]*+(?![A-Za-z_]))")
_STEP, _WINDOW = 900, 100  # bytes: with a blank in each window no word has a thousand


class NearTables:
    """Whether two blocks of lines are tables of numbers that are all near."""

    def __init__(self, near_lists: NearLists) -> None:
        self._are_near = near_lists
        self._are_padded = False

    def __call__(self, one: bytes, other: bytes) -> bool:
        """Tell; False if that is not sure."""
        if self._are_padded:
            one, other = _unpadded(one), _unpadded(other)
        between = one.translate(None, _OF_NUMBERS)
        if between.strip(_SEPARATORS):
            return False
        if between == other.translate(None, _OF_NUMBERS):
            try:
                lefts, rights = _table(one), _table(other)
            except orjson.JSONDecodeError:
                pass
            else:
                return self._are_near(lefts, rights) and _has_short_words(one, other)
        if self._are_padded:
            return False
        self._are_padded = True  # so are the next ones
        return self(one, other)


class NearTexts:
    """Whether two texts differ in plain numbers alone, which are all near."""

    def __init__(self, near_lists: NearLists) -> None:
        self._are_near = near_lists

    def __call__(self, one: bytes, other: bytes) -> bool:
        """Tell; False if that is not sure.  Text is near itself, also where it says NaN."""
        left, right = _NUMBER.split(one), _NUMBER.split(other)
        if left[::2] != right[::2] or b"\0" in one or not _has_short_words(one, other):
            return False
        try:
            return self._are_near(_values(left[1::2]), _values(right[1::2]))
        except ValueError:
            return False


def _unpadded(block: bytes) -> bytes:
    """Lines with one space between words."""
    return b"\n".join([b" ".join(line.split()) for line in block.split(b"\n")])


def _table(block: bytes) -> list[float]:
    """Read numbers between which there is one separator.  Raises JSONDecodeError."""
    found: list[float] = orjson.loads(b"[%b]" % block.removesuffix(b"\n").translate(_AS_JSON))
    return found


def _values(numbers: Sequence[bytes]) -> list[float]:
    """Read numbers.  Raises ValueError."""
    try:
        found: list[float] = orjson.loads(b"[%b]" % b",".join(numbers))
    except orjson.JSONDecodeError:  # JSON has no +1, .5, 5. and 007
        return list(map(float, numbers))
    return found


def _has_short_words(*blocks: bytes) -> bool:
    return all(
        block.find(b" ", at, at + _WINDOW) >= 0 or block.find(b"\n", at, at + _WINDOW) >= 0
        for block in blocks
        for at in range(0, len(block) - _WINDOW, _STEP)
    )
