"""A condition taken apart into clauses: it holds exactly where each of them does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from gridbot_policies.classad import nodes
from gridbot_policies.classad.nodes import Node, walk
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.values import Value, fold
from gridbot_policies.policy.ads import BOT_ATTRIBUTES

Settled = Callable[[Node], Value | None]

# Their value is not a matter of their arguments alone.
_OPEN_FUNCTIONS = frozenset(("time", "random", "currenttime", "daytime", "eval", "unresolved"))
# Each look walks part of the text; a policy that needs more is taken as it stands.
_MAX_LOOKS = 100
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}
BOT_NAMES = frozenset(map(fold, BOT_ATTRIBUTES))
_OPEN = ""  # no attribute has that name


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


class Fixed:
    """Tells which expressions have the same value whatever host asks.

    They read nothing but `names`, bare or of BOT, and the owner's attributes. What those read
    is found once, for many expressions may mention the same ones.
    """

    def __init__(
        self, attributes: Mapping[str, Node | Value], names: Collection[str] = frozenset()
    ) -> None:
        own = {key: value for key, value in attributes.items() if isinstance(value, Node)}
        self._own = own.keys()
        self._names = names
        self._open = {_OPEN}
        users: dict[str, list[str]] = {}
        for key, expression in own.items():
            for name in self._reads(expression):
                users.setdefault(name, []).append(key)
        waiting = [_OPEN]
        while waiting:
            found = set(users.get(waiting.pop(), ())) - self._open
            self._open |= found
            waiting.extend(found)

    def __call__(self, node: Node) -> bool:
        """Tell whether an expression has the same value for every host."""
        return all(name not in self._open for name in self._reads(node))

    def _reads(self, node: Node) -> Iterator[str]:
        """Yield the owner's attributes that an expression reads, _OPEN for what else matters."""
        for part in walk(node):
            match part:
                case nodes.Attribute(name) if fold(name) in self._own:
                    yield fold(name)
                case nodes.Attribute(name):
                    if fold(name) not in self._names and not (self._names and fold(name) == "bot"):
                        yield _OPEN
                case nodes.Selection(nodes.Attribute(base), name) if fold(base) == "bot":
                    if fold(name) not in self._names:
                        yield _OPEN
                case nodes.Selection() | nodes.Absolute() | nodes.RecordNode() | nodes.Subscript():
                    yield _OPEN
                case nodes.Call(function) if fold(function) in _OPEN_FUNCTIONS:
                    yield _OPEN


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """`side operator number`, whichever of the two it was written first."""

    side: Node
    operator: str
    number: int | float


def comparison(node: Node) -> Comparison | None:
    """Read a node as a comparison with a number; None if it is something else."""
    inner = bare(node)
    if not isinstance(inner, nodes.Binary) or inner.operator not in _MIRRORED:
        return None
    for side, written, operator in (
        (inner.left, inner.right, inner.operator),
        (inner.right, inner.left, _MIRRORED[inner.operator]),
    ):
        number = _number(bare(written))
        if number is not None and _number(bare(side)) is None:
            return Comparison(side, operator, number)
    return None


def _number(node: Node) -> int | float | None:
    match node:
        case nodes.Constant(bool()):
            return None
        case nodes.Constant(int() | float() as number):
            return number
        case nodes.Unary("-", nodes.Constant(int() | float() as number)) if number is not True:
            return -number
        case _:
            return None
