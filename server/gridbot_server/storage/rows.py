"""Rows on their way into PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable

import orjson


def encode(rows: object) -> str:
    """Rows as the JSON that `json_to_recordset` reads: the cheapest way into PostgreSQL."""
    return orjson.dumps(rows).decode()


def array(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL writes an array; psycopg's own way takes ten times as long."""
    return "{" + ",".join(map(str, numbers)) + "}"
