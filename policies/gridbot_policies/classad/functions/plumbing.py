"""Functions of command lines and environments as HTCondor writes them, and of its users.

Version 2 of both separates by white space and quotes with '…', in which '' is a quote; version 1
of arguments knows no quotes, and version 1 of environments separates by `;`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gridbot_policies.classad.functions.call import ANY_NUMBER, CallContext, eager, int32
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    ListValue,
    Value,
)

_GAP = " \t\r\n"
_WORD = re.compile(rf"(?:[^'{_GAP}]|'(?:[^']|'')*+')++|[{_GAP}]++")


class _WrongText(ValueError):
    """A text is not what it should be; the function gives an error."""


def _words(call: CallContext, text: str) -> Iterator[str]:
    """Yield the words of a text in version 2. Raises _WrongText if a quote is not closed."""
    position = 0
    for match in _WORD.finditer(text):
        call.spend(1)
        if match.start() != position:
            break
        position = match.end()
        if match[0][0] not in _GAP:
            yield re.sub(
                r"'((?:[^']|'')*+)'", lambda quoted: quoted[1].replace("''", "'"), match[0]
            )
    if position != len(text):
        raise _WrongText(text)


def _quoted(word: str) -> str:
    """Return a word as version 2 writes it: in quotes is only what must be."""
    return re.sub(rf"['{_GAP}]+", lambda run: "'" + run[0].replace("'", "''") + "'", word) or "''"


def _version(value: Value) -> int:
    """Return the version that an argument asks for. Raises _WrongText."""
    if type(value) is not int or int32(value) not in (1, 2):
        raise _WrongText(value)
    return int32(value)


@eager(1, 2)
def _args_to_list(call: CallContext, text: Value, version: Value = 2) -> Value:
    if not isinstance(text, str):
        return ERROR
    try:
        if _version(version) == 2:
            return ListValue(tuple(_words(call, text)), None)
    except _WrongText:
        return ERROR
    return ListValue(tuple(re.findall(f"[^{_GAP}]+", text)), None)


@eager(1, 2)
def _list_to_args(call: CallContext, values: Value, version: Value = 2) -> Value:
    if not isinstance(values, ListValue):
        return ERROR
    words = [word for word in call.elements(values) if isinstance(word, str)]
    try:
        quoting = _version(version) == 2
    except _WrongText:
        return ERROR
    if len(words) < len(values.items) or not (quoting or all(map(_needs_no_quotes, words))):
        return ERROR
    return _line(call, map(_quoted, words) if quoting else words)


def _needs_no_quotes(word: str) -> bool:
    return re.search(f"[{_GAP}]", word) is None


def _line(call: CallContext, words: Iterable[str]) -> str:
    """Join with blanks; empty words at the beginning get none."""
    return call.text(piece for word in words for piece in (" ", word)).lstrip(" ")


@eager(1)
def _env_v1_to_v2(call: CallContext, text: Value) -> Value:
    if not isinstance(text, str):
        return UNDEFINED if text is UNDEFINED else ERROR
    other = re.match(r"[-!#$%&*+,/:<>?@^`|~]", text)  # instead of the semicolon
    entries = re.split(f"[\n{re.escape(other[0] if other else ';')}]", text)
    return _environment(call, (entry.lstrip(_GAP) for entry in entries))


@eager(0, ANY_NUMBER)
def _merge_environment(call: CallContext, *texts: Value) -> Value:
    entries: list[str] = []
    for text in texts:
        if isinstance(text, str):
            try:
                entries += _words(call, text)
            except _WrongText:
                return ERROR
            if "" in entries:
                return ERROR
        elif text is not UNDEFINED:
            return ERROR
    return _environment(call, entries)


def _environment(call: CallContext, entries: Iterable[str]) -> Value:
    """Return version 2 of `NAME=value` entries by name; of a name given twice, the last."""
    by_name: dict[str, str] = {}
    for entry in entries:
        call.spend(1)
        name, equals, _ = entry.partition("=")
        # $$(…) is something that HTCondor fills in later.
        if entry and (not name or not (equals or "$$" in entry)):
            return ERROR
        if entry:
            by_name[name] = entry
    return _line(call, (_quoted(by_name[name]) for name in sorted(by_name)))


@eager(0, ANY_NUMBER)
def _user_home(call: CallContext, *values: Value) -> Value:
    """Return the default: nobody has a home here, where nothing outside the ads is looked at."""
    if len(values) not in (1, 2):
        call.fail()
    name, default = (*values, UNDEFINED)[:2]
    if isinstance(default, str) and default:
        return default
    return UNDEFINED if isinstance(name, str) or name is UNDEFINED else ERROR


@eager(2, 4)
def _user_map(
    _call: CallContext,
    mapping: Value,
    user: Value,
    _preferred: Value = "",
    default: Value = UNDEFINED,
) -> Value:
    """Return the default, as HTCondor does where no map of that name is configured."""
    return ERROR if ERROR in (mapping, user) else default


TABLE = {
    "argstolist": _args_to_list,
    "listtoargs": _list_to_args,
    "envv1tov2": _env_v1_to_v2,
    "mergeenvironment": _merge_environment,
    "userhome": _user_home,
    "usermap": _user_map,
}
