"""Reads a pattern as PCRE does; refuses what only backtracking can do, and what is wrong."""

from __future__ import annotations

import re

from gridbot_policies.classad.functions.patterns.tree import (
    ALL,
    ALPHA,
    BEGIN_OF_LINE,
    CLASSES,
    END,
    END_OF_LINE,
    NOT_NEWLINE,
    PLACES,
    POSIX,
    Alternatives,
    Chars,
    Group,
    InexpressiblePattern,
    Item,
    Place,
    Repeat,
    WrongPattern,
    needs_backtracking,
    with_property,
)

_NESTING = 100  # groups in groups
_REPETITIONS = 1000  # RE2's limit; PCRE's is 65535
_BACKTRACKING = (
    (rb"\(\?[=!]", "look-ahead (?=…) (?!…)"),
    (rb"\(\?<[=!]", "look-behind (?<=…) (?<!…)"),
    (rb"\(\?>", "an atomic group (?>…)"),
    (rb"\(\?\|", "a branch reset (?|…)"),
    (rb"\(\?\(", "a condition (?(…)…)"),
    (rb"\(\?P=|\\[gk]", "a back-reference"),
    (rb"\(\?(?:R|&|P>|[-+]?[0-9])", "a recursion (?R) (?1)"),
    (rb"\(\?C", "a callout (?C)"),
    (rb"\(\*[A-Za-z]", "a verb (*…)"),
    (rb"\(\?(?:\^|[imsxU-]{0,9}(?:n|J|xx))", "one of the options (?n) (?J) (?xx) (?^)"),
    (rb"\\R", "\\R (write \\r?\\n)"),
    (rb"\\[GKX]", "\\G, \\K or \\X"),
    (rb"\[\[:[<>]:\]\]", "[[:<:]] or [[:>:]] (write \\b)"),
)
_INEXPRESSIBLE = re.compile(
    b"|".join(b"(?P<n%d>%s)" % (place, text) for place, (text, _) in enumerate(_BACKTRACKING))
)
_QUANTIFIER = re.compile(rb"([*+?])|\{([0-9]+)(,([0-9]*))?\}")
_CODES = {b"a": 7, b"e": 27, b"f": 12, b"n": 10, b"r": 13, b"t": 9}


def without_quotations(pattern: bytes) -> bytes:
    """Write what stands between \\Q and \\E as codes."""

    def plain(match: re.Match[bytes]) -> bytes:
        if match[0].startswith(b"\\Q"):
            return b"".join(b"\\x%02x" % code for code in match[1])
        return b"" if match[0] == b"\\E" else match[0]

    return re.sub(rb"\\Q(.*?)(?:\\E|\Z)|\\.", plain, pattern, flags=re.DOTALL)


class Reader:
    """Reads from left to right; `flags` are the options where it stands."""

    def __init__(self, pattern: bytes, options: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.flags = frozenset(flag for flag in "imsx" if flag in options)
        self.groups = 0
        self.names: set[bytes] = set()
        self.depth = 0

    def whole(self) -> Alternatives:
        """Read everything. Raises WrongPattern, InexpressiblePattern."""
        found = self._alternatives()
        if self.position < len(self.pattern):
            raise WrongPattern("the pattern closes a group that it has not opened")
        return found

    def _alternatives(self) -> Alternatives:
        found = [self._sequence()]
        while self._take(rb"\|"):
            found.append(self._sequence())
        return tuple(found)

    def _sequence(self) -> tuple[Item, ...]:
        items: list[Item] = []
        self._skip()
        while self._next() not in (b"", b"|", b")"):
            item = self._item()
            if item is not None:
                items.append(self._repeated(item))
            self._skip()
        return tuple(items)

    def _next(self) -> bytes:
        return self.pattern[self.position : self.position + 1]

    def _take(self, expected: bytes) -> re.Match[bytes] | None:
        """Go past what `expected`, a regular expression, matches here."""
        match = re.compile(expected, re.DOTALL).match(self.pattern, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def _quantifier(self) -> re.Match[bytes] | None:
        return _QUANTIFIER.match(self.pattern, self.position)

    def _skip(self) -> None:
        """Go past comments, and past white space where option x lets it count for nothing."""
        comment = rb"(?:\(\?#[^)]*\))+"
        self._take(rb"(?:\(\?#[^)]*\)|\s+|#[^\n]*)+" if "x" in self.flags else comment)

    def _item(self) -> Item | None:
        """Read one item; None for an option that is set, which is none."""
        if match := _INEXPRESSIBLE.match(self.pattern, self.position):
            raise needs_backtracking(_BACKTRACKING[int(str(match.lastgroup)[1:])][1])
        if self._quantifier():
            raise WrongPattern("a quantifier has nothing before it that could repeat")
        byte = self._next()
        if byte == b"(":
            return self._group()
        self.position += 1
        if byte == b"\\":
            return self._escape()
        if byte == b"[":
            return Chars(self._char_class())
        if byte == b".":
            return Chars(ALL if "s" in self.flags else NOT_NEWLINE)
        if byte == b"^":
            return BEGIN_OF_LINE if "m" in self.flags else PLACES[b"A"]
        if byte == b"$":
            return END_OF_LINE if "m" in self.flags else END
        return Chars(self._cased(frozenset(byte)))

    def _cased(self, chars: frozenset[int]) -> frozenset[int]:
        """Return the bytes in both cases if case is ignored; only ASCII has cases."""
        if "i" not in self.flags:
            return chars
        return chars | frozenset(code ^ 32 for code in chars & ALPHA)

    def _repeated(self, item: Item) -> Item:
        self._skip()
        match = self._quantifier()
        if match is None:
            return item
        if isinstance(item, Place | Repeat):
            raise WrongPattern("a quantifier has nothing before it that could repeat")
        self.position = match.end()
        least, most = _bounds(match)
        if self._take(rb"\s*\+" if "x" in self.flags else rb"\+"):
            raise needs_backtracking("a possessive quantifier (*+ ++ ?+)")
        lazy = self._take(rb"\?") is not None
        return Repeat(item, least, most, lazy != ("U" in self.flags))

    def _group(self) -> Item | None:
        if flags := self._take(rb"\(\?([imsxU]*)(?:-([imsxU]*))?([:)])"):
            return self._option(*flags.groups(b""))
        if name := self._take(rb"\(\?(?:P?<([A-Za-z_]\w*)>|'([A-Za-z_]\w*)')"):
            if (name[1] or name[2]) in self.names:
                raise WrongPattern("two groups have the same name")
            self.names.add(name[1] or name[2])
        elif self._take(rb"\(\?"):
            raise WrongPattern("what follows (? has no meaning")
        else:
            self.position += 1
        self.groups += 1
        return self._inside(captures=True, flags_after=self.flags)

    def _option(self, on: bytes, off: bytes, end: bytes) -> Item | None:
        before = self.flags
        self.flags = (before | set(on.decode())) - set(off.decode())
        return None if end == b")" else self._inside(captures=False, flags_after=before)

    def _inside(self, *, captures: bool, flags_after: frozenset[str]) -> Group:
        self.depth += 1
        if self.depth > _NESTING:
            raise InexpressiblePattern(f"groups nest deeper than {_NESTING}; write it flatter")
        alternatives = self._alternatives()
        if not self._take(rb"\)"):
            raise WrongPattern("a group is not closed: there is no ) for it")
        self.depth -= 1
        self.flags = flags_after
        return Group(alternatives, captures)

    def _escape(self) -> Item:
        letter = self._next()
        if letter in CLASSES or letter in (b"p", b"P"):
            return Chars(self._class_escape())
        if letter in PLACES or letter in (b"N", b"C"):
            self.position += 1
            if letter == b"N" and self._next() == b"{" and not self._quantifier():
                raise WrongPattern("characters by name, \\N{…}, have no meaning")
            return PLACES.get(letter) or Chars(NOT_NEWLINE if letter == b"N" else ALL)
        if letter.isdigit() and letter != b"0":
            self._refuse_reference()
        return Chars(self._cased(frozenset((self._code(),))))

    def _refuse_reference(self) -> None:
        """Refuse \\1, unless it has to be read as the octal code of a byte."""
        digits = re.compile(rb"[0-9]{1,9}").match(self.pattern, self.position)
        number = digits[0].decode() if digits else ""
        if int(number) < 10 or number[0] in "89" or int(number) <= self.groups:
            raise needs_backtracking(f"a back-reference \\{number}")

    def _class_escape(self) -> frozenset[int]:
        """Read \\d and its like, or \\p{Lu}, after the backslash."""
        if self._next() in CLASSES:
            self.position += 1
            return CLASSES[self.pattern[self.position - 1 : self.position]]
        found = self._take(rb"[pP](?:\{(\^?)([A-Za-z&_ ]+)\}|([A-Z]))")
        if found is None:
            raise WrongPattern("\\p is not followed by a property like {Lu}")
        chars = with_property((found[2] or found[3]).decode())
        negated = found[0].startswith(b"P") != (found[1] == b"^")
        return ALL - chars if negated else chars

    def _code(self) -> int:
        """Read the code of a byte, after the backslash."""
        if found := self._take(rb"x\{([0-9a-fA-F]+)\}|x(?!\{)([0-9a-fA-F]{0,2})"):
            return _byte(found[1] or found[2] or b"0", 16)
        if found := self._take(rb"o\{([0-7]+)\}|([0-7]{1,3})"):
            return _byte(found[1] or found[2], 8)
        if found := self._take(rb"c([ -~])"):
            return ord(found[1].upper()) ^ 64
        byte = self._next()
        self.position += 1
        if byte in _CODES:
            return _CODES[byte]
        if not byte or byte.isalnum():
            raise WrongPattern(f"\\{byte.decode()} has no meaning")
        return byte[0]

    def _char_class(self) -> frozenset[int]:
        if self._take(rb":\^?[a-z]{0,20}:\]|([.=])[^\]]{0,40}\1\]"):
            raise WrongPattern("a class like [:alpha:] stands only inside another: [[:alpha:]]")
        negated = self._take(rb"\^") is not None
        chars = self._class_range()
        while not self._take(rb"\]"):
            chars |= self._class_range()
        return ALL - chars if negated else chars

    def _class_range(self) -> frozenset[int]:
        low = self._class_element()
        if not self._take(rb"-(?!\])"):
            return low if isinstance(low, frozenset) else self._cased(frozenset((low,)))
        high = self._class_element()
        if isinstance(low, frozenset) or isinstance(high, frozenset) or low > high:
            raise WrongPattern("a range in a class has no order")
        return self._cased(frozenset(range(low, high + 1)))

    def _class_element(self) -> int | frozenset[int]:
        """Read one byte or a set of them."""
        if found := self._take(rb"\[:(\^?)([a-z]{0,20}):\]"):
            return self._posix(found[2], negated=bool(found[1]))
        if self._take(rb"\[([.=])[^\]]{0,40}\1\]"):
            raise WrongPattern("collating elements like [.a.] and [=a=] have no meaning")
        byte = self._next()
        if not byte:
            raise WrongPattern("a class is not closed: there is no ] for it")
        self.position += 1
        if byte != b"\\":
            return byte[0]
        if self._next() in CLASSES or self._next() in (b"p", b"P"):
            return self._class_escape()
        return 8 if self._take(b"b") else self._code()

    def _posix(self, name: bytes, *, negated: bool) -> frozenset[int]:
        if name not in POSIX:
            raise WrongPattern(f"there is no class [:{name.decode()}:]")
        either = "i" in self.flags and name in (b"upper", b"lower")
        chars = ALPHA if either else POSIX[name]
        return ALL - chars if negated else chars


def _bounds(quantifier: re.Match[bytes]) -> tuple[int, int | None]:
    """Return how often at least and at most; None for no end."""
    if quantifier[1]:
        return {b"*": (0, None), b"+": (1, None), b"?": (0, 1)}[quantifier[1]]
    least = int(quantifier[2][:9])
    most = None if quantifier[3] == b"," else int((quantifier[4] or quantifier[2])[:9])
    largest = least if most is None else most
    shown = quantifier[0][:30].decode()
    if largest < least or largest > 65535:
        raise WrongPattern(f"the quantifier {shown} is out of order or too large")
    if largest > _REPETITIONS:
        raise InexpressiblePattern(
            f"the quantifier {shown} repeats more than {_REPETITIONS} times; repeat less"
        )
    return least, most


def _byte(digits: bytes, base: int) -> int:
    code = int(digits[:20], base)
    if code > 255:
        raise WrongPattern(f"the code {digits[:20].decode()} is larger than a byte")
    return code
