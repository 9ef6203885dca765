"""Evaluates a policy or an expression on given ads, with the value of every sub-expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gridbot.api.policy import policy_error
from gridbot.printing import cut
from gridbot.show.context import EvaluationContext
from gridbot_client.terminal import printable
from gridbot_policies import PolicySet, SemanticError
from gridbot_policies.classad import ParseError
from gridbot_policies.classad.nodes import Node
from gridbot_policies.classad.source import Source
from gridbot_policies.explain.trace import Traced, trace, value_text
from gridbot_policies.policy.policy_set import DEFAULTS

# GridPolicy is evaluated on a grid's ad, not on a host's.
_TRIED = tuple(name for name in DEFAULTS if name != "GridPolicy")
_NARROWEST = 24  # characters of text on any terminal


@dataclass(frozen=True)
class Trial:
    """A policy or an expression, evaluated; `is_default` where the text does not define it."""

    name: str
    traced: Traced
    shown: Callable[[Node], str]
    is_default: bool = False

    def document(self) -> dict[str, Any]:
        """Trial as a JSON document."""
        whole = self.traced.document(self.shown)
        return {"name": self.name, "default": self.is_default, **whole}


def try_text(text: str, context: EvaluationContext, now: float, file: str | None) -> list[Trial]:
    """Evaluate all policies of a text, or the text as one expression.  Raises PolicyError.

    Text from a `file` is always read as a policy.
    """
    try:
        if file is None and (expression := _as_expression(text)):
            return [_try_expression(expression, context, now)]
        return list(_try_policies(text, context, now))
    except (ParseError, SemanticError) as error:
        raise policy_error(error, text, file or "expression") from None


def _as_expression(text: str) -> Source | None:
    try:
        return Source.of_expression(text)
    except ParseError:
        Source.of_definitions(text) if _defines(text) else Source.of_expression(text)
        return None


def _defines(text: str) -> bool:
    """True if a text looks like a definition, `Name = …`."""
    name, equals, rest = text.partition("=")
    return bool(equals) and name.strip(" [\n\t").isidentifier() and rest[:1] not in ("=", "?", "!")


def _try_expression(source: Source, context: EvaluationContext, now: float) -> Trial:
    assert source.expression is not None
    scope = PolicySet.parse(context.policy).attributes.within(context.ads(now).scope)
    traced = trace(source.expression, scope, now=now)
    return Trial("expression", traced, source.shown)


def _try_policies(text: str, context: EvaluationContext, now: float) -> Iterator[Trial]:
    policies = PolicySet.parse(text)
    source, own = Source.aligned(text, policies.definitions), policies.attributes
    defined = {definition.name.lower() for definition in source.definitions}
    for name in _TRIED:
        seen = context.without_host() if name == "ReplicationRequirements" else context
        node = own.get(name)
        assert isinstance(node, Node)
        traced = trace(node, own.within(seen.ads(now).scope), now=now)
        yield Trial(name, traced, source.shown, name.lower() not in defined)


def trial_page(trials: Sequence[Trial], width: int) -> str:
    """Tree of sub-expressions, each with its value."""
    rows = [row for trial in trials for row in _rows(trial)]
    widest = min(max(len(value) for _, value, _ in rows), max(8, width // 3))
    room = max(_NARROWEST, width - widest - 2)
    room = min(room, max(len(text) for text, _, _ in rows))
    return "\n".join(_line(row, room, widest) for row in rows)


def _rows(trial: Trial) -> Iterator[tuple[str, str, bool]]:
    name = f"{trial.name} (default)" if trial.is_default else trial.name
    whole = trial.traced
    yield name, value_text(whole.value), whole.decisive and trial.is_default
    if not trial.is_default:
        yield from _steps(whole, trial.shown, depth=1)


def _steps(
    step: Traced, shown: Callable[[Node], str], depth: int
) -> Iterator[tuple[str, str, bool]]:
    yield f"{'  ' * depth}{shown(step.node)}", value_text(step.value), step.decisive
    for child in step.children:
        yield from _steps(child, shown, depth + 1)


def _line(row: tuple[str, str, bool], room: int, widest: int) -> str:
    text, value, decisive = row
    line = f"{cut(printable(text), room):<{room}}  {cut(printable(value), widest)}"
    return click.style(f"{line}  <- decides", fg="red") if decisive else line
