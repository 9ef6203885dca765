"""Policies that come out the same whatever host asks: those that can never hold, and the like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gridbot_policies.classad import Value
from gridbot_policies.classad.evaluate import DEFAULT_LIMITS
from gridbot_policies.classad.nodes import Definition, Node
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.source import Source, brief, cut
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import fold
from gridbot_policies.explain.trace import value_text
from gridbot_policies.lint.doubts import Doubt
from gridbot_policies.policy.clauses import Clause, Comparison, Fixed, Splitter, bare, comparison
from gridbot_policies.policy.hints import SHOWN
from gridbot_policies.policy.policy_set import DEFAULT_DEADLINE_SECONDS, PolicySet
from gridbot_policies.policy.unknown import Attempt

# ReplicationRequirements = false is a decision, not a slip.
_CONDITIONS = ("jobrequirements", "gridpolicy")
_USES = ("concurrency", "deadline", "rank")


def impossible(policies: PolicySet, source: Source) -> Iterator[Doubt]:
    """Yield the policies that can never hold, and those that always give what is no use.

    All that is evaluated for it shares one budget.
    """
    ad = policies.attributes
    is_fixed = Fixed(ad.attributes)
    attempt = Attempt(ad, None, DEFAULT_LIMITS)
    for definition in source.definitions:
        if fold(definition.name) in _CONDITIONS:
            clauses = list(Splitter(ad.attributes).clauses(definition.expression))
            fixed = [clause for clause in clauses if is_fixed(clause.node)]
            yield from _never_holds(definition, fixed, attempt)
            yield from _contradictions(definition.name, clauses)
        elif fold(definition.name) in _USES and is_fixed(definition.expression):
            value = attempt.value(definition.expression)
            yield from () if value is None else _of_no_use(definition, value)


def _never_holds(
    definition: Definition, fixed: Iterable[Clause], attempt: Attempt
) -> Iterator[Doubt]:
    for clause in fixed:
        value = attempt.value(clause.node)
        if value is not None and truth(value) is not True:
            alone = bare(clause.node) is bare(definition.expression)
            what = "it is" if alone else "this part is"
            shown = "a string, no condition" if isinstance(value, str) else _value(value)
            message = f"{definition.name} can never hold: {what} always {shown}"
            yield Doubt(clause.node, message)


def _contradictions(policy: str, clauses: Iterable[Clause]) -> Iterator[Doubt]:
    """Find numbers that cannot be above one bound and below the other."""
    bounds: dict[str, list[Comparison]] = {}
    for clause in clauses:
        found = comparison(clause.node)
        if found is None:
            continue
        known = bounds.setdefault(fold(unparse(found.side)), [])
        if other := next((item for item in known if not _together(item, found)), None):
            both = f"{_shown(found.side, other)} and {_shown(found.side, found)}"
            yield Doubt(clause.node, f"{policy} can never hold: no host has {both}")
        known[:] = _tightest([*known, found])


def _tightest(found: Sequence[Comparison]) -> list[Comparison]:
    """Return the one that bounds most from below, and the one that does from above."""
    above = [item for item in found if item.operator in (">", ">=", "==")]
    below = [item for item in found if item.operator in ("<", "<=", "==")]
    above.sort(key=lambda item: (item.number, item.operator == ">"))
    below.sort(key=lambda item: (item.number, item.operator != "<"))
    return [*above[-1:], *below[:1]]


def _together(first: Comparison, second: Comparison) -> bool:
    """Tell whether some number meets both comparisons."""
    numbers = (first.number, second.number)
    between = (first.number + second.number) / 2
    tries = (*numbers, between, min(numbers) - 1, max(numbers) + 1)
    return any(_meets(number, first) and _meets(number, second) for number in tries)


def _meets(number: float, wanted: Comparison) -> bool:
    match wanted.operator:
        case "<":
            return number < wanted.number
        case "<=":
            return number <= wanted.number
        case ">":
            return number > wanted.number
        case ">=":
            return number >= wanted.number
        case _:
            return number == wanted.number


def _shown(side: Node, found: Comparison) -> str:
    return f"{brief(side, SHOWN)} {found.operator} {value_text(found.number)}"


def _value(value: Value) -> str:
    return cut(value_text(value), SHOWN)


def _of_no_use(definition: Definition, value: Value) -> Iterator[Doubt]:
    number = value if isinstance(value, int | float) else None
    said = f"{definition.name} is always {_value(value)}"
    match fold(definition.name):
        case "concurrency" if number is None or number < 1:
            yield Doubt(definition.expression, f"{said}: no host would be given a job")
        case "deadline" if number is None or number <= 0:
            default = f"{DEFAULT_DEADLINE_SECONDS:.0f}"
            yield Doubt(definition.expression, f"{said}: the default of {default} s counts")
        case "rank" if number is None:
            yield Doubt(definition.expression, f"{said}: it counts as 0")
