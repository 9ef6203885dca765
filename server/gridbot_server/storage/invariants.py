"""What must be true of the database whatever was killed; `sql/invariants.sql` says it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import rows_by_name

EXAMPLES = 20

_IDLE = b"-- idle\n"  # in a query: it holds only while nothing is left for the daemons to do
_TOTAL = "violations"  # the column with the number of all rows


class NotChecked(Exception):
    """An invariant could not be checked; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, and some of the rows that break it."""

    name: str
    count: int  # of all rows
    examples: Sequence[Mapping[str, Any]]  # column -> value; EXAMPLES of the rows at most

    def __str__(self) -> str:
        # As JSON, because the values may be hosts' own texts, made for a terminal.
        rows = (json.dumps(example, default=str) for example in self.examples)
        return "\n  ".join([f"{self.name}: {self.count} broken by", *rows])


def check(conn: Connection, *, idle: bool, tell: Callable[[str], object] = str) -> list[Violation]:
    """Return what does not hold, all in one read-only snapshot.

    `idle` says that the daemons have nothing left to do. `tell` is given a line of text before
    each query. Raises NotChecked.
    """
    found, listed = [], queries(idle)
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for place, (name, query) in enumerate(listed, 1):
            tell(f"{place} of {len(listed)}: {name}")
            try:
                rows = rows_by_name(conn, query)
            except psycopg.Error as error:
                raise NotChecked(f"{name} could not be checked: {error}") from None
            if rows:
                count = int(rows[0][_TOTAL])
                found.append(Violation(name, count, [_example(row) for row in rows]))
    return found


def queries(idle: bool) -> list[tuple[str, bytes]]:
    """Return the invariants' names and queries; with `idle` those that need it too."""
    listed = sql.load("invariants.sql").items()
    return [(name, _counted(text)) for name, text in listed if idle or not text.startswith(_IDLE)]


def _counted(text: bytes) -> bytes:
    """Some of the rows, each with the number of all."""
    total = b"SELECT count(*) OVER () AS %b, found.* FROM (\n%b\n) AS found LIMIT %d"
    return total % (_TOTAL.encode(), text.removesuffix(b";"), EXAMPLES)


def _example(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != _TOTAL}
