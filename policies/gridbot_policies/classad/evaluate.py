"""The walking evaluator: every expression ends in a value, within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gridbot_policies.classad import nodes
from gridbot_policies.classad.evaluation import (
    CLIENT_LIMITS,
    DEFAULT_LIMITS,
    Evaluation,
    Failure,
    Handler,
    Limits,
    RunningCall,
)
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import BINARY, absent, logical, truth, unary
from gridbot_policies.classad.scopes import adopted
from gridbot_policies.classad.values import (
    ERROR,
    FOLDED,
    UNDEFINED,
    ListValue,
    Missing,
    Record,
    Value,
    fold,
)

__all__ = [
    "CLIENT_LIMITS",
    "DEFAULT_LIMITS",
    "HANDLERS",
    "Evaluation",
    "Failure",
    "Limits",
    "evaluate",
    "evaluate_counted",
]


def evaluate(
    expression: Node,
    scope: Record | None = None,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
) -> Value:
    """Return the value of `expression` with `scope` as the current ad. Never raises.

    `now` is the time (s since 1970) that time functions see; undefined without it. `strict` is
    HTCondor's strict evaluation: bare names are not sought in the other ad of a match, and MY
    and CurrentTime are names like others.
    """
    return evaluate_counted(expression, scope, now=now, limits=limits, strict=strict)[0]


def evaluate_counted(
    expression: Node,
    scope: Record | None = None,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
    strict: bool = False,
) -> tuple[Value, int]:
    """Return the value as `evaluate` does, and the steps that it took."""
    run = Evaluation(scope, now, limits, strict, HANDLERS)
    value: Value
    try:
        value = HANDLERS[type(expression)](run, expression, scope, limits.depth)
    except (Failure, RecursionError):  # the latter only if the caller itself is very deep
        value = ERROR
    return value, limits.steps - run.steps


def _constant(_run: Evaluation, node: nodes.Constant, _scope: Record | None, _depth: int) -> Value:
    return node.value


def _attribute(run: Evaluation, node: nodes.Attribute, scope: Record | None, depth: int) -> Value:
    run.steps -= 1
    if run.steps < 0 or depth <= 0:
        raise Failure
    key = FOLDED[node.name]
    if scope is None:
        return UNDEFINED
    # The rest is `look_up` and `held`, in one frame: chains of attributes are the deepest thing
    # there is.
    holder: Record | None = scope
    while holder is not None:
        raw = holder.attributes.get(key)
        if raw is not None:
            break
        if holder is scope and key in run.special:
            return run.special[key](run, scope)
        holder = holder.parent
    else:
        if run.strict or scope.other is None:
            return UNDEFINED
        value = run.look_up(key, scope.other, depth - 2)
        return UNDEFINED if value is None else value
    if not isinstance(raw, Node):
        return raw if type(raw) in _PLAIN else adopted(raw, holder)
    mark = (id(holder.attributes), key)
    if mark in run.busy:
        return UNDEFINED
    run.busy.add(mark)
    value = run.handlers[type(raw)](run, raw, holder, depth - 1)
    run.busy.discard(mark)
    return value


_PLAIN = frozenset((bool, int, float, str, Missing))


def _absolute(run: Evaluation, node: nodes.Absolute, _scope: Record | None, depth: int) -> Value:
    run.spend(1, depth)
    value = run.look_up(fold(node.name), run.root, depth - 1)
    return UNDEFINED if value is None else value


def _selection(run: Evaluation, node: nodes.Selection, scope: Record | None, depth: int) -> Value:
    run.steps -= 1
    if run.steps < 0 or depth <= 0:
        raise Failure
    base = run.handlers[type(node.base)](run, node.base, scope, depth - 1)
    key = FOLDED[node.name]
    if isinstance(base, Record):
        raw = base.attributes.get(key)
        if type(raw) in _PLAIN:
            return raw  # type: ignore[return-value]  # its type is in _PLAIN
        value = run.look_up(key, base, depth - 2)
        return UNDEFINED if value is None else value
    if isinstance(base, ListValue):
        run.spend(len(base.items))
        return ListValue(tuple(_selected(run, base, key, scope, depth)), None)
    return UNDEFINED if base is UNDEFINED else ERROR


def _selected(
    run: Evaluation, base: ListValue, key: str, scope: Record | None, depth: int
) -> Iterator[Value]:
    for value in run.elements(base, scope, depth - 4):
        if isinstance(value, ListValue):
            run.spend(len(value.items), depth)
            yield ListValue(tuple(_selected(run, value, key, scope, depth - 4)), None)
        elif isinstance(value, Record):
            found = run.look_up(key, value, depth - 4)
            yield UNDEFINED if found is None else found
        else:
            yield UNDEFINED if value is UNDEFINED else ERROR


def _subscript(run: Evaluation, node: nodes.Subscript, scope: Record | None, depth: int) -> Value:
    run.spend(1, depth)
    base = run.handlers[type(node.base)](run, node.base, scope, depth - 1)
    index = run.handlers[type(node.index)](run, node.index, scope, depth - 1)
    match base, index:
        case ListValue(items, inner), int() if not isinstance(index, bool):
            place = index % 2**32  # HTCondor keeps 32 bits of the index
            return run.element(items[place], inner, depth - 2) if place < len(items) else ERROR
        case Record(), str():
            key = fold(index)
            return run.held(base, key, depth - 1) if key in base.attributes else UNDEFINED
        case _:
            return absent(base, index) or ERROR


def _parenthesis(
    run: Evaluation, node: nodes.Parenthesis, scope: Record | None, depth: int
) -> Value:
    if depth <= 0:
        raise Failure
    return run.handlers[type(node.inner)](run, node.inner, scope, depth - 1)


def _unary(run: Evaluation, node: nodes.Unary, scope: Record | None, depth: int) -> Value:
    run.steps -= 1
    if run.steps < 0 or depth <= 0:
        raise Failure
    operand = run.handlers[type(node.operand)](run, node.operand, scope, depth - 1)
    return unary(node.operator, operand)


def _binary(run: Evaluation, node: nodes.Binary, scope: Record | None, depth: int) -> Value:
    # a + b + c … leans left; a loop over it, so that long chains need no depth.
    chain = [node]
    left = node.left
    while type(left) is nodes.Binary:
        chain.append(left)
        left = left.left
    run.steps -= len(chain)
    if run.steps < 0 or depth <= 0:
        raise Failure
    handlers, depth = run.handlers, depth - 1
    value = handlers[type(left)](run, left, scope, depth)
    for link in reversed(chain):
        operator, right = link.operator, link.right
        decisive = _DECISIVE.get(operator)
        if decisive is None:
            other = handlers[type(right)](run, right, scope, depth)
            if type(value) is str and type(other) is str:
                run.steps -= len(value) // 64 + len(other) // 64
            value = BINARY[operator](value, other)
            continue
        # Only the left side can cut `&&` and `||` short.
        first = truth(value)
        if first is decisive or first is ERROR:
            value = first
        else:
            second = handlers[type(right)](run, right, scope, depth)
            value = logical(decisive, first, truth(second))
    return value


_DECISIVE = {"&&": False, "||": True}


def _elvis(run: Evaluation, node: nodes.Elvis, scope: Record | None, depth: int) -> Value:
    chosen: Node = node
    while type(chosen) is nodes.Elvis:
        run.spend(1, depth)
        value = run.handlers[type(chosen.left)](run, chosen.left, scope, depth - 1)
        if value is not UNDEFINED:
            return value
        chosen = chosen.right
    return run.handlers[type(chosen)](run, chosen, scope, depth - 1)


def _conditional(
    run: Evaluation, node: nodes.Conditional, scope: Record | None, depth: int
) -> Value:
    chosen: Node = node
    while type(chosen) is nodes.Conditional:
        run.spend(1, depth)
        test = truth(run.handlers[type(chosen.test)](run, chosen.test, scope, depth - 1))
        if test is UNDEFINED or test is ERROR:
            return test
        chosen = chosen.then if test else chosen.otherwise
    return run.handlers[type(chosen)](run, chosen, scope, depth - 1)


def _call(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    run.spend(1, depth)
    function = FUNCTIONS.get(FOLDED[node.function])
    if function is None or not function.least <= len(node.arguments) <= function.most:
        return ERROR
    call = RunningCall(run, scope, depth - 4)
    if function.lazy:
        return call.checked(function.apply(call, *node.arguments))
    handlers = run.handlers
    arguments = [handlers[type(node)](run, node, scope, depth - 1) for node in node.arguments]
    for argument in arguments:
        if type(argument) is str:
            run.spend(len(argument) // 64)
    return call.checked(function.apply(call, *arguments))


def _list(_run: Evaluation, node: nodes.ListNode, scope: Record | None, _depth: int) -> Value:
    return ListValue(node.items, scope)


def _record(run: Evaluation, node: nodes.RecordNode, scope: Record | None, _depth: int) -> Value:
    return run.record(node, scope)


HANDLERS: Mapping[type[Node], Handler] = MappingProxyType(
    {
        nodes.Constant: _constant,
        nodes.Attribute: _attribute,
        nodes.Absolute: _absolute,
        nodes.Selection: _selection,
        nodes.Subscript: _subscript,
        nodes.Parenthesis: _parenthesis,
        nodes.Unary: _unary,
        nodes.Binary: _binary,
        nodes.Elvis: _elvis,
        nodes.Conditional: _conditional,
        nodes.Call: _call,
        nodes.ListNode: _list,
        nodes.RecordNode: _record,
    }
)
