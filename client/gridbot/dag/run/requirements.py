"""Requirements and rank of a submit description, as a policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gridbot.dag.submit.errors import SubmitError
from gridbot_policies.classad import ParseError, parse

_WORD = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # a string
    r"|(?<![\w.])(?P<scope>(?:TARGET|MY)\s*\.\s*)?(?P<name>[A-Za-z_]\w*)\b(?!\s*[.(])",
    re.IGNORECASE,
)
_CONSTANTS = ("true", "false", "undefined", "error", "is", "isnt")


def policy_of(requirements: str, rank: str, attributes: Mapping[str, Any]) -> str:
    """The policy of a BOT whose jobs have these requirements.  Raises SubmitError.

    A name stands for the job's own attribute if it has one, and else for the host's.
    """
    lines = []
    if requirements.strip():
        lines.append(f"JobRequirements = {_of_host(requirements, attributes, 'requirements')};")
    if rank.strip() not in ("", "0"):
        lines.append(f"Rank = {_of_host(rank, attributes, 'rank')};")
    return " ".join(lines)


def _of_host(text: str, attributes: Mapping[str, Any], key: str) -> str:
    try:
        parse(text)
    except ParseError as error:
        raise SubmitError(f"{key}: {error}") from None
    own = {name.casefold(): value for name, value in attributes.items()}

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None or name.casefold() in _CONSTANTS:
            return found[0]
        scope = (found["scope"] or "").upper()
        if scope.startswith("MY") or (not scope and name.casefold() in own):
            value = own.get(name.casefold())
            return "undefined" if value is None else _literal(value)
        return f"Host.{name}"

    return _WORD.sub(replaced, text)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
