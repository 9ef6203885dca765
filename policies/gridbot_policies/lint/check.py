"""A policy text looked over before it is sent: what is wrong with it, and what looks wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

from gridbot_policies.classad.lexer import ParseError, line_and_column
from gridbot_policies.classad.source import Source
from gridbot_policies.lint.doubts import doubts
from gridbot_policies.lint.impossible import impossible
from gridbot_policies.policy.hints import MOST
from gridbot_policies.policy.policy_set import PolicySet, SemanticError

_PLACE = re.compile(r"^line \d+, column \d+: ")


@dataclass(frozen=True, slots=True)
class Finding:
    """An error, with which the policy is refused, or a warning; line and column count from 1."""

    severity: Literal["error", "warning"]
    message: str
    line: int
    column: int
    source: str  # the line of the text

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def check(text: str) -> list[Finding]:
    """Return what is to be said of a policy text, in the order of its lines; [] is good."""
    try:
        policies = PolicySet.parse(text)
    except (ParseError, SemanticError) as error:
        return [refusal(text, error)]
    return sorted(_warnings(policies), key=lambda found: (found.line, found.column))


def refusal(text: str, error: ParseError | SemanticError) -> Finding:
    """Return what was raised about a text as a finding."""
    return _finding("error", text, error.offset, _PLACE.sub("", str(error)))


def warnings(policies: PolicySet) -> list[str]:
    """Return what is legal in the policies but hardly meant, each with its place."""
    found = sorted(_warnings(policies), key=lambda finding: (finding.line, finding.column))
    return [f"line {item.line}, column {item.column}: {item.message}" for item in found]


def _warnings(policies: PolicySet) -> Iterator[Finding]:
    text = policies.text
    source = Source.aligned(text, policies.definitions)
    doubted = dict[int, set[str]]()
    for doubt in islice(doubts(source), MOST):
        doubted.setdefault(source.offset(doubt.node), set()).add(doubt.message)
    for doubt in islice(impossible(policies, source), MOST):
        # What can never hold because of a wrong name or call is said already.
        doubted.setdefault(source.offset(doubt.node), {doubt.message})
    for offset, messages in doubted.items():
        yield from (_finding("warning", text, offset, message) for message in sorted(messages))


def _finding(
    severity: Literal["error", "warning"], text: str, offset: int, message: str
) -> Finding:
    line, column = line_and_column(text, offset)
    source = text.split("\n")[line - 1].rstrip("\r")
    return Finding(severity, message, line, column, source)
