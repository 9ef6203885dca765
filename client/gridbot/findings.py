"""Shows what is wrong in a text: the place, the line with a caret, within the terminal."""

from __future__ import annotations

import textwrap

import click

from gridbot.printing import printable
from gridbot_policies.check import Finding

_COLOURS = {"error": "red", "warning": "yellow"}
_INDENT = "  "


def finding_page(name: str, finding: Finding, width: int) -> str:
    """`FILE:LINE:COLUMN: error: …`, the line, and a caret under the place."""
    severity = click.style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
    place = f"{printable(name)}:{finding.line}:{finding.column}:"
    message = textwrap.fill(
        f"{place} {finding.severity}: {printable(finding.message)}",
        max(20, width),
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(finding.severity, severity, 1)
    return "\n".join((message, *_place(finding, max(20, width) - len(_INDENT))))


def _place(finding: Finding, room: int) -> tuple[str, str]:
    """The part of the line around the place, and the caret."""
    line = "".join(char if char.isprintable() else " " for char in finding.source)
    column = finding.column - 1
    first = max(0, column - room + min(10, room // 2)) if len(line) > room else 0
    return f"{_INDENT}{line[first : first + room]}", f"{_INDENT}{' ' * (column - first)}^"
