"""The function that tells which names in an expression only another ad can know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from gridbot_policies.classad import nodes
from gridbot_policies.classad.functions.call import Call, lazy
from gridbot_policies.classad.functions.names import (
    Name,
    Place,
    expression_at,
    place_in_match,
    place_of,
    start_of,
)
from gridbot_policies.classad.functions.patterns import InexpressiblePattern, WrongPattern
from gridbot_policies.classad.functions.regex import matches
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import fold_text
from gridbot_policies.classad.unparse import pieces
from gridbot_policies.classad.values import ERROR, UNDEFINED, Record, Value, fold

_LONGEST_CHAIN = 100  # attributes that lead to attributes


class _Untold(Exception):
    """The names cannot be told: an attribute leads back to itself, or to no ad."""


@lazy(1, 2)
def _unresolved(call: Call, node: Node, pattern: Node | None = None) -> Value:
    if not isinstance(node, Name):
        return ERROR
    start = start_of(call, node, call.scope)
    place = place_in_match(call, node, start) if isinstance(start, Record) else None
    if place is None:
        return UNDEFINED
    names = _names_at(call, place)
    return ",".join(names) if pattern is None else _one_matches(call, pattern, names)


def _one_matches(call: Call, pattern: Node, names: Sequence[str]) -> Value:
    text = call.evaluate(pattern)
    try:
        # An empty match is none for HTCondor, and only here.
        return any(matches(call, text, "i", names)) if isinstance(text, str) else ERROR
    except (WrongPattern, InexpressiblePattern):
        return ERROR


def _names_at(call: Call, place: Place) -> list[str]:
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

    def __init__(self, call: Call) -> None:
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
            self._look_through(expression_at(place), place[0])
            self._done.append(self._under_way.pop())

    def _look_through(self, expression: Node, scope: Record) -> None:
        waiting = [expression]
        while waiting:
            self.call.spend(1 + len(self._done) // 64)
            node = waiting.pop()
            if isinstance(node, Name):
                self._look_up(node, scope)
            else:
                waiting += reversed(list(_parts(node)))

    def _look_up(self, name: Name, scope: Record) -> None:
        start = start_of(self.call, name, scope)
        if isinstance(name, nodes.Selection) and start is UNDEFINED:
            self._note(f"{self.call.text(pieces(name.base))}.{name.name}")
        elif not isinstance(start, Record):
            raise _Untold
        elif fold(name.name) in self._special - start.attributes.keys():
            self._look_at_special(name, start)
        elif (place := place_of(name, start)) is not None:
            self.follow(place)
        else:
            self._note(name.name)

    @property
    def _special(self) -> frozenset[str]:
        names = frozenset(("self", "parent", "root", "toplevel"))
        return names if self.call.strict else names | {"my", "currenttime"}

    def _look_at_special(self, name: Name, start: Record) -> None:
        if fold(name.name) == "parent" and start.parent is None:
            self._note(name.name)
        elif fold(name.name) != "currenttime":
            raise _Untold  # it is an ad, and this expression is in it

    def _note(self, name: str) -> None:
        self.names.setdefault(fold_text(name), name)


def _parts(node: Node) -> Iterator[Node]:
    """Yield what an expression consists of; of a record the definitions, as if it were none."""
    for field in fields(node):
        part = getattr(node, field.name)
        if isinstance(part, Node):
            yield part
        elif isinstance(part, tuple):
            yield from part


TABLE = {"unresolved": _unresolved}
