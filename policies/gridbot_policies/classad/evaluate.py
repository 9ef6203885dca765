"""The walking evaluator: every expression ends in a value, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gridbot_policies.classad import nodes, operators
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.values import (
    ERROR,
    UNDEFINED,
    ListValue,
    Record,
    Value,
    fold,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one evaluation may use; an expression that wants more is an error as a whole."""

    steps: int = 10_000  # nodes visited; long strings and lists count as several
    depth: int = 200  # of expressions in expressions; each costs up to three Python frames
    text: int = 65_536  # characters in a string
    items: int = 10_000  # elements of a list


DEFAULT_LIMITS = Limits()


def evaluate(
    expression: Node,
    scope: Record | None = None,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Value:
    """Return the value of `expression` with `scope` as the current ad. Never raises.

    `now` is the time (s since 1970) that time functions see; undefined without it.
    """
    try:
        return Evaluation(scope, now, limits).evaluate(expression, scope)
    except (Failure, RecursionError):  # the latter only if the caller itself is very deep
        return ERROR


class Failure(Exception):
    """The evaluation as a whole has no value: its budget is used up, or it needs an ad.

    A signal inside this module; callers get an error value.
    """


class Evaluation:
    """One evaluation under way: what it has used, and which attributes it is in the middle of."""

    def __init__(self, scope: Record | None, now: float | None, limits: Limits) -> None:
        self._start = scope
        self.now = now
        self.limits = limits
        self._steps = limits.steps
        self._depth = limits.depth
        self._busy: set[tuple[int, str]] = set()
        # By the ids of a node and its scope, which are kept alive so that ids stay unique.
        self._records: dict[tuple[int, int], tuple[Node, Record]] = {}

    def evaluate(self, node: Node, scope: Record | None) -> Value:
        """Return the value of `node`. Raises Failure."""
        self.spend(1)
        if self._depth == 0:
            raise Failure
        self._depth -= 1
        value = _EVALUATE[type(node)](self, node, scope)
        self._depth += 1  # not restored by an exception: none is caught before the end
        return value

    @property
    def root(self) -> Record:
        """The outermost ad. Raises Failure if there is none, as HTCondor does."""
        if self._start is None:
            raise Failure
        return root_of(self._start)

    def spend(self, steps: int) -> None:
        """Count work. Raises Failure."""
        self._steps -= steps
        if self._steps < 0:
            raise Failure

    def attribute(self, holder: Record, key: str) -> Value:
        """Return the value of an attribute that `holder` has; undefined inside itself."""
        raw = holder.attributes[key]
        if not isinstance(raw, Node):
            return adopted(raw, holder)
        mark = (id(holder.attributes), key)
        if mark in self._busy:
            return UNDEFINED
        self._busy.add(mark)
        value = self.evaluate(raw, holder)
        self._busy.discard(mark)
        return value

    def look_up(self, name: str, start: Record | None) -> Value | None:
        """Return the value of `name`, sought from `start` outwards; None if nobody has it."""
        key = fold(name)
        if start is not None and key in _SPECIAL and key not in start.attributes:
            return _SPECIAL[key](self, start)
        holder = start
        while holder is not None:
            if key in holder.attributes:
                return self.attribute(holder, key)
            holder = holder.parent
        return None

    def element(self, item: Node | Value, scope: Record | None) -> Value:
        """Return the value of a list's element."""
        if isinstance(item, Node):
            return self.evaluate(item, scope)
        return item if scope is None else adopted(item, scope)

    def record(self, node: nodes.RecordNode, scope: Record | None) -> Record:
        """Return the ad that a record in the text stands for: the same one each time.

        Otherwise an attribute that leads back into it would not be noticed as busy.
        """
        mark = (id(node), id(scope))
        if mark not in self._records:
            self._records[mark] = (node, record_of(node, scope))
        return self._records[mark][1]

    def logical(self, operator: str, left: Value, right: Node, scope: Record | None) -> Value:
        """Return `left && right` or `left || right`; only the left side can make it short."""
        decisive = operator == "||"
        first = operators.truth(left)
        if first is ERROR or first is decisive:
            return first
        second = operators.truth(self.evaluate(right, scope))
        if second is ERROR or second is decisive:
            return second
        return UNDEFINED if UNDEFINED in (first, second) else not decisive


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


def _constant(_evaluation: Evaluation, node: nodes.Constant, _scope: Record | None) -> Value:
    return node.value


def _attribute(evaluation: Evaluation, node: nodes.Attribute, scope: Record | None) -> Value:
    value = evaluation.look_up(node.name, scope)
    if value is None and scope is not None and scope.other is not None:
        value = evaluation.look_up(node.name, scope.other)
    return UNDEFINED if value is None else value


def _absolute(evaluation: Evaluation, node: nodes.Absolute, _scope: Record | None) -> Value:
    root, key = evaluation.root, fold(node.name)
    return evaluation.attribute(root, key) if key in root.attributes else UNDEFINED


def _selection(evaluation: Evaluation, node: nodes.Selection, scope: Record | None) -> Value:
    base = evaluation.evaluate(node.base, scope)
    if isinstance(base, ListValue):
        evaluation.spend(len(base.items))
        items = (evaluation.element(item, base.scope) for item in base.items)
        return ListValue(tuple(_selected(evaluation, item, node.name) for item in items), None)
    return _selected(evaluation, base, node.name)


def _selected(evaluation: Evaluation, base: Value, name: str) -> Value:
    if base is UNDEFINED:
        return UNDEFINED
    if not isinstance(base, Record):
        return ERROR
    value = evaluation.look_up(name, base)
    return UNDEFINED if value is None else value


def _subscript(evaluation: Evaluation, node: nodes.Subscript, scope: Record | None) -> Value:
    base, index = evaluation.evaluate(node.base, scope), evaluation.evaluate(node.index, scope)
    match base, index:
        case ListValue(items, inner), int() if not isinstance(index, bool):
            place = index % 2**32  # HTCondor keeps 32 bits of the index
            return evaluation.element(items[place], inner) if place < len(items) else ERROR
        case Record(), str():
            key = fold(index)
            return evaluation.attribute(base, key) if key in base.attributes else UNDEFINED
        case _:
            return operators.absent(base, index) or ERROR


def _parenthesis(evaluation: Evaluation, node: nodes.Parenthesis, scope: Record | None) -> Value:
    return evaluation.evaluate(node.inner, scope)


def _unary(evaluation: Evaluation, node: nodes.Unary, scope: Record | None) -> Value:
    return operators.unary(node.operator, evaluation.evaluate(node.operand, scope))


def _binary(evaluation: Evaluation, node: nodes.Binary, scope: Record | None) -> Value:
    # a + b + c … leans left; a loop over it, so that long chains need no depth.
    chain = [node]
    while isinstance(left := chain[-1].left, nodes.Binary):
        chain.append(left)
    value = evaluation.evaluate(chain[-1].left, scope)
    for link in reversed(chain):
        evaluation.spend(1)
        if link.operator in ("&&", "||"):
            value = evaluation.logical(link.operator, value, link.right, scope)
        else:
            right = evaluation.evaluate(link.right, scope)
            value = operators.binary(link.operator, value, right)
    return value


def _elvis(evaluation: Evaluation, node: nodes.Elvis, scope: Record | None) -> Value:
    value = evaluation.evaluate(node.left, scope)
    return evaluation.evaluate(node.right, scope) if value is UNDEFINED else value


def _conditional(evaluation: Evaluation, node: nodes.Conditional, scope: Record | None) -> Value:
    chosen: Node = node
    while isinstance(chosen, nodes.Conditional):
        test = operators.truth(evaluation.evaluate(chosen.test, scope))
        if not isinstance(test, bool):
            return test
        chosen = chosen.then if test else chosen.otherwise
    return evaluation.evaluate(chosen, scope)


def _call(evaluation: Evaluation, node: nodes.Call, scope: Record | None) -> Value:
    function = FUNCTIONS.get(fold(node.function))
    if function is None or not function.least <= len(node.arguments) <= function.most:
        return ERROR
    call = _RunningCall(evaluation, scope)
    if function.lazy:
        return call.checked(function.apply(call, *node.arguments))
    arguments = [evaluation.evaluate(argument, scope) for argument in node.arguments]
    for argument in arguments:
        if isinstance(argument, str):
            evaluation.spend(len(argument) // 64)
    return call.checked(function.apply(call, *arguments))


def _list(_evaluation: Evaluation, node: nodes.ListNode, scope: Record | None) -> Value:
    return ListValue(node.items, scope)


def _record(evaluation: Evaluation, node: nodes.RecordNode, scope: Record | None) -> Value:
    return evaluation.record(node, scope)


def record_of(node: nodes.RecordNode, scope: Record | None = None) -> Record:
    """Return the ad that a record in the text stands for; of a name given twice, the last."""
    names: dict[str, str] = {}
    attributes: dict[str, Node | Value] = {}
    for definition in node.definitions:
        key = fold(definition.name)
        names.setdefault(key, definition.name)
        attributes[key] = definition.expression
    return Record(attributes, tuple(names.values()), scope)


@dataclass(frozen=True, slots=True)
class _RunningCall:
    """What a function sees of the evaluation that calls it; see `functions.call.Call`."""

    evaluation: Evaluation
    scope: Record | None

    @property
    def now(self) -> float | None:
        return self.evaluation.now

    def evaluate(self, node: Node) -> Value:
        return self.evaluation.evaluate(node, self.scope)

    def evaluate_in(self, node: Node, scope: Record) -> Value:
        return self.evaluation.evaluate(node, scope)

    def elements(self, values: ListValue) -> Iterator[Value]:
        # In the caller's scope, not the list's: that is HTCondor's way.
        for item in values.items:
            self.evaluation.spend(1)
            yield self.evaluation.element(item, self.scope)

    def text(self, pieces: Iterable[str]) -> str:
        collected: list[str] = []
        room = self.evaluation.limits.text
        for piece in pieces:
            self.evaluation.spend(1 + len(piece) // 64)
            room -= len(piece)
            if room < 0:
                raise Failure
            collected.append(piece)
        return "".join(collected)

    def checked(self, value: Value) -> Value:
        """Return `value` if it is within the limits. Raises Failure."""
        limits = self.evaluation.limits
        if isinstance(value, str) and len(value) > limits.text:
            raise Failure
        if isinstance(value, ListValue) and len(value.items) > limits.items:
            raise Failure
        return value


_SPECIAL: dict[str, Callable[[Evaluation, Record], Value]] = {
    "self": lambda _, start: start,
    "my": lambda _, start: start,
    "parent": lambda _, start: start.parent or UNDEFINED,
    "toplevel": lambda evaluation, _: evaluation.root,
    "root": lambda evaluation, _: evaluation.root,
    "currenttime": lambda evaluation, _: (
        UNDEFINED if evaluation.now is None else int(evaluation.now)
    ),
}

_EVALUATE: dict[type[Node], Callable[[Evaluation, Any, Record | None], Value]] = {
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
