"""Writes a pattern for RE2: no options, sets of bytes, and groups counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from gridbot_policies.classad.functions.patterns.tree import (
    BEGIN_OF_LINE,
    END,
    Alternatives,
    Chars,
    Group,
    Item,
    Place,
    Repeat,
    may_be_empty,
    needs_backtracking,
)


@dataclass(slots=True)
class Writer:
    """Collects RE2's text in `written`; the rest is what a Translation tells beside it."""

    before_newline: bool
    written: list[bytes] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    newlines: list[int] = field(default_factory=list)
    begins_lines: bool = False
    turns_empty: bool = False
    count: int = 0

    def alternatives(self, alternatives: Alternatives, *, tail: bool) -> None:
        """Write them; `tail` if nothing follows. Raises InexpressiblePattern."""
        for place, items in enumerate(alternatives):
            if place:
                self.written.append(b"|")
            self._sequence(items, tail=tail)

    def _sequence(self, items: tuple[Item, ...], *, tail: bool) -> None:
        others = [place for place, item in enumerate(items) if item is not END]
        last = others[-1] if others else 0
        for place, item in enumerate(items):
            self._item(item, tail=tail and place >= last)

    def _item(self, item: Item, *, tail: bool) -> None:
        match item:
            case Chars(chars):
                self.written.append(_set(chars))
            case Place():
                self._place(item, tail=tail)
            case Group():
                self._group(item, tail=tail)
            case Repeat(inner, least, most, lazy):
                self.turns_empty = self.turns_empty or (most is None and may_be_empty(inner))
                self._item(inner, tail=tail and most == 1)
                self.written.append(_quantifier(least, most) + (b"?" if lazy else b""))

    def _place(self, place: Place, *, tail: bool) -> None:
        if place is not END:
            self.begins_lines = self.begins_lines or place is BEGIN_OF_LINE
            self.written.append(place.text)
        elif not self.before_newline:
            self.written.append(b"\\z")
        elif tail:
            # Nothing looks ahead in RE2: the newline is taken, and given back after the match.
            self.newlines.append(self._counted())
            self.written.append(b"(\\n?)\\z")
        else:
            raise needs_backtracking("a $ before something else")

    def _group(self, group: Group, *, tail: bool) -> None:
        if group.captures:
            self.groups.append(self._counted())
        self.written.append(b"(" if group.captures else b"(?:")
        self.alternatives(group.alternatives, tail=tail)
        self.written.append(b")")

    def _counted(self) -> int:
        self.count += 1
        return self.count


def _quantifier(least: int, most: int | None) -> bytes:
    short = {(0, None): b"*", (1, None): b"+", (0, 1): b"?"}.get((least, most))
    return short or b"{%d,%s}" % (least, b"" if most is None else b"%d" % most)


def _set(chars: frozenset[int]) -> bytes:
    if not chars:
        return b"[^\\x00-\\xff]"
    starts = sorted(code for code in chars if code - 1 not in chars)
    ends = sorted(code for code in chars if code + 1 not in chars)
    if starts == ends and len(starts) == 1:
        return b"\\x%02x" % starts[0]
    ranges = (b"\\x%02x-\\x%02x" % bounds for bounds in zip(starts, ends, strict=True))
    return b"[" + b"".join(ranges) + b"]"
