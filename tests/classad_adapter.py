"""Our evaluator behind the conformance corpus's interface: texts in, a tagged value out."""

from __future__ import annotations

from typing import Any

from gridbot_policies import classad
from gridbot_policies.classad import ParseError, Record, match_scope, parse, record_of
from gridbot_policies.classad.nodes import (
    Constant,
    Node,
    Parenthesis,
    RecordNode,
    Selection,
    Subscript,
)
from gridbot_policies.classad.values import AbsTime, ListValue, Missing, RelTime, Value


def evaluate(my: str | None, target: str | None, expr: str, mode: str) -> dict[str, Any]:
    try:
        expression = parse(expr)
    except ParseError:
        return {"type": "parse_error"}
    return _tagged(Parenthesis(expression), _scope(my, target))


def _scope(my: str | None, target: str | None) -> Record | None:
    if my is None:
        return None
    mine = _ad(my)
    return mine if target is None else match_scope(mine, _ad(target))


def _ad(text: str) -> Record:
    node = parse(text)
    assert isinstance(node, RecordNode)
    return record_of(node)


def _tagged(expression: Node, scope: Record | None) -> dict[str, Any]:
    return _tag(classad.evaluate(expression, scope, now=1_577_934_245), expression, scope)


def _tag(value: Value, expression: Node, scope: Record | None) -> dict[str, Any]:
    match value:
        case Missing():
            return {"type": value.value}
        case bool():
            return {"type": "bool", "value": value}
        case int():
            return {"type": "int", "value": value}
        case float():
            return {"type": "real", "value": repr(value)}
        case str():
            return {"type": "string", "value": value}
        case AbsTime(seconds, offset):
            return {"type": "abstime", "secs": seconds, "offset": offset}
        case RelTime(span):
            return {"type": "reltime", "value": repr(span)}
        case ListValue(items):
            elements = [Subscript(expression, Constant(i)) for i in range(len(items))]
            return {"type": "list", "value": [_tagged(element, scope) for element in elements]}
        case Record():
            return {
                "type": "classad",
                "value": {n: _tagged(Selection(expression, n), scope) for n in value.names},
            }
