"""An evaluation with all its steps: the value of every sub-expression that was looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gridbot_policies.classad import nodes
from gridbot_policies.classad.evaluate import (
    DEFAULT_LIMITS,
    HANDLERS,
    Evaluation,
    Failure,
    Limits,
    evaluate,
)
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.operators import truth
from gridbot_policies.classad.source import brief
from gridbot_policies.classad.values import ERROR, Missing, Record, Value
from gridbot_policies.policy.clauses import bare

# Steps that are kept, and how deep; what an expression does beyond is done, but not shown.
MAX_STEPS = 1_000
MAX_NESTING = 100
MAX_SHOWN = 200  # characters of one value


@dataclass(slots=True)
class Traced:
    """One sub-expression, the value that it had there, and what went into it, in order.

    An attribute that stands for an expression has that expression below it. Parts that were not
    looked at, such as the right side of `false && …`, are not there; nor are constants.
    """

    node: Node
    value: Value = ERROR
    children: list[Traced] = field(default_factory=list)
    decisive: bool = False  # made the whole what it is, where that does not hold

    def walk(self) -> Iterator[Traced]:
        """Yield this and all below it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()

    def document(self, shown: Callable[[Node], str]) -> dict[str, Any]:
        """Return it as JSON has it; `shown` gives the text of a node."""
        return {
            "text": shown(self.node),
            "value": value_text(self.value),
            "decisive": self.decisive,
            "parts": [child.document(shown) for child in self.children],
        }


def trace(
    expression: Node,
    scope: Record | None = None,
    *,
    now: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Traced:
    """Evaluate as `classad.evaluate` does, and return what it looked at on the way. Never raises.

    Where the whole is false, undefined or an error, the part that made it so is marked decisive.
    """
    # Looking at each link of a chain takes up to three steps instead of one.
    tracer = _Tracer(scope, now, replace(limits, steps=3 * limits.steps, depth=2 * limits.depth))
    whole = tracer.whole(expression, scope)
    whole.value = evaluate(expression, scope, now=now, limits=limits)
    for step in whole.walk():
        _tidy(step)
    _decisive(whole).decisive = whole.value is False or isinstance(whole.value, Missing)
    return whole


def value_text(value: Value) -> str:
    """Return a value as people write it, cut where it is long."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return brief(value, MAX_SHOWN)


class _Tracer(Evaluation):
    """The walking evaluator, writing down what it is asked for."""

    def __init__(self, scope: Record | None, now: float | None, limits: Limits) -> None:
        super().__init__(scope, now, limits, False, dict.fromkeys(HANDLERS, _kept))
        self._steps_of: list[Traced] = []  # the children of what is being evaluated
        self._kept = 0
        self._nesting = 0

    def whole(self, expression: Node, scope: Record | None) -> Traced:
        """Return the trace of an expression, as far as the budget goes."""
        step = Traced(expression)
        self._steps_of = step.children
        try:
            step.value = self._value(expression, scope, self.limits.depth)
        except (Failure, RecursionError):
            step.value = ERROR
        return step

    def kept(self, node: Node, scope: Record | None, depth: int) -> Value:
        """Return the value of `node`, and keep it. Raises Failure."""
        is_shown = self._kept < MAX_STEPS and self._nesting < MAX_NESTING
        if isinstance(node, nodes.Constant) or not is_shown:
            return HANDLERS[type(node)](self, node, scope, depth)
        self._kept += 1
        self._nesting += 1
        siblings, step = self._steps_of, Traced(node)
        siblings.append(step)
        self._steps_of = step.children
        step.value = self._value(node, scope, depth)
        self._steps_of = siblings
        self._nesting -= 1
        return step.value

    def _value(self, node: Node, scope: Record | None, depth: int) -> Value:
        if isinstance(node, nodes.Binary):
            return self._chain(node, scope, depth)
        return HANDLERS[type(node)](self, node, scope, depth)

    def _chain(self, node: Node, scope: Record | None, depth: int) -> Value:
        """Evaluate a + b + c, which the walker does in one go, so that a + b shows too.

        Each link is given to the walker with the value so far on its left. A chain of one
        operator stays flat: that is how people read it.
        """
        links: list[nodes.Binary] = []
        while isinstance(node, nodes.Binary):
            links.append(node)
            node = node.left
        value = self.kept(node, scope, depth)
        for link, outer in zip(reversed(links), [*links[-2::-1], None], strict=True):
            so_far = nodes.Binary(link.operator, nodes.Constant(value), link.right)
            value = HANDLERS[nodes.Binary](self, so_far, scope, depth)
            # Links nest as well, each in the next: a long chain of mixed operators stays flat.
            if outer and outer.operator != link.operator and self._kept < MAX_NESTING:
                self._kept += 1
                self._steps_of[:] = [Traced(link, value, self._steps_of[:])]
        return value


def _kept(run: Evaluation, node: Node, scope: Record | None, depth: int) -> Value:
    assert isinstance(run, _Tracer)
    return run.kept(node, scope, depth)


def _tidy(step: Traced) -> None:
    """Leave out what only leads to an ad, and what a pair of brackets repeats."""
    if isinstance(step.node, nodes.Parenthesis) and len(step.children) == 1:
        step.children = step.children[0].children
    step.children = [child for child in step.children if not _is_path(child)]


def _is_path(step: Traced) -> bool:
    return isinstance(step.value, Record) and isinstance(
        step.node, nodes.Attribute | nodes.Selection | nodes.Absolute
    )


def _decisive(whole: Traced) -> Traced:
    step = whole
    while cause := _cause(step):
        step = cause
    return step


def _cause(step: Traced) -> Traced | None:
    """Return the part that made a step false, undefined or an error; None if it did itself."""
    if isinstance(step.value, Missing):
        # Of `a ?: b` and `c ? a : b` the last part counts, of all others the first.
        return next((part for part in _by_weight(step) if part.value is step.value), None)
    if step.value is not False:
        return None
    false = [part for part in step.children if truth(part.value) is False]
    match bare(step.node):
        case nodes.Binary("&&"):
            return false[0] if false else None
        case nodes.Binary("||") | nodes.Attribute() | nodes.Selection():
            return false[0] if len(false) == len(step.children) == 1 else None
        case nodes.Conditional() | nodes.Elvis() as choice:
            last = step.children[-1:]
            return last[0] if last and last[0].node not in _tests(choice) else None
        case _:
            return None


def _by_weight(step: Traced) -> list[Traced]:
    last_counts = isinstance(bare(step.node), nodes.Elvis | nodes.Conditional)
    return step.children[::-1] if last_counts else step.children


def _tests(node: Node) -> list[Node]:
    tests = []
    while isinstance(node, nodes.Conditional):
        tests.append(node.test)
        node = node.otherwise
    return tests
