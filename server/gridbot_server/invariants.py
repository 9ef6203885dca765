"""What must be true of the database whatever was killed; `sql/invariants.sql` says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gridbot_server import sql
from gridbot_server.db import Connection

_QUIET = b"-- quiet\n"  # in a query: it holds only while nothing is left for the daemons to do


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold, and some of the rows that break it."""

    name: str
    rows: Sequence[Any]

    def __str__(self) -> str:
        return "\n  ".join([f"{self.name}: broken by", *map(str, self.rows)])


def check(conn: Connection, *, quiet: bool) -> list[Violation]:
    """Return what does not hold, all in one snapshot; `quiet` says that the daemons are idle."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = [Violation(name, conn.execute(text).fetchall()) for name, text in queries(quiet)]
    return [violation for violation in found if violation.rows]


def queries(quiet: bool) -> list[tuple[str, bytes]]:
    """Return the invariants' names and queries; with `quiet` those that need it too."""
    listed = sql.load("invariants.sql").items()
    return [(name, text) for name, text in listed if quiet or not text.startswith(_QUIET)]
