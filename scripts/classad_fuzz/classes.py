"""Why the two may disagree: each class has a name, an explanation, and knows its cases.

To add one, show that the disagreement vanishes when its reason does: by a variant of our evaluator,
say. A look at the text alone would excuse other faults as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gridbot_policies.classad import ParseError, nodes, parse, unparse

from . import calls, ours, variants
from .cases import Texts
from .ours import Variant
from .values import same


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A case with both values."""

    texts: Texts
    mode: str
    ours: dict[str, Any]
    theirs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Class:
    """A known reason to disagree, and whether it is that of a case.

    Where that is told by the look of the case, it holds for `smallest_only`: in a larger one the
    reason might be another.
    """

    name: str
    explanation: str
    holds: Callable[[Disagreement], bool]
    smallest_only: bool = False


def _library_says(kind: str) -> Callable[[Disagreement], bool]:
    return lambda found: found.theirs["type"] == kind


def _agrees_with(*variants: Variant) -> Callable[[Disagreement], bool]:
    return lambda found: any(
        same(ours.answer(found.texts, found.mode, variant), found.theirs) for variant in variants
    )


def _agrees_but_for_bytes(found: Disagreement) -> bool:
    return same(_without_bytes(found.ours), found.theirs)


def _without_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Write strings that are not UTF-8 as the library's Python side leaves us to write them."""
    held = value.get("value")
    if isinstance(held, list):
        return {**value, "value": [_without_bytes(each) for each in held]}
    if isinstance(held, dict):
        return {**value, "value": {name: _without_bytes(each) for name, each in held.items()}}
    if isinstance(held, str) and any("\udc80" <= char <= "\udcff" for char in held):
        return {"type": "not_utf8"}
    return value


_REGEX_FUNCTIONS = frozenset(
    (
        *("regexp", "regexps", "regexpmember", "stringlist_regexpmember"),
        *("replace", "replaceall", "unresolved"),
    )
)


def _pattern_refused(found: Disagreement) -> bool:
    """Tell whether a function of patterns is an error although its arguments are what it wants."""
    for call in _calls(found):
        if call.function.lower() in _REGEX_FUNCTIONS and len(call.arguments) >= 2:
            kinds = [_kind(found, argument) for argument in call.arguments]
            if kinds[0] == "string" and "error" not in kinds and _kind(found, call) == "error":
                return True
    return False


_CALENDAR = ("splittime", "formattime", "string", "strcat")
_LAST_DAY_SECONDS = 2**31 * 86_400  # C's int does not count further


def _has_no_day(found: Disagreement) -> bool:
    """Tell whether a time is asked for its parts that is too far away for C to have them."""
    for call in _calls(found):
        name = call.function.lower()
        if call.arguments and (name in _CALENDAR or name.startswith("get")):
            value = _value(found, call.arguments[0])
            seconds = value["value"] if value["type"] == "int" else value.get("secs", 0)
            if abs(seconds) >= _LAST_DAY_SECONDS:
                return True
    return False


def _kind(found: Disagreement, node: nodes.Node) -> str:
    return str(_value(found, node)["type"])


def _value(found: Disagreement, node: nodes.Node) -> dict[str, Any]:
    my, target, _ = found.texts
    return ours.answer((my, target, unparse(node)), found.mode)


def _calls(found: Disagreement) -> Iterator[nodes.Call]:
    for text in filter(None, found.texts):
        with suppress(ParseError):
            yield from (
                node
                for node in nodes.walk(parse(text, strict=found.mode == "strict"))
                if isinstance(node, nodes.Call)
            )


def _agrees_without_dots(found: Disagreement) -> bool:
    my, target, expression = found.texts
    expression = re.sub(r"\.\.\d+([eE][-+]?\d+)?", "0.0", expression)
    return same(ours.answer((my, target, expression), found.mode), found.theirs)


CLASSES = (
    Class("library crash", "HTCondor's library dies or hangs", _library_says("crash")),
    Class("library unsteady", "it gives another value when asked again", _library_says("unsteady")),
    Class(
        "bytes",
        "equal but for strings that are not UTF-8, which its Python bindings cannot give",
        _agrees_but_for_bytes,
    ),
    Class(
        "literal relTime",
        'relTime("1:00") is a real in 25.14.1, here a relative time as documented',
        _agrees_with(variants.LITERAL_SPAN),
    ),
    Class(
        "shift",
        "a negative number shifted by what C leaves undefined: here the count modulo 64",
        _agrees_with(variants.SHIFT),
    ),
    Class(
        "detached",
        'ad["name"], or an ad in list.name, is a copy without the scopes around it,'
        " here the same as ad.name",
        _agrees_with(variants.DETACHED, variants.DETACHED_ITEMS),
    ),
    Class(
        "freed",
        'ad["name"].attribute looks into that copy when it is gone, here the same as ad.name',
        _agrees_with(variants.FREED),
    ),
    Class(
        "lists",
        "a list that a function made is of another type than one in the text",
        _agrees_with(variants.LIST_IDENTITY),
    ),
    Class(
        "no ad",
        "without any ad .name is an error here, in the library only sometimes",
        _agrees_with(variants.NO_AD),
    ),
    Class(
        "lost",
        "after unresolved(name), evalInEachContext(name, …) and countMatches(name, …) the other"
        " names are sought where the search for that one ended",
        _agrees_with(calls.LOST),
    ),
    Class(
        "failing",
        "a call that fails the whole evaluation does so where no value is asked of it,"
        " or is an error value, as the part of a list",
        _agrees_with(*calls.FAILING),
    ),
    Class(
        "spans",
        "whole seconds of spans beyond 2^31 s are the smallest 32-bit integer there",
        _agrees_with(calls.SPANS),
    ),
    Class("years", "years beyond 9999, which are errors here", _agrees_with(calls.YEARS)),
    Class(
        "no day",
        "the parts of a time whose day does not fit 32 bits are whatever was in memory there",
        _has_no_day,
        smallest_only=True,
    ),
    Class(
        "endless",
        "a list that is selected from inside itself is undefined there, here too deep",
        _agrees_with(variants.ENDLESS, calls.PARTS),
    ),
    Class("dots", "..5 is the real 0.0, here refused", _agrees_without_dots),
    Class(
        "pattern",
        "RE2 cannot match it, or where a match ends depends on how PCRE backtracks",
        _pattern_refused,
        smallest_only=True,
    ),
    Class(
        "our budget",
        "equal with more steps and longer strings and lists",
        _agrees_with(variants.GENEROUS),
    ),
)


def class_of(found: Disagreement, *, is_smallest: bool) -> Class | None:
    """Return the class that explains the disagreement, if one does."""
    asked = (each for each in CLASSES if is_smallest or not each.smallest_only)
    return next((each for each in asked if each.holds(found)), None)
