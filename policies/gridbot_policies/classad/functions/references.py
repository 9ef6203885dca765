"""The function that tells which names in an expression only another ad can know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

from gridbot_policies.classad import nodes
from gridbot_policies.classad.functions.call import CallContext, lazy
from gridbot_policies.classad.functions.names import (
    Name,
    Place,
    expression_at,
    place_in_match,
    place_of,
    rooted,
    start_of,
)
from gridbot_policies.classad.functions.patterns import InexpressiblePattern, WrongPattern
from gridbot_policies.classad.functions.regex import takes_something
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import fold_text
from gridbot_policies.classad.scopes import record_of, root_of
from gridbot_policies.classad.unparse import pieces
from gridbot_policies.classad.values import ERROR, UNDEFINED, ListValue, Record, Value, fold

_LONGEST_CHAIN = 100  # attributes that lead to attributes


class _Untold(Exception):
    """The names cannot be told: an attribute leads back to itself, or to no ad."""


@lazy(1, 2)
def _unresolved(call: CallContext, node: Node, pattern: Node | None = None) -> Value:
    if not isinstance(node, Name):
        return ERROR
    start = start_of(call, node, call.scope)
    if isinstance(start, ListValue):
        return "" if pattern is None else _one_matches(call, pattern, ())
    if not isinstance(start, Record):
        return UNDEFINED
    key = _special(call, node, start)
    place = place_in_match(call, node, start) if key is None else _special_place(key, start)
    if place is None:
        return UNDEFINED
    names = _names_at(call, place)
    return ",".join(names) if pattern is None else _one_matches(call, pattern, names)


def _one_matches(call: CallContext, pattern: Node, names: Sequence[str]) -> Value:
    text = call.evaluate(pattern)
    if not isinstance(text, str):
        call.fail()
    try:
        # An empty match is none for HTCondor, and only here.
        return takes_something(call, text, "i", names)
    except (WrongPattern, InexpressiblePattern):
        return ERROR


def _names_at(call: CallContext, place: Place) -> list[str]:
    """Return the names in HTCondor's order: by how they are written, before TARGET is cut off."""
    search = _Search(call)
    try:
        search.follow(place)
    except _Untold:
        return []
    names = (search.names[key] for key in sorted(search.names))
    return [name[7:] if name[:7].lower() == "target." else name for name in names]


class _Search:
    """Collects the names that are not found, as each is written first."""

    def __init__(self, call: CallContext) -> None:
        self.call = call
        self.names: dict[str, str] = {}
        self._under_way: list[Place] = []
        self._done: list[Place] = []

    def follow(self, place: Place) -> None:
        """Look through an attribute's expression. Raises _Untold."""
        if place in self._under_way or len(self._under_way) == _LONGEST_CHAIN:
            raise _Untold
        if place not in self._done:
            self._under_way.append(place)
            self._look_through(_expression_at(place), place[0])
            self._done.append(self._under_way.pop())

    def _look_through(self, expression: Node, scope: Record) -> None:
        waiting = [expression]
        while waiting:
            self.call.spend(1 + len(self._done) // 64)
            node = waiting.pop()
            if isinstance(node, Name):
                self._look_up(node, scope)
            else:
                waiting += reversed(list(_parts(self.call, node)))

    def _look_up(self, name: Name, scope: Record) -> None:
        start = start_of(self.call, name, scope)
        if isinstance(name, nodes.Selection) and start is UNDEFINED:
            self._note(f"{self.call.text(pieces(name.base))}.{name.name}")
        elif not isinstance(start, Record):
            raise _Untold
        else:
            key = _special(self.call, name, start)
            place = place_of(name, start) if key is None else _special_place(key, start)
            if place is not None:
                self.follow(place)
            else:
                self._note(name.name)

    def _note(self, name: str) -> None:
        self.names.setdefault(fold_text(name), name)


def _special(call: CallContext, name: Name, start: Record) -> str | None:
    """Return the key of a name that stands for an ad, or for the time; None for another."""
    key = fold(name.name)
    known = _SPECIAL_STRICT if call.strict else _SPECIAL
    return key if key in known and key not in start.attributes else None


def _special_place(key: str, start: Record) -> Place | None:
    return None if key == "parent" and start.parent is None else (start, key)


def _expression_at(place: Place) -> Node:
    """Return what the attribute is defined as; for a special name the ad that it stands for.

    The names in such an ad are sought from where it was named, as in HTCondor.
    """
    start, key = place
    if key in start.attributes:
        return expression_at(place)
    return nodes.Constant(_SPECIAL[key](start))


_SPECIAL_STRICT: Mapping[str, Callable[[Record], Value]] = {
    "self": lambda start: start,
    "parent": lambda start: start.parent or UNDEFINED,
    "root": root_of,
    "toplevel": root_of,
}
_SPECIAL: Mapping[str, Callable[[Record], Value]] = {
    **_SPECIAL_STRICT,
    "my": _SPECIAL_STRICT["self"],
    "currenttime": lambda _start: UNDEFINED,
}


def _parts(call: CallContext, node: Node) -> Iterator[Node]:
    """Yield what an expression consists of; of an ad the attributes, as if it were none."""
    if isinstance(node, nodes.RecordNode):
        node = nodes.Constant(record_of(node))
    match node:
        case nodes.Constant(Record() as ad):
            yield from (rooted(call, expression_at((ad, key)), ad) for key in ad.attributes)
        case nodes.Constant(ListValue(items)):
            yield from (item for item in items if isinstance(item, Node))
        case _:
            pass
    for field in fields(node):
        part = getattr(node, field.name)
        if isinstance(part, Node):
            yield part
        elif isinstance(part, tuple):
            yield from part


TABLE = {"unresolved": _unresolved}
