"""Escapes untrusted text for terminals and spreadsheets; formats tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gridbot_client.terminal import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_REAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def first_line(text: str, most: int = 60) -> str:
    """First line that is not blank, cut to `most` characters."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return cut(printable(line.strip()), most)


def cut(text: str, most: int) -> str:
    """Text, cut to `most` characters with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, noun: str) -> str:
    """Number and noun, such as `1 job` or `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def is_number(text: str) -> bool:
    """True if the text is a decimal number, integer or real."""
    return _REAL.fullmatch(text) is not None


def csv_cell(text: str) -> str:
    """Text escaped so that no spreadsheet reads it as a formula; numbers are unchanged."""
    return f"'{text}" if text.startswith(_FORMULA) and not is_number(text) else text


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Table with columns as wide as their content; columns of numbers are right-aligned."""
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
    """Yield one JSON document about a BOT in parts; memory does not grow with the rows."""
    yield f'{{"id": {number}, "{name}": ['
    separator = "\n"
    for row in rows:
        yield separator + json.dumps(row)
        separator = ",\n"
    yield "\n]}\n"
