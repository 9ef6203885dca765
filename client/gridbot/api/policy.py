"""Reads a policy and checks it here, before anything is sent, as the server will check it there."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

import gridbot_policies
from gridbot.api.errors import BadInput, PolicyError
from gridbot.show.findings import finding_page
from gridbot_policies.classad import ParseError
from gridbot_policies.lint.check import refusal


def read_policy(policy: str | Path) -> str:
    """The text of a policy or of a file with one.

    Raises BadInput, and PolicyError for what the server would refuse.
    """
    if isinstance(policy, str):
        text, name = policy, "policy"
    else:
        text, name = _content(policy), str(policy)
    try:
        gridbot_policies.PolicySet.parse(text)
    except (ParseError, gridbot_policies.PolicyError) as error:
        raise policy_error(error, text, name) from None
    return text


def policy_error(
    error: ParseError | gridbot_policies.PolicyError, text: str, name: str
) -> PolicyError:
    """The error that shows the place as `gridbot policy check` does; `name` is the text's."""
    page = finding_page(name, refusal(text, error), shutil.get_terminal_size().columns)
    return PolicyError(str(error), click.unstyle(page))


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"policy {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"policy {path}: is not UTF-8 text") from None
