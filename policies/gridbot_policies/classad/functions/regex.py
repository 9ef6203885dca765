"""Functions of regular expressions: PCRE's syntax and meaning, RE2's linear time.

A pattern that only backtracking could match is an error. HTCondor works on bytes, without
UTF-8: a dot is one byte, and only ASCII letters have two cases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from gridbot_policies.classad.functions.call import CallContext, Function, joined
from gridbot_policies.classad.functions.patterns import (
    InexpressiblePattern,
    Translation,
    WrongPattern,
    translated,
)
from gridbot_policies.classad.functions.strings import items_of
from gridbot_policies.classad.operators import absent
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    ListValue,
    Value,
    bytes_of,
    text_of_bytes,
)

_MEMORY = 1 << 18  # bytes for one compiled pattern, and for what RE2 remembers of its use
_REMEMBERED = 256  # compiled patterns

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Refusal:
    why: str
    wrong: bool  # for HTCondor too


def refusal(pattern: str, options: str = "") -> str | None:
    """Say why a pattern is an error here; None if it is none."""
    found = _compiled(bytes_of(pattern), _known(options), before_newline=False, longest=False)
    return found.why if isinstance(found, _Refusal) else None


def _known(options: str) -> str:
    return "".join(option for option in "imsx" if option in options)


@dataclass(frozen=True, slots=True)
class _Program:
    """A compiled pattern."""

    compiled: Any
    translation: Translation


@lru_cache(maxsize=_REMEMBERED)
def _compiled(
    pattern: bytes, options: str, *, before_newline: bool, longest: bool
) -> _Program | _Refusal:
    settings = re2.Options()
    settings.log_errors = False
    settings.max_mem = _MEMORY
    settings.encoding = settings.Encoding.LATIN1
    settings.longest_match = longest
    try:
        translation = translated(pattern, options, before_newline=before_newline)
        return _Program(re2.compile(translation.text, settings), translation)
    except (WrongPattern, InexpressiblePattern) as refused:
        return _Refusal(str(refused), isinstance(refused, WrongPattern))
    except re2.error:
        return _Refusal("the pattern is too large once its repetitions are written out", False)


class _Matcher:
    """A pattern in one call. All methods raise WrongPattern and InexpressiblePattern."""

    def __init__(self, call: CallContext, pattern: str, options: str) -> None:
        self._call = call
        self._pattern = bytes_of(pattern)
        self._options = _known(options)
        # Compiling is paid even if it was done before: what others asked must not change a value.
        call.spend(2 * len(pattern))

    def program_for(self, data: bytes, *, longest: bool = False) -> _Program:
        """Return the pattern as it is made for such a text."""
        newline = data.endswith(b"\n")
        found = _compiled(self._pattern, self._options, before_newline=newline, longest=longest)
        if isinstance(found, _Refusal):
            raise (WrongPattern if found.wrong else InexpressiblePattern)(found.why)
        # RE2 may have to follow as many threads as the program has instructions.
        size = found.compiled.programsize
        self._call.spend(1 + size // 16 + (len(data) * size >> 9))
        return found

    def search(self, data: bytes, start: int = 0, *, longest: bool = False) -> list[Span] | None:
        """Return where the first match and its groups are."""
        program = self.program_for(data, longest=longest)
        match = program.compiled.search(data, start)
        if match is None:
            return None
        end, own = match.end(), program.translation.newlines
        if program.translation.begins_lines and data.endswith(b"\n") and end == len(data):
            # For PCRE no line begins after the last newline, and for RE2 an empty one does.
            raise InexpressiblePattern("whether a line begins at the end of the text is open")
        end -= any(match.end(group) > match.start(group) for group in own)
        spans = [match.span(group) for group in (0, *program.translation.groups)]
        return [(min(begins, end), min(ends, end)) for begins, ends in spans]

    def takes_something(self, data: bytes) -> bool:
        """Tell whether there is a match that is not empty."""
        place = 0
        while place < len(data):
            spans = self.search(data, place, longest=True)
            if spans is None or spans[0][1] > spans[0][0]:
                return spans is not None
            place = spans[0][0] + 1
        return False

    def refuse_longer(self, data: bytes, place: int) -> None:
        """Refuse if a match that is not empty begins where an empty one was.

        PCRE looks for it next, in an order of preference that RE2 cannot be asked for.
        """
        match = self.program_for(data, longest=True).compiled.match(data, place)
        if match is not None and match.end() > place:
            raise InexpressiblePattern("an empty match is followed by a longer one in its place")


def _matching(apply: Callable[..., Value], least: int, most: int) -> Function:
    """Make a function whose arguments must all be there, and whose bad patterns are errors."""

    def checked(call: CallContext, *values: Value) -> Value:
        if missing := absent(*values):
            return missing
        try:
            return apply(call, *values)
        except (WrongPattern, InexpressiblePattern):
            return ERROR

    return Function(checked, least, most)


def _regexp(call: CallContext, pattern: Value, text: Value, options: Value = "") -> Value:
    if not (isinstance(pattern, str) and isinstance(text, str) and isinstance(options, str)):
        return ERROR
    return _Matcher(call, pattern, options).search(bytes_of(text)) is not None


def _regexp_member(call: CallContext, pattern: Value, values: Value, options: Value = "") -> Value:
    if not (isinstance(pattern, str) and isinstance(options, str)):
        return ERROR
    if not isinstance(values, ListValue):
        return ERROR
    matcher = _Matcher(call, pattern, options)
    result: Value = False
    for item in call.elements(values):
        if item is UNDEFINED:
            result = UNDEFINED
        elif not isinstance(item, str):
            return ERROR
        elif _found(matcher, item):
            return True
    return result


def _found(matcher: _Matcher, item: str) -> bool:
    """Tell whether an element matches: for HTCondor none matches a pattern that is wrong."""
    try:
        return matcher.search(bytes_of(item)) is not None
    except WrongPattern:
        return False


def _string_list_regexp_member(
    call: CallContext, pattern: Value, text: Value, delimiters: Value = ", ", options: Value = ""
) -> Value:
    if not (isinstance(pattern, str) and isinstance(text, str)):
        return ERROR
    if not (isinstance(delimiters, str) and isinstance(options, str)):
        return ERROR
    items = items_of(call, text, delimiters)
    try:
        matcher = _Matcher(call, pattern, options.lower())
        matcher.program_for(b"")
        found = [matcher.search(bytes_of(item)) is not None for item in items]
    except (WrongPattern, InexpressiblePattern):
        return ERROR
    return any(found) if items else UNDEFINED


def takes_something(call: CallContext, pattern: str, options: str, texts: Iterable[str]) -> bool:
    """Tell whether the pattern matches a part of one of the texts that is not empty.

    Raises WrongPattern, InexpressiblePattern, also if there is no text.
    """
    matcher = _Matcher(call, pattern, options)
    matcher.program_for(b"")
    return any(matcher.takes_something(bytes_of(text)) for text in texts)


def _replacing(fixed: str) -> Function:
    def apply(
        call: CallContext, pattern: Value, text: Value, replacement: Value, options: Value = ""
    ) -> Value:
        if not (isinstance(pattern, str) and isinstance(text, str)):
            return ERROR
        if not (isinstance(replacement, str) and isinstance(options, str)):
            return ERROR
        matcher = _Matcher(call, pattern, options)
        parts = _replaced(matcher, bytes_of(text), bytes_of(replacement), options + fixed)
        try:
            return joined(call, map(text_of_bytes, parts))
        except IndexError:  # a group that the match has not
            return ERROR

    return _matching(apply, 3, 4)


def _replaced(matcher: _Matcher, data: bytes, replacement: bytes, options: str) -> Iterator[bytes]:
    """Yield what `f` (the rest of the text too) and `g` (all matches) make of the text.

    Raises WrongPattern, InexpressiblePattern; IndexError if a group is not there, or if `g`
    meets an empty match at the very end, where HTCondor gives up as well.
    """
    if matcher.program_for(data).translation.turns_empty:
        raise InexpressiblePattern("how far a loop goes that may take nothing is open")
    place = 0
    while (spans := matcher.search(data, place)) is not None:
        begin, end = spans[0]
        if "f" in options:
            yield data[place:begin]
        yield from _expanded(replacement, data, spans)
        place = end
        if "g" not in options:
            break
        if begin == end:
            matcher.refuse_longer(data, place)
            yield bytes((data[place],))
            place += 1
    if "f" in options:
        yield data[place:]


def _expanded(replacement: bytes, data: bytes, spans: list[Span]) -> Iterator[bytes]:
    """Yield the replacement with \\0 to \\9 filled in; other backslashes stay."""
    last = max(group for group, (begin, _) in enumerate(spans) if begin >= 0)
    for piece in re.finditer(rb"\\([0-9])|[^\\]+|\\", replacement):
        if piece[1] is None:
            yield piece[0]
        else:
            begin, end = spans[: last + 1][int(piece[1])]
            yield data[begin:end] if begin >= 0 else b""


TABLE = {
    "regexp": _matching(_regexp, 2, 3),
    "regexpmember": _matching(_regexp_member, 2, 3),
    "stringlist_regexpmember": Function(_string_list_regexp_member, 2, 4),
    "regexps": _replacing(""),
    "replace": _replacing("f"),
    "replaceall": _replacing("fg"),
}
