"""Rows on their way into PostgreSQL, and named and typed on their way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import orjson

from gridbot_server.storage.db import Connection, PostgresConnection, Rows

# The shape of a row: a NamedTuple whose fields are the columns of its query, in order.
T = TypeVar("T", bound=NamedTuple)
V = TypeVar("V")
M = TypeVar("M")


def fetch(
    conn: Connection, shape: type[T], query: bytes, values: Mapping[str, Any] | None = None
) -> list[T]:
    """Run a query; return its rows in their shape."""
    found = conn.execute(query, values)
    _compare_names(shape, query, found)
    return list(map(shape._make, found.fetchall()))


def fetch_one(
    conn: Connection, shape: type[T], query: bytes, values: Mapping[str, Any] | None = None
) -> T | None:
    """Run a query; return its first row in its shape, None if there is none."""
    found = conn.execute(query, values)
    _compare_names(shape, query, found)
    row = found.fetchone()
    return None if row is None else shape._make(row)


def fetch_only(
    conn: Connection, shape: type[T], query: bytes, values: Mapping[str, Any] | None = None
) -> T:
    """Run a query that always gives a row, such as an aggregate; return that."""
    row = fetch_one(conn, shape, query, values)
    assert row is not None, "the query gives a row whatever the database holds"
    return row


def fetch_values(
    conn: Connection, kind: type[V], query: bytes, values: Mapping[str, Any] | None = None
) -> list[V]:
    """Run a query of one column, of one kind of values; return that column."""
    return [_value(row, kind) for row in conn.execute(query, values).fetchall()]


def fetch_value(
    conn: Connection, kind: type[V], query: bytes, values: Mapping[str, Any] | None = None
) -> V | None:
    """Run a query of one column; return its value in the first row, None if there is no row."""
    row = conn.execute(query, values).fetchone()
    return None if row is None else _value(row, kind)


def fetch_only_value(
    conn: Connection, kind: type[V], query: bytes, values: Mapping[str, Any] | None = None
) -> V:
    """Run a query of one column that always gives a row; return that value."""
    value = fetch_value(conn, kind, query, values)
    assert value is not None, "the query gives a row whatever the database holds"
    return value


def fetch_mapping(
    conn: Connection, query: bytes, values: Mapping[str, Any] | None = None
) -> dict[Any, Any]:
    """Run a query of two columns; return the second by the first."""
    return dict(conn.execute(query, values).fetchall())


def read(
    conn: Connection, model: type[M], query: bytes, values: Mapping[str, Any] | None = None
) -> list[M]:
    """Run a query; return a model of each row, made from its columns by their names.

    For what is answered, not for each of thousands of requests: each row becomes a dict first.
    """
    return [model(**row) for row in rows_by_name(conn, query, values)]


def rows_by_name(
    conn: Connection, query: bytes, values: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Run a query; return its rows as values by the names of its columns."""
    found = conn.execute(query, values)
    names = _names(found)
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def read_one(
    conn: Connection, model: type[M], query: bytes, values: Mapping[str, Any] | None = None
) -> M | None:
    """Run a query; return a model of its first row, None if there is none."""
    found = rows_by_name(conn, query, values)
    return model(**found[0]) if found else None


def has_row(conn: Connection, query: bytes, values: Mapping[str, Any] | None = None) -> bool:
    """Run a query; return whether it gives any row."""
    return conn.execute(query, values).fetchone() is not None


def stream(
    conn: PostgresConnection, shape: type[T], name: str, query: bytes, at_once: int
) -> Iterator[T]:
    """Run a query in a cursor of that name on the server; yield its rows, `at_once` in memory."""
    with conn.cursor(name) as cursor:
        cursor.itersize = at_once
        found = cursor.execute(query)
        _compare_names(shape, query, found)
        yield from map(shape._make, found)


def _value(row: tuple[Any, ...], kind: type[V]) -> V:
    (value,) = row
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


_fitting: set[tuple[type, bytes]] = set()  # shapes and queries that were found to fit


def _compare_names(shape: type[NamedTuple], query: bytes, found: Rows) -> None:
    """Raise TypeError for a query with other columns than a shape's, or in another order.

    Once for each query of a process: that costs a request nothing.
    """
    if (shape, query) in _fitting or found.description is None:
        return
    if (columns := _names(found)) != shape._fields:
        raise TypeError(f"{shape.__name__} is not the shape of columns {columns}")
    _fitting.add((shape, query))


def _names(found: Rows) -> tuple[str, ...]:
    return tuple(column.name for column in found.description or ())


class JobId(NamedTuple):
    """Names a job."""

    bot: int
    seq: int


class JobTexts(NamedTuple):
    """A job's arguments and inputs, as JSON texts, and the proof of its signature.

    `proof` is base64; empty for jobs of a range and of BOTs that are not signed.
    """

    bot: int
    seq: int
    args: str
    inputs: str
    proof: str = ""


def encode(rows: object) -> str:
    """Rows as the JSON that `json_to_recordset` reads: the cheapest way into PostgreSQL."""
    return orjson.dumps(rows).decode()


def array(numbers: Iterable[int]) -> str:
    """Numbers as PostgreSQL writes an array; psycopg's own way takes ten times as long."""
    return "{" + ",".join(map(str, numbers)) + "}"
