"""Figures for people, and the same for programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .installation import SCRIPTS

Row = Mapping[str, Any]


def show(bench: str, rows: Sequence[Row], as_json: bool) -> None:
    """Print rows: one JSON document, or a table with a column per row and a line per figure."""
    if as_json:
        print(json.dumps({"bench": bench, "commit": commit(), "rows": rows}))
        return
    table = Table(title=f"{bench} (commit {commit()})", title_justify="left")
    flat = [dict(_flat(row)) for row in rows]
    table.add_column("")
    for row in flat:
        table.add_column(next(iter(row.values())), justify="right")
    for name in dict.fromkeys(name for row in flat for name in list(row)[1:]):
        table.add_row(name, *(row.get(name, "") for row in flat))
    Console().print(table)


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
    ended = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True)
    return ended.stdout.strip() or "unknown"
