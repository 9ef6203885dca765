"""Our evaluator with defects of the library's functions: more variants, as in `variants.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

from gridbot_policies.classad import DEFAULT_LIMITS, ERROR, UNDEFINED, Record, Value, nodes
from gridbot_policies.classad.evaluate import HANDLERS
from gridbot_policies.classad.evaluation import Evaluation, Failure, Handler, RunningCall
from gridbot_policies.classad.functions import FUNCTIONS
from gridbot_policies.classad.functions.names import Name, expression_at, place_in_match, start_of
from gridbot_policies.classad.operators import binary, truth
from gridbot_policies.classad.scopes import root_of
from gridbot_policies.classad.unparse import moment
from gridbot_policies.classad.values import AbsTime, ListValue, RelTime, fold, record

from .ours import Variant

_CONTEXTS = frozenset(("evalineachcontext", "countmatches"))
_TEXTS = frozenset(
    (
        *("string", "strcat", "join", "toupper", "tolower", "substr", "strcmp", "stricmp", "eval"),
        *("versioncmp", "versionle", "versionlt", "versionge", "versiongt", "versioneq"),
        "version_in_range",
    )
)
_NUMBERS = frozenset(
    (
        *("int", "real", "floor", "ceil", "ceiling", "round", "pow", "quantize", "interval"),
        *("getdays", "gethours", "getminutes", "getseconds"),
    )
)


def _with(handlers: dict[type[nodes.Node], Handler]) -> Variant:
    return Variant(DEFAULT_LIMITS, MappingProxyType({**HANDLERS, **handlers}))


# ------------------------------------------------------------ arguments that are taken for others

Seen = Callable[[str, Value], Value]


def _seeing(seen: Seen) -> Handler:
    """A handler of calls whose arguments are first made what the library sees of them."""

    def handler(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
        key = fold(node.function)
        function = FUNCTIONS.get(key)
        if function is None or function.lazy:
            return HANDLERS[nodes.Call](run, node, scope, depth)
        values = [run.handlers[type(n)](run, n, scope, depth - 1) for n in node.arguments]
        arguments = tuple(nodes.Constant(seen(key, value)) for value in values)
        return HANDLERS[nodes.Call](run, replace(node, arguments=arguments), scope, depth)

    return handler


_CUT = RelTime(-(2.0**31))


def _cut(value: Value) -> Value:
    fits = not isinstance(value, RelTime) or -(2**31) < value.seconds < 2**31
    return value if fits else _CUT


def _span_seen(function: str, value: Value) -> Value:
    if _cut(value) is value:
        return value
    if function in _TEXTS:
        return "--24855+-3:-14:-8"
    return _CUT if function in _NUMBERS else value


def _span_call(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    if fold(node.function) == "splittime" and len(node.arguments) == 1:
        argument = node.arguments[0]
        value = run.handlers[type(argument)](run, argument, scope, depth - 1)
        if _cut(value) is not value:
            assert isinstance(value, RelTime)
            fraction = abs(value.seconds) % 1 if math.isfinite(value.seconds) else math.nan
            seconds = math.copysign(1, value.seconds) * (fraction - 8)
            parts = {"Days": -24855, "Hours": -3, "Minutes": -14, "Seconds": seconds}
            return record({"Type": "RelativeTime", **parts})
    if fold(node.function) == "join":
        return _seeing(lambda name, value: _spans_seen(run, name, value, scope, depth))(
            run, node, scope, depth
        )
    return _seeing(_span_seen)(run, node, scope, depth)


def _spans_seen(
    run: Evaluation, function: str, value: Value, scope: Record | None, depth: int
) -> Value:
    """The same of the elements of a list."""
    if not isinstance(value, ListValue):
        return _span_seen(function, value)
    items = run.elements(value, scope, depth - 2)
    return ListValue(tuple(_span_seen(function, item) for item in items), None)


def _span_sum(run: Evaluation, node: nodes.Binary, scope: Record | None, depth: int) -> Value:
    if node.operator not in ("+", "-"):
        return HANDLERS[nodes.Binary](run, node, scope, depth)
    left, right = (
        run.handlers[type(side)](run, side, scope, depth - 1) for side in (node.left, node.right)
    )
    if isinstance(left, AbsTime) or isinstance(right, AbsTime):
        left, right = _cut(left), _cut(right)
    return binary(node.operator, left, right)


# A time beyond 2^31 s, in whole seconds, as the library's 32 bits have it.
SPANS = _with({nodes.Call: _span_call, nodes.Binary: _span_sum})

_CYCLE_YEARS, _CYCLE_SECONDS = 400, 146097 * 86400  # the calendar repeats then


def _years(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    """The same calendar for all years: of another cycle, and then those years added."""
    cycles = 0

    def seen(function: str, value: Value) -> Value:
        nonlocal cycles
        is_number = type(value) is int and function in ("splittime", "formattime")
        seconds = value.seconds if isinstance(value, AbsTime) else value if is_number else 0
        assert isinstance(seconds, int)
        cycles = (seconds - 946_684_800) // _CYCLE_SECONDS  # from 2000
        near = seconds - cycles * _CYCLE_SECONDS
        if cycles == 0 or not (is_number or isinstance(value, AbsTime)):
            return value
        if isinstance(value, AbsTime) and function in _TEXTS:
            text = moment(replace(value, seconds=near))
            return _later(text, cycles)
        is_calendars = function in ("splittime", "formattime") or function.startswith("get")
        if not is_calendars:
            return value
        return replace(value, seconds=near) if isinstance(value, AbsTime) else near

    value = _seeing(seen)(run, node, scope, depth)
    match fold(node.function), value:
        case "getyear", int():
            return value + _CYCLE_YEARS * cycles
        case "formattime", str():
            return _later(value, cycles)
        case "splittime", Record() if cycles:
            year = value.get("Year")
            assert isinstance(year, int)
            return value.holding("Year", year + _CYCLE_YEARS * cycles)
    return value


def _later(text: str, cycles: int) -> str:
    """Return the text with the years of 2000 to 2399 in it so many cycles later."""
    for year in range(2000, 2400):
        if str(year) in text:
            return text.replace(str(year), str(year + _CYCLE_YEARS * cycles))
    return text


YEARS = _with({nodes.Call: _years})


# ------------------------------------------------------- names that are sought in the wrong place


@dataclass(frozen=True, slots=True)
class _In(nodes.Node):
    """An expression that is evaluated in another ad."""

    inner: nodes.Node
    scope: Record


def _elsewhere(run: Evaluation, node: _In, _scope: Record | None, depth: int) -> Value:
    return run.handlers[type(node.inner)](run, node.inner, node.scope, depth)


class _Moving(Evaluation):
    """An evaluation that forgets in which ad it is: by the id of the right ad, the wrong one."""

    __slots__ = ("moved",)
    moved: dict[int, Record]

    def ad_for(self, scope: Record | None) -> Record | None:
        """Return the ad in which the library is instead."""
        return self.moves.get(id(scope), scope)

    @property
    def moves(self) -> dict[int, Record]:
        if not hasattr(self, "moved"):
            self.moved = {}
        return self.moved


def _moving_name(run: Evaluation, node: Name, scope: Record | None, depth: int) -> Value:
    """A name is sought in the wrong ad, and then the right one is current again."""
    assert isinstance(run, _Moving)
    start, moves = run.ad_for(scope), run.moves
    run.moved = {}
    try:
        return HANDLERS[type(node)](run, node, start, depth)
    finally:
        run.moved = moves


def _moving_call(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    """The search for the name that these functions ask for moves us to where it ends."""
    assert isinstance(run, _Moving)
    key = fold(node.function)
    if key not in _CONTEXTS | {"unresolved"}:
        if key == "join" and len(node.arguments) == 2:  # which looks first whether it is a list
            last = node.arguments[1]
            run.handlers[type(last)](run, last, scope, depth - 1)
        function = FUNCTIONS.get(key)
        start = run.ad_for(scope) if function and function.lazy else scope
        return HANDLERS[nodes.Call](run, node, start, depth)
    start = run.ad_for(scope)
    name, *others = node.arguments or (nodes.Constant(ERROR),)
    end = _end_of_search(run, name, start, depth) if isinstance(name, Name) else None
    if end is not None and key == "unresolved" and others:
        others = [_In(others[0], end)]
    value = HANDLERS[nodes.Call](run, replace(node, arguments=(name, *others)), start, depth)
    if end is not None:
        run.moves[id(scope)] = end
    return value


def _end_of_search(run: Evaluation, name: Name, scope: Record | None, depth: int) -> Record | None:
    call = RunningCall(run, scope, depth - 4)
    start = start_of(call, name, scope)
    if not isinstance(start, Record):
        return None
    if fold(name.name) in run.special and fold(name.name) not in start.attributes:
        return start
    place = place_in_match(call, name, start)
    return root_of(start) if place is None else place[0]


LOST = replace(
    _with(
        {
            _In: _elsewhere,
            nodes.Call: _moving_call,
            nodes.Attribute: _moving_name,
            nodes.Selection: _moving_name,
            nodes.Absolute: _moving_name,
        }
    ),
    evaluation=_Moving,
)


# ------------------------------------------------------------------ what fails with all around it


@dataclass(frozen=True, slots=True)
class _Guarded(nodes.Node):
    """An expression whose failure is only an error."""

    inner: nodes.Node


def _guarded(run: Evaluation, node: _Guarded, scope: Record | None, depth: int) -> Value:
    handler = run.handlers[type(node.inner)]
    return _unless_failing(run, lambda: handler(run, node.inner, scope, depth), ERROR)


def _unless_failing(run: Evaluation, act: Callable[[], Value], otherwise: Value) -> Value:
    busy = set(run.busy)
    try:
        return act()
    except Failure:
        run.busy = busy
        return otherwise


def _guarded_call(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    if fold(node.function) in _CONTEXTS and len(node.arguments) == 2:
        node = replace(node, arguments=_guarded_arguments(run, *node.arguments, scope, depth))
    elif fold(node.function) == "unresolved" and len(node.arguments) == 1:
        return _guarded_search(run, node, scope, depth)
    elif fold(node.function) in ("regexpmember", "min", "max", "sum", "avg"):
        node = replace(node, arguments=tuple(map(_with_guards, node.arguments)))
    return HANDLERS[nodes.Call](run, node, scope, depth)


def _guarded_search(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
    """What fails while names are looked for leaves them unknown."""
    name = node.arguments[0]
    if isinstance(name, nodes.Selection):
        node = replace(node, arguments=(replace(name, base=_Guarded(name.base)),))
    whole = HANDLERS[nodes.Call]
    return _unless_failing(run, lambda: whole(run, node, scope, depth), "")


def _guarded_arguments(
    run: Evaluation, expression: nodes.Node, ads: nodes.Node, scope: Record | None, depth: int
) -> tuple[nodes.Node, nodes.Node]:
    """Guard an expression, or else that behind a name, and see that the list stays where it is."""
    call = RunningCall(run, scope, depth - 4)
    start = start_of(call, expression, scope) if isinstance(expression, Name) else None
    if not isinstance(expression, Name) or not isinstance(start, Record):
        return _Guarded(expression), _with_guards(ads)
    place = place_in_match(call, expression, start)
    if place is None:
        return expression, _with_guards(ads)
    return _Guarded(expression_at(place)), _In(_with_guards(ads), place[0])


def _with_guards(node: nodes.Node) -> nodes.Node:
    if not isinstance(node, nodes.ListNode):
        return node
    is_held = (nodes.RecordNode, nodes.ListNode)
    return nodes.ListNode(
        tuple(item if isinstance(item, is_held) else _Guarded(item) for item in node.items)
    )


def _guarded_part(otherwise: Value) -> Handler:
    """A part asked for by its place or name fails alone."""

    def handler(run: Evaluation, node: nodes.Subscript, scope: Record | None, depth: int) -> Value:
        for part in (node.base, node.index):
            run.handlers[type(part)](run, part, scope, depth - 1)
        whole = HANDLERS[nodes.Subscript]
        return _unless_failing(run, lambda: whole(run, node, scope, depth), otherwise)

    return handler


def _both_sides(run: Evaluation, node: nodes.Binary, scope: Record | None, depth: int) -> Value:
    """The right side is evaluated even if the left one is no condition at all."""
    if node.operator in ("&&", "||"):
        left = run.handlers[type(node.left)](run, node.left, scope, depth - 1)
        if left is not ERROR and truth(left) is ERROR:
            run.handlers[type(node.right)](run, node.right, scope, depth - 1)
    return HANDLERS[nodes.Binary](run, node, scope, depth)


def _all_branches(
    run: Evaluation, node: nodes.Conditional, scope: Record | None, depth: int
) -> Value:
    test = run.handlers[type(node.test)](run, node.test, scope, depth - 1)
    if test is not ERROR and truth(test) is ERROR:
        for branch in (node.then, node.otherwise):
            run.handlers[type(branch)](run, branch, scope, depth - 1)
    return HANDLERS[nodes.Conditional](run, node, scope, depth)


# The functions that do not evaluate all their arguments there.
_STOPPING = frozenset(
    (
        *("strcat", "join", "listtoargs", "argstolist", "anycompare", "allcompare"),
        *("mergeenvironment", "formattime", "stringlistsintersect"),
    )
)


def _settled(otherwise: Value) -> Handler:
    """A function whose value is settled does not evaluate what could fail."""

    def handler(run: Evaluation, node: nodes.Call, scope: Record | None, depth: int) -> Value:
        def value_of(argument: nodes.Node) -> Value:
            return run.handlers[type(argument)](run, argument, scope, depth - 1)

        if fold(node.function) not in _STOPPING:
            return _guarded_call(run, node, scope, depth)
        values = [
            _unless_failing(run, lambda a=argument: value_of(a), otherwise)  # type: ignore[misc]
            for argument in node.arguments
        ]
        arguments = tuple(map(nodes.Constant, values))
        return HANDLERS[nodes.Call](run, replace(node, arguments=arguments), scope, depth)

    return handler


_FAILING: dict[type[nodes.Node], Handler] = {
    _In: _elsewhere,
    _Guarded: _guarded,
    nodes.Subscript: _guarded_part(ERROR),
    nodes.Binary: _both_sides,
    nodes.Conditional: _all_branches,
}
FAILING = tuple(
    _with({**_FAILING, nodes.Call: call})
    for call in (_guarded_call, _settled(ERROR), _settled(UNDEFINED))
)
# What never ends has not even an error for a value then.
PARTS = _with({nodes.Subscript: _guarded_part(UNDEFINED)})
