"""What generated code calls: the slow ways, for the values that are not common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from gridbot_policies.classad import operators
from gridbot_policies.classad.evaluate import DEFAULT_LIMITS
from gridbot_policies.classad.functions import Function
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.values import ERROR, UNDEFINED, ListValue, Missing, Record, Value


class Unsettled(Exception):
    """This value must be asked of the walker."""


PLAIN = frozenset((bool, int, float, str, Missing))
FREE_LENGTH = 64  # shorter strings cost no steps to compare
# An evaluation's code may have this many steps; the rest of the walker's budget is for what
# functions take, so that nothing is settled here that the walker would not finish.
CODE_STEPS = 2_000
# So many steps of code take the time of one step of the walker (measured: 16 to 25).
CODE_STEPS_OF_WALK = 16


def binary(operator: str, left: Value, right: Value) -> Value:
    """Return `left operator right`."""
    if type(left) is str and type(right) is str:
        if len(left) >= FREE_LENGTH or len(right) >= FREE_LENGTH:
            raise Unsettled
    elif type(left) not in PLAIN or type(right) not in PLAIN:
        settled(left, right)
    elif left is UNDEFINED and right is not ERROR and operator not in ("is", "isnt"):
        return UNDEFINED
    return operators.binary(operator, left, right)


def unary(operator: str, value: Value) -> Value:
    """Return `operator value`."""
    settled(value)
    return operators.unary(operator, value)


def truth(value: Value) -> Value:
    """Return the value as a condition."""
    settled(value)
    return operators.truth(value)


def select(base: Value, key: str) -> Node | Value:
    """Return what a nested ad holds itself; to climb out of it is the walker's business."""
    if isinstance(base, Record):
        value = base.attributes.get(key)
        if value is not None:
            return value
    elif base is UNDEFINED or base is ERROR:
        return base
    raise Unsettled


def call(function: Function, meter: Meter, *values: Value) -> Value:
    """Return what a function makes of these values."""
    settled(*values)
    for argument in values:
        if isinstance(argument, str):
            meter.spend(len(argument) // 64)
    value = function.apply(meter, *values)
    if isinstance(value, str) and len(value) > DEFAULT_LIMITS.text:
        raise Unsettled
    if isinstance(value, ListValue) and len(value.items) > DEFAULT_LIMITS.items:
        raise Unsettled
    return value


def settled(*values: Value) -> None:
    """Raise Unsettled if one of them is an unevaluated expression."""
    if any(isinstance(value, Node) for value in values):
        raise Unsettled


def items(*values: Value) -> ListValue:
    """Return a list of these values."""
    settled(*values)
    return ListValue(values, None)


class Meter:
    """What functions see of a compiled evaluation: the budget, and the time."""

    __slots__ = ("left", "now")

    strict = False

    def __init__(self, now: float | None) -> None:
        self.now = now
        self.left = DEFAULT_LIMITS.steps - CODE_STEPS

    @property
    def scope(self) -> Record | None:
        """The current ad, which compiled code does not have."""
        raise Unsettled

    @property
    def spent(self) -> int:
        """The steps that functions have taken."""
        return DEFAULT_LIMITS.steps - CODE_STEPS - self.left

    def spend(self, steps: int) -> None:
        """Count work. Raises Unsettled."""
        self.left -= steps
        if self.left < 0:
            raise Unsettled

    def evaluate(self, _node: Node) -> Value:
        """Leave an unevaluated argument to the walker."""
        raise Unsettled

    def evaluate_in(self, _node: Node, _scope: Record) -> Value:
        """Leave it to the walker, too."""
        raise Unsettled

    def fail(self) -> NoReturn:
        """Leave it to the walker."""
        raise Unsettled

    def elements(self, values: ListValue, _scope: Record | None = None) -> Iterator[Value]:
        """Yield the values of a list's elements."""
        for item in values.items:
            self.spend(1)
            if isinstance(item, Node):
                raise Unsettled
            yield item

    def text(self, pieces: Iterable[str]) -> str:
        """Join the pieces."""
        collected: list[str] = []
        room = DEFAULT_LIMITS.text
        for piece in pieces:
            self.spend(1 + len(piece) // 64)
            room -= len(piece)
            if room < 0:
                raise Unsettled
            collected.append(piece)
        return "".join(collected)


def meter(ads: Any) -> Meter:
    """Return the budget that all evaluations among these ads share."""
    if ads.meter is None:
        ads.meter = Meter(ads.now)
    found: Meter = ads.meter
    return found


NAMESPACE: dict[str, Any] = {
    "__builtins__": {"type": type, "int": int, "float": float, "str": str, "len": len},
    "UNSETTLED": Unsettled,
    "BINARY": binary,
    "UNARY": unary,
    "TRUTH": truth,
    "SELECT": select,
    "CALL": call,
    "ITEMS": items,
    "SETTLED": settled,
    "METER": meter,
    "FOLD": operators.fold_text,
    "WRAP": operators.wrap,
    "PLAIN": PLAIN,
    "U": UNDEFINED,
    "E": ERROR,
    "INFINITY": math.inf,
}
"""The names that generated code uses, beside its constants and functions."""
