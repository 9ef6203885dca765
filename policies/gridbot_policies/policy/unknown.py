"""Evaluation where some attributes are not known: what depends on one of them has no value."""

from __future__ import annotations

from dataclasses import dataclass

from gridbot_policies.classad import Node, Record
from gridbot_policies.classad.evaluate import HANDLERS, Evaluation, Failure, Limits
from gridbot_policies.classad.nodes import Attribute
from gridbot_policies.classad.values import Value


@dataclass(frozen=True, slots=True)
class Unknown(Attribute):
    """Stands where an ad or an attribute will be: to look at it ends the evaluation."""


class _Asked(Exception):
    """The value depends on what is not known."""


def _ask(_run: Evaluation, _node: Unknown, _scope: Record | None, _depth: int) -> Value:
    raise _Asked


_HANDLERS = {**HANDLERS, Unknown: _ask}


class Attempt:
    """Evaluations in one scope that share one budget."""

    def __init__(self, scope: Record, now: float | None, limits: Limits) -> None:
        self._scope = scope
        self._run = Evaluation(scope, now, limits, False, _HANDLERS)

    def value(self, expression: Node, exhausted: Value | None = None) -> Value | None:
        """Return the value, None if it depends on what is unknown. Never raises.

        `exhausted` is returned where the budget does not suffice.
        """
        handler = self._run.handlers[type(expression)]
        try:
            return handler(self._run, expression, self._scope, self._run.limits.depth)
        except _Asked:
            value = None
        except (Failure, RecursionError):
            value = exhausted
        self._run.busy.clear()
        return value
