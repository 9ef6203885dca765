"""The syntax tree: one small frozen class per form of the grammar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridbot_policies.classad.values import Value


@dataclass(frozen=True, slots=True)
class Node:
    """Any expression."""


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A value written out."""

    value: Value


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """A bare name, sought from the current ad outwards."""

    name: str


@dataclass(frozen=True, slots=True)
class Absolute(Node):
    """`.name`: an attribute of the outermost ad."""

    name: str


@dataclass(frozen=True, slots=True)
class Selection(Node):
    """`base.name`."""

    base: Node
    name: str


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    """`base[index]`."""

    base: Node
    index: Node


@dataclass(frozen=True, slots=True)
class Parenthesis(Node):
    """`(inner)`; kept so that text made from the tree reads as it was written."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`- + ! ~` before an operand."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An operator between two operands."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Elvis(Node):
    """`left ?: right`: right where left is undefined."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """`test ? then : otherwise`."""

    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(arguments)`; an unknown function is no syntax error."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListNode(Node):
    """`{ items }`."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Definition(Node):
    """`name = expression` in a record; `offset` is where in the text the name begins."""

    name: str
    expression: Node
    offset: int


@dataclass(frozen=True, slots=True)
class RecordNode(Node):
    """`[ definitions ]`, as written: a name may occur twice (the last one counts)."""

    definitions: tuple[Definition, ...]


def rebuilt(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Return the tree with other parts in it: those that `change` gives, where it gives any."""
    other = change(node)
    if other is not None:
        return other
    changed: dict[str, Any] = {}
    for field in fields(node):
        part = getattr(node, field.name)
        if isinstance(part, Node):
            changed[field.name] = rebuilt(part, change)
        elif isinstance(part, tuple):
            changed[field.name] = tuple(rebuilt(each, change) for each in part)
    return replace(node, **changed)


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and everything below it, in no particular order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        for field in fields(node):
            child = getattr(node, field.name)
            if isinstance(child, Node):
                waiting.append(child)
            elif isinstance(child, tuple):
                waiting.extend(child)
