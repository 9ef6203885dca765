"""Our evaluator behind the conformance corpus's interface: texts in, a tagged value out."""

from __future__ import annotations

from typing import Any

from gridbot_policies import classad
from gridbot_policies.classad import (
    ParseError,
    Record,
    match_scope,
    parse,
    parse_definitions,
    record_of,
)
from gridbot_policies.classad.nodes import (
    Constant,
    Node,
    Parenthesis,
    RecordNode,
    Selection,
    Subscript,
)
from gridbot_policies.classad.values import AbsTime, ListValue, Missing, RelTime, Value

NOW = 1_577_934_245


def evaluate(my: str | None, target: str | None, expr: str, mode: str) -> dict[str, Any]:
    """Return the value of `expr` between the two ads, as the corpus writes values."""
    strict = mode == "strict"
    try:
        expression = parse(expr, strict=strict)
    except ParseError:
        return {"type": "parse_error"}
    return _tagged(Parenthesis(expression), _scope(my, target, strict), strict)


def _scope(my: str | None, target: str | None, strict: bool) -> Record | None:
    if my is None:
        return None
    mine = _ad(my, strict)
    return mine if target is None else match_scope(mine, _ad(target, strict))


def _ad(text: str, strict: bool) -> Record:
    return record_of(RecordNode(parse_definitions(text, strict=strict)))


def _tagged(expression: Node, scope: Record | None, strict: bool) -> dict[str, Any]:
    value = classad.evaluate(expression, scope, now=NOW, strict=strict)
    return _tag(value, expression, scope, strict)


def _tag(value: Value, expression: Node, scope: Record | None, strict: bool) -> dict[str, Any]:
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
            return {"type": "list", "value": [_tagged(e, scope, strict) for e in elements]}
        case Record():
            return {
                "type": "classad",
                "value": {
                    name: _tagged(Selection(expression, name), scope, strict)
                    for name in value.names
                },
            }
