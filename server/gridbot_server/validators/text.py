"""`text`: equal but for how lines end, and for blanks at their ends.

CR LF and LF are one, and a missing last line end does not count.  Blanks are spaces, tabs and CR; a
run of more than LONG_RUN of them counts as text, so that memory is bounded.
"""

from __future__ import annotations

from typing import BinaryIO

from gridbot_server.validators.difference import Difference, excerpt

LONG_RUN = 1 << 16
_CHUNK = 1 << 18
_BLANKS = b" \t\r"
_SHOWN_BEFORE = 40  # bytes of a line that are shown before the difference


def difference(one: BinaryIO, other: BinaryIO) -> Difference | None:
    """Return the first line in which two texts differ, or None."""
    left, right = _Text(one), _Text(other)
    while True:
        first, second = left.next(), right.next()
        size = min(len(first), len(second))
        if first[:size] != second[:size]:
            return _difference(left, right, _first_difference(first[:size], second[:size]))
        left.take(size)
        right.take(size)
        if not size:
            return _difference(left, right, 0) if first or second else None


class _Text:
    """What counts of a text, chunk by chunk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._blanks = b""  # a run of them that goes on, or ends a line
        self._is_in_long_run = False
        self._is_between_lines = True
        self._ready = b""
        self._is_at_end = False
        self._before = b""  # the last bytes that were taken
        self._lines = 0  # that ended in what was taken

    def next(self) -> bytes:
        """Return bytes that were not taken; none at the end."""
        while not self._ready and not self._is_at_end:
            raw = self._file.read(_CHUNK)
            self._is_at_end = not raw
            self._ready = self._stripped(raw) if raw else self._end()
            if self._ready:
                self._is_between_lines = self._ready.endswith(b"\n")
        return self._ready

    def take(self, size: int) -> None:
        """Go on behind so many bytes."""
        taken = self._ready[:size]
        self._lines += taken.count(b"\n")
        self._before = (self._before + taken[-_SHOWN_BEFORE:])[-_SHOWN_BEFORE:]
        self._ready = self._ready[size:]

    def line(self, at: int) -> int:
        """Number of the line of a byte that was not taken."""
        return self._lines + self._ready.count(b"\n", 0, at) + 1

    def shown(self, at: int) -> str:
        """The line around that byte."""
        if not self._ready:
            return "the end of the file"
        text, at = self._before + self._ready, at + len(self._before)
        start = max(text.rfind(b"\n", 0, at) + 1, at - _SHOWN_BEFORE)
        return excerpt(text[start:].partition(b"\n")[0])

    def _end(self) -> bytes:
        """What counts at the end of the file, which ends a line, too."""
        return b"" if self._is_between_lines else b"\n"

    def _stripped(self, raw: bytes) -> bytes:
        """What counts of the next bytes, and of the blanks before them."""
        literal = b""
        if self._is_in_long_run:
            rest = raw.lstrip(_BLANKS)
            literal, raw = raw[: len(raw) - len(rest)], rest
            self._is_in_long_run = not rest
        text = self._blanks + raw
        body = text.rstrip(_BLANKS)
        self._blanks = text[len(body) :]
        if len(self._blanks) > LONG_RUN:
            self._blanks, body, self._is_in_long_run = b"", text, True
        *lines, last = body.split(b"\n")
        return literal + b"\n".join([*map(_without_blanks, lines), last])


def _without_blanks(line: bytes) -> bytes:
    stripped = line.rstrip(_BLANKS)
    return stripped if len(line) - len(stripped) <= LONG_RUN else line


def _difference(left: _Text, right: _Text, at: int) -> Difference:
    line = max(left.line(at), right.line(at))
    return Difference(f"line {line}", left.shown(at), right.shown(at), "not the same text")


def _first_difference(one: bytes, other: bytes) -> int:
    """Where two texts of one length, which are not equal, begin to differ."""
    low, high = 0, len(one)
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
