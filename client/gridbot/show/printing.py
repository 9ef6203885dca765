"""Text from strangers made safe to show: on a terminal and in a table."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gridbot.api.items import is_number

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_UNSAFE = re.compile(r"[^\x20-\x7e]")


def printable(text: str, keep: str = "") -> str:
    """The text with control characters written as escapes, except those in `keep`.

    What a job printed may hold sequences that would move the cursor or rename the window, or
    turn the direction of writing.
    """
    return _UNSAFE.sub(lambda match: _shown(match[0], keep), text)


def first_line(text: str, most: int = 60) -> str:
    """The first line that says something, cut to fit."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return cut(printable(line.strip()), most)


def cut(text: str, most: int) -> str:
    """The text, or its beginning if it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, noun: str) -> str:
    """The number with its noun, whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def csv_cell(text: str) -> str:
    """The text such that no spreadsheet takes it for a formula; numbers stay numbers."""
    return f"'{text}" if text.startswith(_FORMULA) and not is_number(text) else text


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as they need; numbers to the right."""
    cells = [[*header], *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [all(is_number(cell) for cell in column[1:]) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )


def json_document(number: int, name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One JSON document about a BOT, in parts, so that a million rows need no memory."""
    yield f'{{"id": {number}, "{name}": ['
    separator = "\n"
    for row in rows:
        yield separator + json.dumps(row)
        separator = ",\n"
    yield "\n]}\n"


def _shown(char: str, keep: str) -> str:
    if char in keep or unicodedata.category(char)[0] not in "CZ":
        return char
    return char.encode("unicode_escape").decode()
