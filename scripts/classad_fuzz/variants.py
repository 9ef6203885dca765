"""Our evaluator with a defect of HTCondor's library: a case that agrees then shows that defect.

What the evaluator does instead, and why, is in the table of `gridbot_policies/classad/README.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from gridbot_policies.classad import DEFAULT_LIMITS, UNDEFINED, Limits, Record, Value, nodes
from gridbot_policies.classad.evaluate import HANDLERS
from gridbot_policies.classad.evaluation import Evaluation, Handler
from gridbot_policies.classad.values import ListValue, RelTime, fold

from .ours import Variant


def _with(kind: type[nodes.Node], handler: Handler) -> Variant:
    return Variant(DEFAULT_LIMITS, MappingProxyType({**HANDLERS, kind: handler}))


def _literal_span(run: Evaluation, node: nodes.Constant, scope: Record | None, depth: int) -> Value:
    """Only for the texts that `eval` reads; the others are rewritten."""
    return HANDLERS[nodes.Constant](run, _real(node), scope, depth)


def _spans_in_lists(
    run: Evaluation, node: nodes.Call | nodes.Selection, scope: Record | None, depth: int
) -> Value:
    """The lists that are made, by functions and of `list.name`, hold literals."""
    value = HANDLERS[type(node)](run, node, scope, depth)
    if not isinstance(value, ListValue):
        return value
    items = tuple(item.seconds if isinstance(item, RelTime) else item for item in value.items)
    return ListValue(items, value.scope)


def _without_spans(node: nodes.Node) -> nodes.Node:
    changed: dict[str, Any] = {}
    for field in fields(node):
        part = getattr(node, field.name)
        if isinstance(part, nodes.Node):
            changed[field.name] = _without_spans(part)
        elif isinstance(part, tuple):
            changed[field.name] = tuple(map(_without_spans, part))
    return _real(replace(node, **changed))


def _real(node: nodes.Node) -> nodes.Node:
    match node:
        case nodes.Constant(RelTime(seconds)):
            return nodes.Constant(seconds)
        case _:
            return node


def _binary(decide: Callable[[str, Value, Value], Value | None]) -> Handler:
    """A handler of operators that asks `decide` first."""

    def handler(run: Evaluation, node: nodes.Binary, scope: Record | None, depth: int) -> Value:
        left = run.handlers[type(node.left)](run, node.left, scope, depth - 1)
        right = node.right
        if node.operator not in ("&&", "||"):
            value = run.handlers[type(right)](run, right, scope, depth - 1)
            decided = decide(node.operator, left, value)
            if decided is not None:
                return decided
            right = nodes.Constant(value)
        rest = nodes.Binary(node.operator, nodes.Constant(left), right)
        return HANDLERS[nodes.Binary](run, rest, scope, depth)

    return handler


def _shift(operator: str, left: Value, right: Value) -> Value | None:
    """As x86 does what C leaves undefined, in the way the library is compiled."""
    if type(left) is not int or type(right) is not int or left >= 0:
        return None
    if operator == ">>":
        return left if right <= 0 else left >> min(right, 63)
    return 0 if operator == ">>>" and right % 64 == 0 else None


def _list_identity(operator: str, left: Value, right: Value) -> Value | None:
    """A list that a function made is of another type than one in the text."""
    if not isinstance(left, ListValue) or not isinstance(right, ListValue):
        return None
    return {"=?=": False, "is": False, "=!=": True, "isnt": True}.get(operator)


def _among_lists(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    """The same where each element is compared: a list is like a value of another type."""
    if fold(node.function) not in ("anycompare", "allcompare") or len(node.arguments) != 3:
        return HANDLERS[nodes.Call](run, node, scope, depth)
    operator, values, value = (
        run.handlers[type(each)](run, each, scope, depth - 1) for each in node.arguments
    )
    if isinstance(values, ListValue) and isinstance(value, ListValue):
        items = run.elements(values, scope, depth - 2)
        values = ListValue(tuple("" if isinstance(i, ListValue) else i for i in items), None)
    arguments = tuple(map(nodes.Constant, (operator, values, value)))
    return HANDLERS[nodes.Call](run, replace(node, arguments=arguments), scope, depth)


def _rootless(run: Evaluation, node: nodes.Absolute, scope: Record | None, depth: int) -> Value:
    """Without any ad, `.name` makes some evaluations fail, and is undefined in others."""
    return UNDEFINED if run.start is None else HANDLERS[type(node)](run, node, scope, depth)


def _root(run: Evaluation, node: nodes.Attribute, scope: Record | None, depth: int) -> Value:
    """The same of the names that lead to the outermost ad."""
    leads_out = fold(node.name) in ("root", "toplevel")
    if run.start is None and leads_out and scope and fold(node.name) not in scope.attributes:
        return UNDEFINED
    return HANDLERS[nodes.Attribute](run, node, scope, depth)


def _detached(run: Evaluation, node: nodes.Subscript, scope: Record | None, depth: int) -> Value:
    """`ad["name"]`: an ad or a list that is a copy, with nothing around it."""
    value = HANDLERS[nodes.Subscript](run, node, scope, depth)
    if _is_by_name(run, node, scope, depth):
        if isinstance(value, Record):
            return Record(value.attributes, value.names)
        if isinstance(value, ListValue):
            return ListValue(value.items, None)
    return value


def _selected(run: Evaluation, node: nodes.Selection, scope: Record | None, depth: int) -> Value:
    """The ads in a list that was selected are copies as well."""
    value = HANDLERS[nodes.Selection](run, node, scope, depth)
    if not isinstance(value, ListValue) or value.scope is not None:
        return value
    items = (Record(i.attributes, i.names) if isinstance(i, Record) else i for i in value.items)
    return ListValue(tuple(items), None)


class _Freed(Record):
    """A copy of an ad that is gone before its attributes are looked at."""

    __slots__ = ()


def _freeing(run: Evaluation, node: nodes.Subscript, scope: Record | None, depth: int) -> Value:
    value = _detached(run, node, scope, depth)
    if isinstance(value, Record) and _is_by_name(run, node, scope, depth):
        return _Freed(value.attributes, value.names)
    return value


def _freed(run: Evaluation, node: nodes.Selection, scope: Record | None, depth: int) -> Value:
    base = run.handlers[type(node.base)](run, node.base, scope, depth - 1)
    if isinstance(base, _Freed):
        return UNDEFINED
    selection = nodes.Selection(nodes.Constant(base), node.name)
    return HANDLERS[nodes.Selection](run, selection, scope, depth)


def _is_by_name(run: Evaluation, node: nodes.Subscript, scope: Record | None, depth: int) -> bool:
    index = run.handlers[type(node.index)](run, node.index, scope, depth - 1)
    return isinstance(index, str)


class _Selecting(Evaluation):
    """An evaluation that knows from which lists it is selecting."""

    __slots__ = ("is_endless", "lists")
    lists: set[int]
    is_endless: bool


def _endless(run: Evaluation, node: nodes.Selection, scope: Record | None, depth: int) -> Value:
    """A list that is selected from inside itself."""
    assert isinstance(run, _Selecting)
    lists = run.lists = getattr(run, "lists", set())
    base = run.handlers[type(node.base)](run, node.base, scope, depth - 1)
    mark = id(base.items) if isinstance(base, ListValue) else 0
    if mark in lists:
        run.is_endless = True
        return UNDEFINED
    if mark:
        lists.add(mark)
    selection = nodes.Selection(nodes.Constant(base), node.name)
    value = HANDLERS[nodes.Selection](run, selection, scope, depth)
    lists.discard(mark)
    return value


def _asking(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    """A name in such a list is unknown to `unresolved`."""
    assert isinstance(run, _Selecting)
    name = node.arguments[0] if node.arguments else None
    if fold(node.function) == "unresolved" and isinstance(name, nodes.Selection):
        run.is_endless = False
        _endless(run, name, scope, depth)
        if run.is_endless:
            return UNDEFINED
    return HANDLERS[nodes.Call](run, node, scope, depth)


# More than the expression of any policy needs.
GENEROUS = Variant(Limits(steps=10_000_000, depth=400, text=10**7, items=10**6), HANDLERS)
LITERAL_SPAN = Variant(
    DEFAULT_LIMITS,
    MappingProxyType(
        {
            **HANDLERS,
            nodes.Constant: _literal_span,
            nodes.Call: _spans_in_lists,
            nodes.Selection: _spans_in_lists,
        }
    ),
    rewrite=_without_spans,
)
SHIFT = _with(nodes.Binary, _binary(_shift))
LIST_IDENTITY = Variant(
    DEFAULT_LIMITS,
    MappingProxyType({**HANDLERS, nodes.Binary: _binary(_list_identity), nodes.Call: _among_lists}),
)
NO_AD = Variant(
    DEFAULT_LIMITS,
    MappingProxyType({**HANDLERS, nodes.Absolute: _rootless, nodes.Attribute: _root}),
)
DETACHED = _with(nodes.Subscript, _detached)
DETACHED_ITEMS = _with(nodes.Selection, _selected)
FREED = Variant(
    DEFAULT_LIMITS,
    MappingProxyType({**HANDLERS, nodes.Subscript: _freeing, nodes.Selection: _freed}),
)
ENDLESS = Variant(
    DEFAULT_LIMITS,
    MappingProxyType({**HANDLERS, nodes.Selection: _endless, nodes.Call: _asking}),
    evaluation=_Selecting,
)
