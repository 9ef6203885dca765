"""A condition taken apart into clauses: it holds exactly where each of them does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gridbot_policies.ads import BOT_ATTRIBUTES
from gridbot_policies.classad import nodes
from gridbot_policies.classad.nodes import Node, walk
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.values import Value, fold

Settled = Callable[[Node], Value | None]

# Their value is not a matter of their arguments alone.
_OPEN_FUNCTIONS = frozenset(("time", "random", "currenttime", "daytime", "eval", "unresolved"))
# Each look walks part of the text; a policy that needs more is taken as it stands.
_MAX_LOOKS = 100
_BOT_NAMES = frozenset(map(fold, BOT_ATTRIBUTES))


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition of several; `via` is the owner's attribute in which it is written."""

    node: Node
    via: str | None = None


class Splitter:
    """Takes conditions apart, seeing through brackets and the owner's attributes.

    `settled` gives the value of what is known beforehand, and None for all else: what it knows
    to hold is left out, and of `a || b` and `c ? a : b` only what still matters is kept.
    """

    def __init__(
        self, attributes: Mapping[str, Node | Value], settled: Settled = lambda _: None
    ) -> None:
        self._attributes = attributes
        self._settled = settled
        self._looks = 0

    def clauses(self, condition: Node) -> Iterator[Clause]:
        """Yield the clauses of a condition, in order."""
        waiting = [Clause(condition)]
        expanded: set[str] = set()
        while waiting:
            clause = waiting.pop()
            known = self._known(clause.node)
            parts = None if known is not None else self._parts(clause, expanded)
            if parts is not None:
                waiting.extend(reversed(parts))
            elif known is None or truth(known) is not True:
                yield clause

    def _parts(self, clause: Clause, expanded: set[str]) -> list[Clause] | None:
        match bare(clause.node):
            case nodes.Binary("&&") as both:
                return [Clause(part, clause.via) for part in _chain(both)]
            case nodes.Attribute(name) if fold(name) not in expanded:
                own = self._attributes.get(fold(name))
                expanded.add(fold(name))
                return [Clause(own, name)] if isinstance(own, Node) else None
            case inner:
                left = self._what_matters(inner)
                return None if left is None else [Clause(left, clause.via)]

    def _what_matters(self, node: Node) -> Node | None:
        match node:
            case nodes.Binary("||", left, right):
                if _is_false(self._known(left)):
                    return right
                return left if _is_false(self._known(right)) else None
            case nodes.Conditional(test, then, otherwise):
                known = self._known(test)
                chosen = None if known is None else truth(known)
                if not isinstance(chosen, bool):
                    return None
                return then if chosen else otherwise
            case _:
                return None

    def _known(self, node: Node) -> Value | None:
        self._looks += 1
        return self._settled(node) if self._looks <= _MAX_LOOKS else None


def bare(node: Node) -> Node:
    """Return what stands inside the brackets around an expression."""
    while isinstance(node, nodes.Parenthesis):
        node = node.inner
    return node


def is_constant(node: Node, attributes: Mapping[str, Node | Value]) -> bool:
    """Tell whether an expression has the same value whatever the ads say."""
    return _depends_on(node, attributes, frozenset())


def is_of_the_bot(node: Node, attributes: Mapping[str, Node | Value]) -> bool:
    """Tell whether an expression asks of the BOT only: every host finds the same value."""
    return _depends_on(node, attributes, _BOT_NAMES)


def _depends_on(node: Node, attributes: Mapping[str, Node | Value], names: frozenset[str]) -> bool:
    """Tell whether nothing matters but `names`, bare or of BOT, and the owner's attributes."""
    waiting, seen = [node], set[str]()
    while waiting:
        for part in walk(waiting.pop()):
            match part:
                case nodes.Attribute(name) if isinstance(own := attributes.get(fold(name)), Node):
                    if fold(name) not in seen:
                        seen.add(fold(name))
                        waiting.append(own)
                case nodes.Attribute(name):
                    if fold(name) not in names and not (names and fold(name) == "bot"):
                        return False
                case nodes.Selection(nodes.Attribute(base), name) if fold(base) == "bot":
                    if fold(name) not in names:
                        return False
                case nodes.Selection() | nodes.Absolute() | nodes.RecordNode() | nodes.Subscript():
                    return False
                case nodes.Call(function) if fold(function) in _OPEN_FUNCTIONS:
                    return False
    return True


def _chain(node: nodes.Binary) -> list[Node]:
    """Return the parts of a && b && c, which leans left."""
    parts: list[Node] = [node.right]
    left = node.left
    while isinstance(left, nodes.Binary) and left.operator == "&&":
        parts.append(left.right)
        left = left.left
    return [left, *reversed(parts)]


def _is_false(value: Value | None) -> bool:
    return value is not None and truth(value) is False
