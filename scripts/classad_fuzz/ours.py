"""GridBot's evaluator as the fuzzer asks it: texts in, a tagged value out.

Written for this, and not the corpus's adapter, because generated values may hold themselves: they
are compared to a depth only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gridbot_policies import classad
from gridbot_policies.classad import ERROR, Limits, ParseError, Record, nodes
from gridbot_policies.classad.evaluation import Evaluation, Failure, Handler
from gridbot_policies.classad.values import AbsTime, ListValue, Missing, RelTime, Value

from .cases import Texts
from .library import LEVELS

NOW = 1_577_934_245  # no case asks for it


Rewrite = Callable[[nodes.Node], nodes.Node]


@dataclass(frozen=True, slots=True)
class Variant:
    """Another way to evaluate: with other limits, other handlers of nodes, or another tree."""

    limits: Limits
    handlers: Mapping[type[nodes.Node], Handler]
    rewrite: Rewrite | None = None
    evaluation: type[Evaluation] = Evaluation


def answer(texts: Texts, mode: str, variant: Variant | None = None) -> dict[str, Any]:
    """Return the tagged value of a case; an exception is a value of type "exception"."""
    my, target, text = texts
    strict = mode == "strict"
    rewrite = variant.rewrite if variant and variant.rewrite else _as_it_is
    try:
        scope = _scope(my, target, strict, rewrite)
    except ParseError:
        return {"type": "ad_parse_error"}
    try:
        asked = rewrite(nodes.Parenthesis(classad.parse(text, strict=strict)))
        return _Side(scope, strict, variant).tagged(asked, LEVELS)
    except ParseError:
        return {"type": "parse_error"}
    except Exception as error:  # the evaluator never raises: whatever this is, it is a finding
        return {"type": "exception", "value": f"{type(error).__name__}: {error}"}


def tagged(value: Value, scope: Record | None) -> dict[str, Any]:
    """Return the tagged form of a value that was found amid `scope`."""
    return _Side(scope, strict=False, variant=None).tagged(nodes.Constant(value), LEVELS)


def _as_it_is(node: nodes.Node) -> nodes.Node:
    return node


def _scope(my: str | None, target: str | None, strict: bool, rewrite: Rewrite) -> Record | None:
    if my is None:  # then the library ignores TARGET
        return None
    mine = _ad(my, strict, rewrite)
    return mine if target is None else classad.match_scope(mine, _ad(target, strict, rewrite))


def _ad(text: str, strict: bool, rewrite: Rewrite) -> Record:
    node = rewrite(_definitions(text, strict))
    assert isinstance(node, nodes.RecordNode)
    return classad.record_of(node)


@lru_cache(maxsize=64)
def _definitions(text: str, strict: bool) -> nodes.RecordNode:
    return nodes.RecordNode(classad.parse_definitions(text, strict=strict))


@dataclass(frozen=True, slots=True)
class _Side:
    """What all parts of a value are evaluated amid."""

    scope: Record | None
    strict: bool
    variant: Variant | None

    def tagged(self, expression: nodes.Node, levels: int) -> dict[str, Any]:
        """Return the value of an expression; of lists and ads in it, to a depth of `levels`."""
        value: Any = self._value(expression)
        match value:
            case Missing():
                return {"type": value.value}
            case bool() | int() | str():
                return {"type": _SIMPLE[type(value)], "value": value}
            case float():
                return {"type": "real", "value": repr(value)}
            case AbsTime(seconds, offset):
                return {"type": "abstime", "secs": seconds, "offset": offset}
            case RelTime(seconds):
                return {"type": "reltime", "value": repr(seconds)}
            case _:
                return self._container(value, expression, levels)

    def _value(self, expression: nodes.Node) -> Value:
        if self.variant is None:
            return classad.evaluate(expression, self.scope, now=NOW, strict=self.strict)
        limits, handlers = self.variant.limits, self.variant.handlers
        run = self.variant.evaluation(self.scope, NOW, limits, self.strict, handlers)
        try:
            return handlers[type(expression)](run, expression, self.scope, limits.depth)
        except (Failure, RecursionError):
            return ERROR

    def _container(
        self, value: ListValue | Record, expression: nodes.Node, levels: int
    ) -> dict[str, Any]:
        held: Any
        if isinstance(value, ListValue):
            kind = "list"
            places = range(len(value.items) if levels else 0)
            held = [self._element(expression, place, levels) for place in places]
        else:
            kind = "classad"
            names = value.names if levels else ()
            held = {name: self._attribute(expression, name, levels) for name in names}
        return {"type": kind, "value": held} if levels else {"type": kind}

    def _element(self, expression: nodes.Node, place: int, levels: int) -> dict[str, Any]:
        return self.tagged(nodes.Subscript(expression, nodes.Constant(place)), levels - 1)

    def _attribute(self, expression: nodes.Node, name: str, levels: int) -> dict[str, Any]:
        return self.tagged(nodes.Selection(expression, name), levels - 1)


_SIMPLE = {bool: "bool", int: "int", str: "string"}
