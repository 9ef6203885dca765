"""Figures for people, and the same for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .installation import CHECKOUT

Row = Mapping[str, Any]


_WIDTH = 160  # of a table that goes into a file


def _document(bench: str, rows: Sequence[Row]) -> str:
    return json.dumps({"bench": bench, "commit": commit(), "rows": rows})


def show(bench: str, rows: Sequence[Row], as_json: bool) -> None:
    """Print rows: one JSON document, or a table with a column per row and a line per figure."""
    if as_json:
        print(_document(bench, rows))
        return
    table = Table(title=f"{bench} (commit {commit()})", title_justify="left")
    flat = [dict(_flat(row)) for row in rows]
    table.add_column("")
    for row in flat:
        table.add_column(next(iter(row.values())), justify="right")
    for name in dict.fromkeys(name for row in flat for name in list(row)[1:]):
        table.add_row(name, *(row.get(name, "") for row in flat))
    Console().print(table)


def show_lines(
    bench: str, rows: Sequence[Row], as_json: bool, columns: Mapping[str, Sequence[str]]
) -> None:
    """Print rows as lines; each column has a heading, and the names that lead to its figure.

    A column that no row has a figure for is left out.
    """
    if as_json:
        print(_document(bench, rows))
        return
    title = f"{bench} (commit {commit()})"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    cells = {heading: [_cell(row, path) for row in rows] for heading, path in columns.items()}
    shown = {heading: column for heading, column in cells.items() if any(column)}
    for heading in shown:
        table.add_column(heading, justify="right")
    for line in zip(*shown.values(), strict=True):
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _cell(row: Row, path: Sequence[str]) -> str:
    found: Any = row
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None:
        return ""
    if path[-1].endswith("_share"):
        return f"{found:.0%}"
    if isinstance(found, Mapping):
        return text(found["median"]) + _within(found["least"], found["median"], found["most"])
    if len(path) == 1 and (spread := row.get("spread", {}).get(path[0])):
        return text(found) + _within(spread[0], found, spread[1])
    return text(found)


def _within(least: float, median: float, most: float) -> str:
    """How far the rounds lie apart: half of that, as a part of their median."""
    return f" ±{(most - least) / 2 / median:.0%}" if least < most else ""


def _flat(row: Row, prefix: str = "") -> list[tuple[str, str]]:
    """Every figure with its name in words, those of a part under the part's name."""
    found = []
    for key, value in row.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        found += _flat(value, f"{name}: ") if isinstance(value, Mapping) else [(name, text(value))]
    return found


def text(value: object) -> str:
    """A figure as people read it: three digits that mean something, thousands set apart."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def commit() -> str:
    """The commit that was measured, marked when files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    return ended.stdout.strip() or "unknown"
