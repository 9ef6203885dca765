"""Reads a policy and checks it before it is sent, by the server's own rules."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

import gridbot_policies
from gridbot.api.errors import BadInput, PolicyError
from gridbot.api.findings import finding_page
from gridbot_policies.classad import ParseError
from gridbot_policies.lint.check import refusal
from gridbot_policies.policy import priority as priorities


def read_policy(policy: str | Path) -> str:
    """Text of a policy, or of the file that holds it.

    Raises BadInput if the file cannot be read, PolicyError if the server would refuse the text.
    """
    if isinstance(policy, str):
        if policy.endswith(".ad") and policy.split() == [policy]:
            raise BadInput(
                f"policy {policy!r} is a text, not a file; for the file: Path({policy!r})"
            )
        text, name = policy, "policy"
    else:
        text, name = _content(policy), str(policy)
    try:
        gridbot_policies.PolicySet.parse(text)
    except (ParseError, gridbot_policies.SemanticError) as error:
        raise policy_error(error, text, name) from None
    return text


def with_priority(policy: str, priority: int) -> str:
    """The policy with `Rank = priority` at its head.

    Raises BadInput if the policy says a Rank of its own.
    """
    try:
        return priorities.with_priority(policy, priority)
    except priorities.NoPlace as error:
        raise BadInput(str(error)) from None


def policy_error(
    error: ParseError | gridbot_policies.SemanticError, text: str, name: str
) -> PolicyError:
    """Error in the form of `gridbot policy check`; `name` stands for the text in the message."""
    page = finding_page(name, refusal(text, error), shutil.get_terminal_size().columns)
    return PolicyError(str(error), click.unstyle(page))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"policy {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"policy {path}: not UTF-8 text") from None
