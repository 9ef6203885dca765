"""From trees and values back to text, spelled as HTCondor spells it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

from gridbot_policies.classad import nodes
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.parser import RESERVED
from gridbot_policies.classad.values import AbsTime, ListValue, Missing, Record, RelTime, Value

Piece = str | Node | Value


def unparse(thing: Node | Value) -> str:
    """Return the text of an expression or a value; parsing it gives the same value again."""
    return "".join(pieces(thing))


def pieces(thing: Node | Value) -> Iterator[str]:
    """Yield the text bit by bit, so that a caller with a limit can stop in time."""
    # A stack of our own: trees may be deeper than Python recurses. Text to be shown
    # as it is goes in a list, to tell it from a string value.
    waiting: list[Node | Value | list[str]] = [thing]
    while waiting:
        thing_or_text = waiting.pop()
        if isinstance(thing_or_text, list):
            yield from thing_or_text
        elif isinstance(thing_or_text, Node):
            waiting.extend(reversed(_of_node(thing_or_text)))
        elif isinstance(thing_or_text, ListValue):
            waiting.extend(reversed(_list(thing_or_text.items)))
        elif isinstance(thing_or_text, Record):
            items = zip(thing_or_text.names, thing_or_text.attributes.values(), strict=True)
            waiting.extend(reversed(_record(tuple(items))))
        else:
            yield _scalar(thing_or_text)


Parts = list[Node | Value | list[str]]


def _of_node(node: Node) -> Parts:
    match node:
        case nodes.Constant(value):
            return [value]
        case nodes.Attribute(name):
            return [[quoted_name(name)]]
        case nodes.Absolute(name):
            return [[".", quoted_name(name)]]
        case nodes.Selection(base, name):
            return [base, [".", quoted_name(name)]]
        case nodes.Subscript(base, index):
            return [base, ["["], index, ["]"]]
        case nodes.Parenthesis(inner):
            return [["("], inner, [")"]]
        case nodes.Unary(operator, operand):
            return [[" ", operator], operand]
        case nodes.Binary(operator, left, right):
            return [left, [f" {operator} "], right]
        case nodes.Elvis(left, right):
            return [left, [" ?: "], right]
        case nodes.Conditional(test, then, otherwise):
            return [test, [" ? "], then, [" : "], otherwise]
        case nodes.Call(function, arguments):
            return [[quoted_name(function), "("], *_separated(arguments), [")"]]
        case nodes.ListNode(items):
            return _list(items)
        case nodes.RecordNode(definitions):
            return _record([(item.name, item.expression) for item in definitions])
        case _:
            raise TypeError(f"not an expression: {node!r}")


def _separated(items: Sequence[Node | Value]) -> Parts:
    parts: Parts = []
    for item in items:
        parts += [[","], item]
    return parts[1:]


def _list(items: Sequence[Node | Value]) -> Parts:
    return [["{ "], *_separated(items), [" }"]]


def _record(attributes: Sequence[tuple[str, Node | Value]]) -> Parts:
    parts: Parts = []
    for name, value in attributes:
        parts += [[f"{'; ' if parts else ''}{quoted_name(name)} = "], value]
    return [["[ "], *parts, [" ]"]]


def quoted_name(name: str) -> str:
    """Return the name, in quotes if it could not stand bare."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in RESERVED:
        return name
    return f"'{_escaped(name, chr(39))}'"


def _scalar(value: bool | int | float | str | Missing | AbsTime | RelTime) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Missing():
            return value.value
        case int():
            return str(value)
        case float():
            return _real(value)
        case str():
            return f'"{_escaped(value, chr(34))}"'
        case AbsTime():
            return f'absTime("{moment(value)}")'
        case RelTime(seconds):
            return f'relTime("{span(seconds)}")'


def _real(value: float) -> str:
    if math.isnan(value):
        return 'real("NaN")'
    if math.isinf(value):
        return 'real("INF")' if value > 0 else 'real("-INF")'
    return f"{value:.15E}" if value else str(value)


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


def _escaped(text: str, quote: str) -> str:
    return re.sub(rf"[\\{quote}\x00-\x1f\x7f]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in "\"'":
        return f"\\{char}"
    return _ESCAPES.get(char) or f"\\{ord(char):03o}"


def moment(time: AbsTime) -> str:
    """Return `2020-01-02T03:04:05+05:30`, in the offset that the time carries."""
    if not -86400 < time.offset < 86400:
        return f"{time.seconds}"
    zone = timezone(timedelta(seconds=time.offset))
    try:
        shown = datetime.fromtimestamp(0, zone) + timedelta(seconds=time.seconds)
    except OverflowError:  # a year that the calendar has no room for
        return f"{time.seconds}"
    sign = "+" if time.offset > 0 else "-"  # HTCondor shows UTC as -00:00
    minutes = abs(time.offset) // 60
    return f"{shown:%Y-%m-%dT%H:%M:%S}{sign}{minutes // 60:02}:{minutes % 60:02}"


def span(seconds: float) -> str:
    """Return `[-][d+]hh:mm:ss`, without the leading parts that are zero."""
    if not math.isfinite(seconds):
        return str(seconds)
    sign, left = "-" if seconds < 0 else "", abs(seconds)
    whole = int(left)
    fraction = f"{left - whole:g}"[1:] if left != whole else ""
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    tail = f"{whole % 60:02}{fraction}"
    if days:
        return f"{sign}{days}+{hours:02}:{minutes:02}:{tail}"
    if hours:
        return f"{sign}{hours:02}:{minutes:02}:{tail}"
    return f"{sign}{minutes:02}:{tail}" if minutes else f"{sign}{tail}"
