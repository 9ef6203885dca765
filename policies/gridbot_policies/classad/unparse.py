"""From trees and values back to text, spelled as HTCondor spells it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from gridbot_policies.classad import nodes
from gridbot_policies.classad.grammar import (
    CONDITIONAL,
    ELVIS,
    LEVEL,
    PRIMARY,
    RESERVED,
    UNARY,
)
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.values import (
    AbsTime,
    ListValue,
    Missing,
    Record,
    RelTime,
    Value,
    bytes_of,
    fold,
)


class Spelling(Enum):
    """How a text is written.

    EXACT reads back as the same value. HTCONDOR is to the letter what `string()` gives there,
    which loses the last digit of some reals and the quotes of some names; PRETTY is what
    `unparse()` gives, with lists and ads over several lines. OLD is one line of old syntax.
    """

    EXACT = "exact"
    HTCONDOR = "htcondor"
    PRETTY = "pretty"
    OLD = "old"

    @property
    def is_htcondors(self) -> bool:
        """Whether it follows HTCondor even where that does not read back."""
        return self in (Spelling.HTCONDOR, Spelling.PRETTY)


class _Break(NamedTuple):
    """A new line in a pretty text, and how much deeper it and what follows it are indented."""

    this: int = 0
    rest: int = 0


def unparse(thing: Node | Value) -> str:
    """Return the text of an expression or a value; parsing it gives the same value again."""
    return "".join(pieces(thing, Spelling.EXACT))


Parts = list[Node | Value | list[str] | _Break]


def pieces(thing: Node | Value, spelling: Spelling = Spelling.HTCONDOR) -> Iterator[str]:
    """Yield the text bit by bit, so that a caller with a limit can stop in time."""
    # A stack of our own: trees may be deeper than Python recurses. Text to be shown
    # as it is goes in a list, to tell it from a string value.
    waiting: Parts = [thing]
    indent = 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            yield from part
        elif isinstance(part, _Break):
            indent += part.this
            yield "\n" + " " * indent
            indent += part.rest
        elif isinstance(part, Node):
            waiting.extend(reversed(_of_node(part, spelling)))
        elif isinstance(part, ListValue):
            waiting.extend(reversed(_list(part.items, spelling)))
        elif isinstance(part, Record):
            waiting.extend(reversed(_record(attributes(part), spelling)))
        else:
            yield _scalar(part, spelling)


def attributes(ad: nodes.RecordNode | Record) -> list[tuple[str, Node | Value]]:
    """Return an ad's names and expressions in HTCondor's order, each name once."""
    if isinstance(ad, Record):
        return sorted(zip(ad.names, ad.attributes.values(), strict=True), key=_by_name)
    spelled: dict[str, str] = {}
    last: dict[str, Node | Value] = {}
    for item in ad.definitions:
        spelled.setdefault(fold(item.name), item.name)
        last[fold(item.name)] = item.expression
    return sorted(((spelled[key], last[key]) for key in last), key=_by_name)


def _by_name(attribute: tuple[str, Node | Value]) -> tuple[int, str]:
    return len(attribute[0]), fold(attribute[0])  # short ones first


def _of_node(node: Node, spelling: Spelling) -> Parts:
    match node:
        case nodes.Constant(value):
            return [value]
        case nodes.Attribute(name):
            return [[quoted_name(name, spelling)]]
        case nodes.Absolute(name):
            return [[".", quoted_name(name, spelling)]]
        case nodes.Selection(base, name):
            return [*_selected_from(base), [".", _member(name, spelling)]]
        case nodes.Subscript(base, index):
            return [*_operand(base, PRIMARY), ["["], index, ["]"]]
        case nodes.Parenthesis(inner):
            return [["("], inner, [")"]]
        case nodes.Call(function, arguments):
            return [[_member(function, spelling), "("], *_arguments(function, arguments), [")"]]
        case nodes.ListNode(items):
            return _list(items, spelling)
        case nodes.RecordNode():
            return _record(attributes(node), spelling)
        case _:
            return _operation(node, spelling)


def _operation(node: Node, spelling: Spelling) -> Parts:
    match node:
        case nodes.Unary(operator, operand):
            return [[" ", operator], *_operand(operand, UNARY)]
        case nodes.Binary(operator, left, right):
            level = LEVEL[operator]
            if spelling is Spelling.OLD:
                operator = _OLD_OPERATORS.get(operator, operator)
            return [*_operand(left, level), [f" {operator} "], *_operand(right, level + 1)]
        case nodes.Elvis(left, right):
            return [*_operand(left, PRIMARY), [" ?: "], *_operand(right, ELVIS)]
        case nodes.Conditional(test, then, otherwise):
            return [*_operand(test, CONDITIONAL + 1), [" ? "], then, [" : "], otherwise]
        case _:
            raise TypeError(f"not an expression: {node!r}")


_OLD_OPERATORS = {"is": "=?=", "isnt": "=!="}


def _operand(node: Node, strength: int) -> Parts:
    """Return the node, in parentheses if it binds less tightly than what it stands beside.

    In a tree that was parsed they are there already.
    """
    return [node] if _strength(node) >= strength else [["("], node, [")"]]


def _selected_from(base: Node) -> Parts:
    if isinstance(base, nodes.Constant) and type(base.value) in (int, float):
        return [["("], base, [")"]]  # 5.x would be half a number
    return _operand(base, PRIMARY)


def _strength(node: Node) -> int:
    match node:
        case nodes.Conditional():
            return CONDITIONAL
        case nodes.Binary(operator):
            return LEVEL[operator]
        case nodes.Unary():
            return UNARY
        case nodes.Elvis():
            return ELVIS
        case _:
            return PRIMARY


def _arguments(function: str, arguments: tuple[Node, ...]) -> Parts:
    match arguments:
        case [nodes.Constant(str()) as literal] if fold(function) in ("abstime", "reltime"):
            return [["("], literal, [")"]]  # bare, it would be read as a time
        case _:
            return _separated(arguments)


def _separated(items: Iterable[Node | Value]) -> Parts:
    parts: Parts = []
    for item in items:
        parts += [[","], item]
    return parts[1:]


def _list(items: Iterable[Node | Value], spelling: Spelling) -> Parts:
    if spelling is not Spelling.PRETTY:
        return [["{ "], *_separated(items), [" }"]]
    parts: Parts = []
    for item in items:
        parts += [[","], _Break(), item]
    return [_Break(3, 3), ["{"], *parts[1:], _Break(-3, -3), ["}"]]


def _record(items: Iterable[tuple[str, Node | Value]], spelling: Spelling) -> Parts:
    parts: Parts = []
    gap: Parts = [_Break()] if spelling is Spelling.PRETTY else []
    for name, value in items:
        parts += [["; "], *gap, [f"{quoted_name(name, spelling)} = "], value]
    if spelling is Spelling.PRETTY:
        return [_Break(4, 4), ["["], *parts[1:], _Break(-4, -4), ["]"]]
    return [["[ "], *parts[1:], [" ]"]]


def quoted_name(name: str, spelling: Spelling = Spelling.EXACT) -> str:
    """Return the name, in quotes if it could not stand bare."""
    reserved = _QUOTED_BY_HTCONDOR if spelling.is_htcondors else RESERVED
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in reserved:
        return name
    return _quoted(name, "'", spelling)


_QUOTED_BY_HTCONDOR = RESERVED | {"parent"}


def _member(name: str, spelling: Spelling) -> str:
    """Return a name behind a dot or before arguments, which HTCondor forgets to quote."""
    return name if spelling.is_htcondors else quoted_name(name, spelling)


def _scalar(
    value: bool | int | float | str | Missing | AbsTime | RelTime, spelling: Spelling
) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Missing():
            return value.value
        case int():
            return str(value)
        case float():
            return _real(value, spelling)
        case str():
            return _quoted(value, '"', spelling)
        case AbsTime(seconds, offset):
            text = moment(value)
            # Seconds alone are no literal, and a literal's offset has whole minutes.
            exact = spelling is not Spelling.EXACT or ("T" in text and offset % 60 == 0)
            return f'absTime("{text}")' if exact else f"absTime({seconds},{offset})"
        case RelTime(seconds):
            exact = spelling is not Spelling.EXACT or (seconds.is_integer() and seconds != 0)
            return (
                f'relTime("{span(seconds)}")' if exact else f"relTime({_real(seconds, spelling)})"
            )


def _real(value: float, spelling: Spelling) -> str:
    if math.isnan(value):
        return 'real("NaN")'
    if math.isinf(value):
        return 'real("INF")' if value > 0 else 'real("-INF")'
    if spelling is Spelling.OLD or not value:
        return repr(value)
    text = f"{value:.15E}"
    if spelling is Spelling.EXACT and float(text) != value:
        return f"{value:.16E}"
    return text


_ESCAPES = {
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def _quoted(text: str, quote: str, spelling: Spelling) -> str:
    if spelling is Spelling.OLD:
        escaped = text.replace(quote, f"\\{quote}")
    elif spelling is Spelling.EXACT:
        escaped = re.sub(rf"[\\{quote}\x00-\x1f\x7f\udc80-\udcff]", _escape, text)
    else:
        escaped = re.sub(rf"[\\{quote}\x00-\x1f\x7f]|[^\x00-\x7f]", _escape, text)
    return f"{quote}{escaped}{quote}"


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in "\"'":
        return f"\\{char}"
    return _ESCAPES.get(char) or "".join(f"\\{byte:03o}" for byte in bytes_of(char))


def moment(time: AbsTime) -> str:
    """Return `2020-01-02T03:04:05+05:30`, in the offset that the time carries."""
    try:
        shown = _EPOCH + timedelta(seconds=time.seconds + time.offset)
    except OverflowError:  # a year that the calendar has no room for
        return f"{time.seconds}"
    sign = "+" if time.offset > 0 else "-"  # HTCondor shows UTC as -00:00
    minutes = abs(time.offset) // 60
    return f"{shown.isoformat()}{sign}{minutes // 60:02}:{minutes % 60:02}"


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # with the offset added, it is the time of day there


def span(seconds: float) -> str:
    """Return `[-][d+]hh:mm:ss`, without the leading parts that are zero."""
    if not math.isfinite(seconds):
        return str(seconds)
    sign, left = "-" if seconds < 0 else "", abs(seconds)
    whole = int(left)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    tail = f"{whole % 60:02}" if left - whole < 1e-6 else f"{whole % 60 + left - whole:g}"
    if days:
        return f"{sign}{days}+{hours:02}:{minutes:02}:{tail}"
    if hours:
        return f"{sign}{hours:02}:{minutes:02}:{tail}"
    return f"{sign}{minutes:02}:{tail}" if minutes else f"{sign}{tail}"
