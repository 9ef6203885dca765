"""Functions of regular expressions, in RE2's syntax: linear time whatever the pattern.

What only PCRE can do, look-around and back-references, is an error here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

from gridbot_policies.classad.functions.call import Call, eager
from gridbot_policies.classad.functions.strings import items_of
from gridbot_policies.classad.operators import absent
from gridbot_policies.classad.values import ERROR, UNDEFINED, ListValue, Value

_MEMORY = 1 << 20  # bytes for one compiled pattern; a larger one is an error


@lru_cache(maxsize=512)
def _compiled(pattern: str, options: str) -> Any | None:
    """Return the compiled pattern; None if RE2 refuses it."""
    settings = re2.Options()
    settings.log_errors = False
    settings.max_mem = _MEMORY
    settings.encoding = settings.Encoding.LATIN1  # HTCondor matches bytes
    if "x" in options:
        pattern = _without_comments(pattern)
    flags = "".join(flag for flag in "ims" if flag in options)
    prefix = f"(?{flags})" if flags else ""
    try:
        return re2.compile(_bytes(prefix + pattern), settings)
    except re2.error:
        return None


def _without_comments(pattern: str) -> str:
    """Drop the white space and comments that option x allows, which RE2 does not know."""
    kept, escaped, in_class, in_comment = [], False, False, False
    for char in pattern:
        in_comment = (in_comment and char != "\n") or (
            char == "#" and not (escaped or in_class or in_comment)
        )
        if not in_comment and (escaped or in_class or not char.isspace()):
            kept.append(char)
        if not escaped and not in_comment:
            in_class = char == "[" or (in_class and char != "]")
        escaped = char == "\\" and not escaped
    return "".join(kept)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@eager(2, 3)
def _regexp(_call: Call, pattern: Value, text: Value, options: Value = "") -> Value:
    if missing := absent(pattern, text, options):
        return missing
    if not (isinstance(pattern, str) and isinstance(text, str) and isinstance(options, str)):
        return ERROR
    compiled = _compiled(pattern, options)
    return ERROR if compiled is None else compiled.search(_bytes(text)) is not None


@eager(2, 3)
def _regexp_member(call: Call, pattern: Value, values: Value, options: Value = "") -> Value:
    if missing := absent(pattern, values, options):
        return missing
    if not isinstance(pattern, str) or not isinstance(options, str):
        return ERROR
    compiled = _compiled(pattern, options)
    if compiled is None or not isinstance(values, ListValue):
        return ERROR
    result: Value = False
    for item in call.elements(values):
        if item is UNDEFINED:
            result = UNDEFINED
        elif not isinstance(item, str):
            return ERROR
        elif compiled.search(_bytes(item)) is not None:
            return True
    return result


@eager(2, 4)
def _string_list_regexp_member(
    _call: Call, pattern: Value, text: Value, delimiters: Value = ", ", options: Value = ""
) -> Value:
    if not (isinstance(pattern, str) and isinstance(text, str)):
        return ERROR
    if not (isinstance(delimiters, str) and isinstance(options, str)):
        return ERROR
    compiled = _compiled(pattern, options.lower())
    if compiled is None:
        return ERROR
    items = items_of(text, delimiters)
    return any(compiled.search(_bytes(item)) for item in items) if items else UNDEFINED


def _replacing(fixed: str, most: int) -> Any:
    def apply(
        call: Call, pattern: Value, text: Value, replacement: Value, options: Value = ""
    ) -> Value:
        if missing := absent(pattern, text, replacement, options):
            return missing
        if not (isinstance(pattern, str) and isinstance(text, str)):
            return ERROR
        if not (isinstance(replacement, str) and isinstance(options, str)):
            return ERROR
        compiled = _compiled(pattern, options)
        if compiled is None:
            return ERROR
        try:
            return _replaced(call, compiled, text, replacement, options + fixed)
        except IndexError:  # the replacement names a group that the pattern has not
            return ERROR

    return eager(3, most)(apply)


def _replaced(call: Call, compiled: Any, text: str, replacement: str, options: str) -> str:
    data = _bytes(text)

    def parts() -> Iterator[str]:
        end = 0
        for match in compiled.finditer(data):
            if "f" in options:
                yield data[end : match.start()].decode("utf-8", "replace")
            yield _expanded(match, replacement)
            end = match.end()
            if "g" not in options:
                break
        if "f" in options:
            yield data[end:].decode("utf-8", "replace")

    return call.text(parts())


def _expanded(match: Any, replacement: str) -> str:
    result, position = [], 0
    while position < len(replacement):
        char = replacement[position]
        following = replacement[position + 1 : position + 2]
        if char == "\\" and following and following in "0123456789":
            group = match.group(int(following))
            result.append((group or b"").decode("utf-8", "replace"))
            position += 1
        else:
            result.append(char)
        position += 1
    return "".join(result)


TABLE = {
    "regexp": _regexp,
    "regexpmember": _regexp_member,
    "stringlist_regexpmember": _string_list_regexp_member,
    "regexps": _replacing("", 4),
    "replace": _replacing("f", 4),
    "replaceall": _replacing("fg", 4),
}
