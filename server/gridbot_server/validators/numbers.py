"""`numbers`: texts whose words are equal, or have near numbers in the same places.

A line is a sequence of words, which blanks separate.  How many blanks there are does not matter,
because columns of numbers are padded; nor do empty lines at the end.  A word that differs from its
counterpart is split into numbers and what stands between them; the numbers must be near, and the
rest equal.

Theory of operation.  Both files are read in chunks.  Chunks of equal bytes are skipped, then blocks
of lines that are tables of plain numbers, all near, then lines that are equal, then lines that
differ in plain numbers alone (`tables.py`).  Of others the words are paired, a batch at a time, and
those pairs that differ are compared in the same way.  Only a batch with a number that is not plain,
or with a pair that is not near, is looked at word by word.  Where a line is longer than a block,
whole chunks are paired, cut behind their last blanks.  A word longer than LONG is text: while it
goes on it is hashed, and its hash stands for it.  So memory is bounded for any content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import compress
from operator import ne
from typing import BinaryIO

from gridbot_server.validators.difference import Difference, excerpt
from gridbot_server.validators.near import NUMBER, near
from gridbot_server.validators.nearness import NearLists
from gridbot_server.validators.spec import Tolerance
from gridbot_server.validators.tables import NearTables, NearTexts

LONG = 1000  # bytes of a word
CHUNK_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 14  # of lines, compared at once
_BATCH = 2048  # words
_BLANKS = b" \t\n\r\x0b\x0c"
_BLANK = re.compile(rb"[ \t\n\r\x0b\x0c]")
# What stands for a line's end.  Words that begin with a NUL get another one, so none looks like it.
_LINE_END = b"\0"
_LONG_MARK = b"\0L"  # and a hash: a long word
_WORD_OR_END = re.compile(rb"[^ \t\n\r\x0b\x0c]+|\n")


def difference(
    one: BinaryIO, other: BinaryIO, tolerance: Tolerance, chunk_bytes: int = CHUNK_BYTES
) -> Difference | None:
    """Return the first line in which two texts differ by more than the tolerance, or None."""
    rule = _Rule(tolerance)
    left, right = _Side(one, chunk_bytes), _Side(other, chunk_bytes)
    while True:
        left.fill()
        right.fill()
        if left.skips_equal(right, rule):
            continue
        if blocks := left.block_beside(right):
            first, second = blocks
            if not rule.are_near_tables(first, second):
                lines, others = _lines(first), _lines(second)
                at = rule.first_different_line(lines, others)
                if at is not None:
                    left.lines += at
                    return rule.difference_of_lines(left.lines + 1, lines[at], others[at])
            left.drop(len(first))
            right.drop(len(second))
            continue
        words, others = left.words(), right.words()
        count = min(len(words), len(others))
        if not count:
            return _rest(left, right, words, others)
        at = rule.first_different(words[:count], others[:count])
        if at is not None:
            left.keep(words, at)
            return rule.difference(left.lines + 1, words[at], others[at])
        left.keep(words, count)
        right.keep(others, count)


class _Side:
    """One text: bytes that were read, and words of them that were not paired yet."""

    def __init__(self, file: BinaryIO, chunk_bytes: int) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._raw = b""
        self._words: list[bytes] = []
        self._long: hashlib._Hash | None = None  # of the word that goes on
        self._is_at_end = False
        self.lines = 0  # ended before the first word that is left

    def fill(self) -> None:
        """Read on, unless there are words to be paired."""
        if not self._words and len(self._raw) < self._chunk_bytes:
            self._read()

    def _read(self) -> None:
        if not self._is_at_end:
            more = self._file.read(self._chunk_bytes)
            self._raw += more
            self._is_at_end = not more

    def skips_equal(self, other: _Side, rule: _Rule) -> bool:
        """Skip the bytes that both texts have at this place; False if that cannot be."""
        size = min(len(self._raw), len(other._raw))
        if not size or not self._is_beside(other) or self._raw[:size] != other._raw[:size]:
            return False
        cut = _cut(self._raw[:size])
        if not cut or rule.doubts_equal(self._raw[:cut]):
            return False
        self.drop(cut)
        other.drop(cut)
        return True

    def block_beside(self, other: _Side) -> tuple[bytes, bytes] | None:
        """Return as many whole lines of both; None if one has none within a block."""
        if not self._is_beside(other):
            return None
        one, its = self._raw[: self._end_of_block()], other._raw[: other._end_of_block()]
        more = one.count(b"\n") - its.count(b"\n")
        one, its = _without_last_lines(one, more), _without_last_lines(its, -more)
        return (one, its) if one and its else None

    def _end_of_block(self) -> int:
        return self._raw.rfind(b"\n", 0, _BLOCK_BYTES) + 1

    def _is_beside(self, other: _Side) -> bool:
        """Whether both texts are between two words."""
        return not (self._words or other._words or self._long or other._long)

    def words(self) -> list[bytes]:
        """Return the words that can be paired now, a line's end among them as one; none at the end.

        What comes after a long word may need another look.
        """
        while not self._words and (self._raw or not self._is_at_end or self._long):
            self._words = self._take()
            if not self._words:
                self._read()
        return self._words

    def keep(self, words: list[bytes], paired: int) -> None:
        """Note that so many of the words were paired."""
        left = words[paired:]
        self.lines += (words[:paired] if left else words).count(_LINE_END)
        self._words = []
        if not left:
            return
        text = b" ".join(left)
        if text.count(b"\0") == left.count(_LINE_END):  # back to bytes, which may be skipped
            self._raw = text.replace(b"\0", b"\n") + b" " + self._raw
        else:
            self._words = left

    def drop(self, cut: int) -> None:
        """Go on behind so many bytes."""
        self.lines += self._raw.count(b"\n", 0, cut)
        self._raw = self._raw[cut:]

    def _take(self) -> list[bytes]:
        found = self._end_of_long()
        if self._long is not None:
            return []
        raw, cut = self._raw, len(self._raw) if self._is_at_end else _cut(self._raw)
        if not cut and len(raw) > LONG:  # one word that goes on
            self._long = hashlib.sha256(raw)
            self._raw = b""
            return found
        self._raw = raw[cut:]
        return found + _words(raw[:cut])

    def _end_of_long(self) -> list[bytes]:
        """Go on with a long word; return it once it has ended."""
        if self._long is None:
            return []
        end = _BLANK.search(self._raw)
        self._long.update(self._raw[: end.start()] if end else self._raw)
        self._raw = self._raw[end.start() :] if end else b""
        if end is None and not self._is_at_end:
            return []
        digest, self._long = self._long.digest(), None
        return [_LONG_MARK + digest]


def _cut(raw: bytes) -> int:
    """Where the last word begins that may go on, looked for among the last bytes first."""
    for at in range(len(raw) - 1, max(-1, len(raw) - 64), -1):
        if raw[at] in _BLANKS:
            return at + 1
    return 1 + max(raw.rfind(blank) for blank in (b" ", b"\n", b"\t", b"\r", b"\x0b", b"\x0c"))


def _without_last_lines(block: bytes, count: int) -> bytes:
    """Lines without the last ones of them, if the count is positive."""
    if count <= 0:
        return block
    kept = block.rsplit(b"\n", count + 1)
    return kept[0] + b"\n" if len(kept) == count + 2 else b""


def _lines(block: bytes) -> list[bytes]:
    return block.split(b"\n")[:-1]


def _words(raw: bytes) -> list[bytes]:
    if b"\0" in raw:
        return [
            _LINE_END if word == b"\n" else b"\0" + word if word[0] == 0 else word
            for word in _WORD_OR_END.findall(raw)
        ]
    return raw.replace(b"\n", b" \0 ").split()


class _Rule:
    """When words agree."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        near_lists = NearLists(tolerance)
        self.are_near_tables = NearTables(near_lists)
        self._are_near_texts = NearTexts(near_lists)

    def doubts_equal(self, raw: bytes) -> bool:
        """Whether there may be a word that does not even agree with itself."""
        return not self._tolerance.nan_is_equal and b"nan" in raw.lower()

    def first_different_line(self, one: Sequence[bytes], other: Sequence[bytes]) -> int | None:
        """Index of the first pair of lines that differ by more than the tolerance."""
        doubted = self.doubts_equal(b"\n".join(one))
        which = [True] * len(one) if doubted else list(map(ne, one, other))
        first, second = b"\n".join(compress(one, which)), b"\n".join(compress(other, which))
        if not doubted and self._are_near_texts(first, second):
            return None
        left, right = _words(first), _words(second)
        if len(left) == len(right) and self.first_different(left, right) is None:
            return None
        return next(
            at
            for at in compress(range(len(one)), which)
            if not self._agree(_words(one[at]), _words(other[at]))
        )

    def first_different(self, one: Sequence[bytes], other: Sequence[bytes]) -> int | None:
        """Index of the first pair of words that do not agree."""
        for start in range(0, len(one), _BATCH):
            left, right = one[start : start + _BATCH], other[start : start + _BATCH]
            if not self._all_near(left, right):
                for at, (word, counterpart) in enumerate(zip(left, right, strict=True), start):
                    if not self._near(word, counterpart):
                        return at
        return None

    def difference_of_lines(self, line: int, one: bytes, other: bytes) -> Difference:
        """Say what is different between two lines."""
        left, right = [*_words(one), _LINE_END], [*_words(other), _LINE_END]
        count = min(len(left), len(right))
        at = self.first_different(left[:count], right[:count])
        assert at is not None, "they differ"
        return self.difference(line, left[at], right[at])

    def difference(self, line: int, one: bytes, other: bytes) -> Difference:
        """Say why two words do not agree."""
        are_numbers = NUMBER.search(one) and NUMBER.search(other)
        rule = f"not near: {self._tolerance}" if are_numbers else "not the same words"
        if are_numbers and self.doubts_equal(one + other):
            rule = "NaN is near nothing, unless the validator says nan=equal"
        return Difference(f"line {line}", _shown(one), _shown(other), rule)

    def _agree(self, one: Sequence[bytes], other: Sequence[bytes]) -> bool:
        return len(one) == len(other) and self.first_different(one, other) is None

    def _all_near(self, one: Sequence[bytes], other: Sequence[bytes]) -> bool:
        """Whether all words are equal or near; False if that is not sure."""
        if self.doubts_equal(b" ".join(one)):
            return False
        which = list(map(ne, one, other))
        words, others = list(compress(one, which)), list(compress(other, which))
        if not words:
            return True
        left, right = b" ".join(words), b" ".join(others)
        return self.are_near_tables(left, right) or self._are_near_texts(left, right)

    def _near(self, one: bytes, other: bytes) -> bool:
        if one == other and not self.doubts_equal(one):
            return True
        if _is_long(one) or _is_long(other):
            return _long_digest(one) == _long_digest(other)
        left, right = NUMBER.split(one), NUMBER.split(other)
        return (
            len(left) == len(right)
            and left[::2] == right[::2]
            and all(
                near(*pair, self._tolerance) for pair in zip(left[1::2], right[1::2], strict=True)
            )
        )


def _is_long(word: bytes) -> bool:
    return word[:2] == _LONG_MARK or len(_plain(word)) > LONG


def _long_digest(word: bytes) -> bytes | None:
    if word[:2] == _LONG_MARK:
        return word[2:]
    return hashlib.sha256(_plain(word)).digest() if _is_long(word) else None


def _plain(word: bytes) -> bytes:
    """The word as it stands in the text."""
    return word[1:] if word[:2] == b"\0\0" else word


def _rest(
    left: _Side, right: _Side, first: Sequence[bytes], second: Sequence[bytes]
) -> Difference | None:
    """One text has ended: the other may have empty lines more, and no word."""
    while first or second:
        words = first or second
        at = next((at for at, word in enumerate(words) if word != _LINE_END), None)
        longer = left if first else right
        if at is not None:
            longer.lines += at
            has = excerpt(_plain(words[at]))
            one, other = (has, "the end of the file") if first else ("the end of the file", has)
            return Difference(f"line {longer.lines + 1}", one, other, "not the same words")
        longer.keep(list(words), len(words))
        longer.fill()
        first, second = left.words(), right.words()
    return None


def _shown(word: bytes) -> str:
    if word == _LINE_END:
        return "the end of the line"
    if word[:2] == _LONG_MARK:
        return f"a word of more than {LONG} characters"
    return excerpt(_plain(word))
