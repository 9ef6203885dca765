"""Ads made of text, and how ads enclose each other."""

from __future__ import annotations

from gridbot_policies.classad import nodes
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.values import ListValue, Record, Value, fold


def record_of(node: nodes.RecordNode, scope: Record | None = None) -> Record:
    """Return the ad that a record in the text stands for; of a name given twice, the last.

    Constants are kept as plain values, so that such an ad is as quick to read as `record`'s.
    """
    names: dict[str, str] = {}
    attributes: dict[str, Node | Value] = {}
    for definition in node.definitions:
        key, expression = fold(definition.name), definition.expression
        names.setdefault(key, definition.name)
        if isinstance(expression, nodes.Constant):
            attributes[key] = expression.value
        else:
            attributes[key] = expression
    return Record(attributes, tuple(names.values()), scope)


def adopted(value: Value, holder: Record) -> Value:
    """Return `value` with `holder` around it, if it is an ad or a list that has nothing yet."""
    if isinstance(value, Record) and value.parent is None:
        return value.within(holder)
    if isinstance(value, ListValue) and value.scope is None:
        return ListValue(value.items, holder)
    return value


def root_of(scope: Record) -> Record:
    """Return the outermost ad around `scope`."""
    while scope.parent is not None:
        scope = scope.parent
    return scope
