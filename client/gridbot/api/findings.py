"""Text output of one finding in a policy: message, source line and a caret under the place."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from gridbot_client.terminal import printable
from gridbot_policies.lint.check import Finding

_COLOURS = {"error": "red", "warning": "yellow"}
_INDENT = "  "
_BEFORE, _AFTER = 4, 1  # pieces of a wrapped line that are shown around the place


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
    # The caret may stand behind the last character.
    return "\n".join((message, *_place(finding, max(20, width) - len(_INDENT) - 1)))


def _place(finding: Finding, room: int) -> Iterator[str]:
    """Wrapped source line with a caret below the place; a long line is cut around it."""
    line = "".join(char if char.isprintable() else " " for char in finding.source)
    column = finding.column - 1
    pieces = list(_pieces(line, room))
    here = max(n for n, (start, _) in enumerate(pieces) if start <= column)
    shown = [f"{_INDENT}{piece}".rstrip() for _, piece in pieces]
    yield from shown[max(0, here - _BEFORE) : here + 1]
    yield f"{_INDENT}{' ' * (column - pieces[here][0])}^"
    yield from shown[here + 1 : here + 1 + _AFTER]


def _pieces(line: str, room: int) -> Iterator[tuple[int, str]]:
    """Split a line at blanks into pieces of at most `room`; yield (start, piece)."""
    start = 0
    while len(line) - start > room:
        blank = line.rfind(" ", start + 1, start + room + 1)
        end = start + room if blank < 0 else blank + 1
        yield start, line[start:end]
        start = end
    yield start, line[start:]
