"""Functions of numbers and of lists of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gridbot_policies.classad.functions.call import (
    CallContext,
    Function,
    eager,
    is_int,
    real_of,
    whole,
)
from gridbot_policies.classad.operators import binary, wrap
from gridbot_policies.classad.values import ERROR, UNDEFINED, Absent, ListValue, Missing, Value


def _rounding(rule: Callable[[float], int]) -> Function:
    def apply(_call: CallContext, value: Value) -> Value:
        if is_int(value):
            return value
        number = real_of(value)
        if isinstance(number, Missing):
            return ERROR
        return whole(rule(number) if math.isfinite(number) else number)

    return Function(apply, 1, 1)


@eager(2)
def _pow(_call: CallContext, base: Value, exponent: Value) -> Value:
    b, e = real_of(base), real_of(exponent)
    if isinstance(b, Missing) or isinstance(e, Missing):
        return ERROR
    power = _power(b, e)
    # HTCondor rounds an integer power so; it is off by one for negative ones.
    return whole(power + 0.5) if is_int(base) and is_int(exponent) and e >= 0 else power


def _power(base: float, exponent: float) -> float:
    odd = exponent % 2 == 1 if math.isfinite(exponent) else False
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        if base == 0:
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


@eager(2)
def _quantize(call: CallContext, value: Value, quantum: Value) -> Value:
    if isinstance(quantum, ListValue):
        return _quantize_among(call, value, quantum)
    return _multiple(value, quantum)


def _multiple(value: Value, quantum: Value) -> Value:
    if type(value) is int and type(quantum) is int:
        if quantum == 0:
            return value
        steps = binary("/", wrap(value + quantum - 1), quantum)
        return binary("*", steps, quantum)
    number, step = real_of(value), real_of(quantum)
    if isinstance(number, Missing) or isinstance(step, Missing):
        return ERROR
    if abs(step) < 1e-8:
        return value
    quotient = number / step
    if not math.isfinite(quotient):
        return quotient * step
    return math.copysign(math.ceil(quotient), quotient) * step


def _quantize_among(call: CallContext, value: Value, steps: ListValue) -> Value:
    number = real_of(value)
    if isinstance(number, Missing):
        return ERROR
    step: Value = 0
    for step in call.elements(steps):
        candidate = real_of(step)
        if isinstance(candidate, Missing):
            return ERROR
        if candidate >= number:
            return step
    return _multiple(value, step)


@eager(0, 1)
def _random(call: CallContext, largest: Value = 1.0) -> Value:
    """Return undefined where HTCondor draws a number: here the same ads give the same value."""
    if isinstance(largest, bool) or not isinstance(largest, int | float):
        return ERROR
    if largest <= 0:
        call.fail()
    return UNDEFINED


def _numbers(call: CallContext, values: Value) -> list[int | float] | Absent:
    """Return the elements but the undefined ones; an error if one is not a number."""
    if not isinstance(values, ListValue):
        return UNDEFINED if values is UNDEFINED else ERROR
    found = [item for item in call.elements(values) if item is not UNDEFINED]
    numbers = [item for item in found if isinstance(item, int | float)]
    return numbers if len(numbers) == len(found) else ERROR


@eager(1)
def _sum(call: CallContext, values: Value) -> Value:
    found = _numbers(call, values)
    return found if isinstance(found, Missing) else _total(found)


def _total(numbers: Sequence[int | float]) -> Value:
    total: Value = numbers[0] if numbers else 0
    for number in numbers[1:]:
        total = binary("+", total, number)
    return total


@eager(1)
def _avg(call: CallContext, values: Value) -> Value:
    found = _numbers(call, values)
    if isinstance(found, Missing):
        return found
    return binary("/", binary("*", _total(found), 1.0), len(found)) if found else 0


def _extreme(better: str) -> Function:
    def apply(call: CallContext, values: Value) -> Value:
        found = _numbers(call, values)
        if isinstance(found, Missing):
            return found
        if not found:
            return UNDEFINED
        best = found[0]
        for number in found[1:]:
            # Comparing makes both alike first, so max({3, 2.5}) is 3.0 and max({true, 0}) is 1.
            alike = float if isinstance(best, float) or isinstance(number, float) else int
            best = alike(number if binary(better, number, best) is True else best)
        return best

    return Function(apply, 1, 1)


TABLE = {
    "floor": _rounding(math.floor),
    "ceil": _rounding(math.ceil),
    "ceiling": _rounding(math.ceil),
    "round": _rounding(round),  # half to even, like C's rint
    "pow": _pow,
    "quantize": _quantize,
    "random": _random,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme("<"),
    "max": _extreme(">"),
}
