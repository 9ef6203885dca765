"""Functions that ask for a type, convert, choose, or look at expressions themselves."""

from __future__ import annotations

from collections.abc import Callable

from gridbot_policies.classad import nodes
from gridbot_policies.classad.functions.call import (
    CallContext,
    Function,
    eager,
    lazy,
    real_of,
    text_of,
    whole,
)
from gridbot_policies.classad.lexer import ParseError
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.parser import parse_for_eval
from gridbot_policies.classad.unparse import Spelling, pieces
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    AbsTime,
    ListValue,
    Missing,
    Record,
    RelTime,
    Value,
    fold,
)


def _is(test: Callable[[Value], bool]) -> Function:
    return Function(lambda _call, value: test(value), 1, 1)


@lazy(3)
def _if_then_else(call: CallContext, condition: Node, then: Node, otherwise: Node) -> Value:
    test = truth(call.evaluate(condition))
    if isinstance(test, Missing):
        return test
    return call.evaluate(then if test else otherwise)


@eager(1)
def _eval(call: CallContext, value: Value) -> Value:
    text = text_of(call, value)
    if isinstance(text, Missing):
        return ERROR
    try:
        # A character costs the parser as much as some steps cost the evaluator, if it is a token.
        call.spend(3 * len(text))
        return call.evaluate(parse_for_eval(text, strict=call.strict))
    except ParseError:
        return ERROR


@lazy(1)
def _unparse(call: CallContext, node: Node) -> Value:
    if not isinstance(node, nodes.Attribute | nodes.Selection | nodes.Absolute):
        return ERROR
    key = fold(node.name)
    is_own = isinstance(node, nodes.Attribute) and call.scope and key in call.scope.attributes
    if call.scope is None or not is_own:
        return ""
    return call.text(pieces(call.scope.attributes[key], Spelling.PRETTY))


@eager(1)
def _debug(_call: CallContext, value: Value) -> Value:
    return value


@eager(1)
def _int(_call: CallContext, value: Value) -> Value:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, AbsTime):
        return value.seconds
    number = real_of(value)
    return number if isinstance(number, Missing) else whole(number)


@eager(1)
def _real(_call: CallContext, value: Value) -> Value:
    return real_of(value)


@eager(1)
def _string(call: CallContext, value: Value) -> Value:
    return text_of(call, value)


@eager(1)
def _bool(_call: CallContext, value: Value) -> Value:
    match value:
        case str():
            return {"true": True, "false": False}.get(value.lower(), UNDEFINED)
        case RelTime(seconds):
            return whole(seconds) != 0
        case _:
            return truth(value)


TABLE = {
    "isundefined": _is(lambda value: value is UNDEFINED),
    "iserror": _is(lambda value: value is ERROR),
    "isstring": _is(lambda value: isinstance(value, str)),
    "isinteger": _is(lambda value: type(value) is int),
    "isreal": _is(lambda value: isinstance(value, float)),
    "isboolean": _is(lambda value: isinstance(value, bool)),
    "islist": _is(lambda value: isinstance(value, ListValue)),
    "isclassad": _is(lambda value: isinstance(value, Record)),
    "isabstime": _is(lambda value: isinstance(value, AbsTime)),
    "isreltime": _is(lambda value: isinstance(value, RelTime)),
    "ifthenelse": _if_then_else,
    "eval": _eval,
    "unparse": _unparse,
    "debug": _debug,
    "int": _int,
    "real": _real,
    "string": _string,
    "bool": _bool,
}
