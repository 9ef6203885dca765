"""Policies that come out the same whatever host asks: those that can never hold, and the like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gridbot_policies.classad import Record, Value, evaluate, nodes
from gridbot_policies.classad.nodes import Definition, Node
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.unparse import unparse
from gridbot_policies.classad.values import fold
from gridbot_policies.clauses import Clause, Splitter, bare, is_constant
from gridbot_policies.doubts import Doubt
from gridbot_policies.policy_set import DEFAULT_DEADLINE_SECONDS, PolicySet
from gridbot_policies.source import Source
from gridbot_policies.trace import value_text

# ReplicationRequirements = false is a decision, not a slip.
_CONDITIONS = ("jobrequirements", "gridpolicy")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`side operator number`, however it was written; `number_node` is the number's place."""

    side: Node
    operator: str
    number: int | float
    number_is_left: bool


def comparison(node: Node) -> Comparison | None:
    """Read a node as a comparison with a number; None if it is something else."""
    inner = bare(node)
    if not isinstance(inner, nodes.Binary) or inner.operator not in _MIRRORED:
        return None
    for side, written, operator in (
        (inner.left, inner.right, inner.operator),
        (inner.right, inner.left, _MIRRORED[inner.operator]),
    ):
        number = _number(bare(written))
        if number is not None and _number(bare(side)) is None:
            return Comparison(side, operator, number, number_is_left=written is inner.left)
    return None


def impossible(policies: PolicySet, source: Source) -> Iterator[Doubt]:
    """Yield the policies that can never hold, and those that always give what is no use."""
    ad = source.within(policies.attributes)
    for definition in source.definitions:
        if fold(definition.name) in _CONDITIONS:
            yield from _never_holds(definition, ad)
        elif is_constant(definition.expression, ad.attributes):
            yield from _of_no_use(definition, evaluate(definition.expression, ad))


def _never_holds(definition: Definition, ad: Record) -> Iterator[Doubt]:
    clauses = list(Splitter(ad.attributes).clauses(definition.expression))
    for clause in clauses:
        if not is_constant(clause.node, ad.attributes):
            continue
        value = evaluate(clause.node, ad)
        if truth(value) is not True:
            alone = bare(clause.node) is bare(definition.expression)
            what = "it is" if alone else "this part is"
            shown = "a string, no condition" if isinstance(value, str) else value_text(value)
            message = f"{definition.name} can never hold: {what} always {shown}"
            yield Doubt(clause.node, message)
    yield from _contradictions(definition.name, clauses)


def _contradictions(policy: str, clauses: list[Clause]) -> Iterator[Doubt]:
    """Find numbers that cannot be above one bound and below the other."""
    seen: dict[str, list[Comparison]] = {}
    for clause in clauses:
        found = comparison(clause.node)
        if found is None:
            continue
        side = unparse(found.side)
        for earlier in seen.setdefault(fold(side), []):
            if not _together(earlier, found):
                both = f"{_shown(side, earlier)} and {_shown(side, found)}"
                yield Doubt(clause.node, f"{policy} can never hold: no host has {both}")
        seen[fold(side)].append(found)


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


def _shown(side: str, found: Comparison) -> str:
    return f"{side} {found.operator} {value_text(found.number)}"


def _of_no_use(definition: Definition, value: Value) -> Iterator[Doubt]:
    number = value if isinstance(value, int | float) else None
    said = f"{definition.name} is always {value_text(value)}"
    match fold(definition.name):
        case "concurrency" if number is None or number < 1:
            yield Doubt(definition.expression, f"{said}: no host would be given a job")
        case "deadline" if number is None or number <= 0:
            default = f"{DEFAULT_DEADLINE_SECONDS:.0f}"
            yield Doubt(definition.expression, f"{said}: the default of {default} s counts")
        case "rank" if number is None:
            yield Doubt(definition.expression, f"{said}: it counts as 0")


def _number(node: Node) -> int | float | None:
    match node:
        case nodes.Constant(bool()):
            return None
        case nodes.Constant(int() | float() as number):
            return number
        case nodes.Unary("-", nodes.Constant(int() | float() as number)) if number is not True:
            return -number
        case _:
            return None
