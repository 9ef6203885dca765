"""Reads the history as curves: one list of times, and as many values for each thing counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, get_args

from gridbot_server.history.steps import Span, Sums, pieces
from gridbot_server.storage import sql
from gridbot_server.storage.counters import Happening
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import encode, fetch, fetch_only, fetch_only_value, read_one

SQL = sql.load("history.sql")

ALL = 0  # the BOT that is the sum of all
HAPPENINGS: Sequence[Happening] = get_args(Happening)

Curve = list[float]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose BOT it is or was; deleted ones have a history, too."""

    owner: int
    name: str
    created_at: datetime
    ended_at: datetime | None
    jobs_left: int


class _Sums(NamedTuple):
    now: float
    hours: int
    days: int


class _Failures(NamedTuple):
    """Replicas that failed in a step, on a grid, for a reason."""

    at: int
    grid: str
    reason: str
    errors: int


class _Figure(NamedTuple):
    """A figure of the server's in a step."""

    at: int
    name: str
    label: str
    value: float


def subject(conn: PostgresConnection, bot: int) -> Subject | None:
    """Return whose BOT that is or was."""
    return read_one(conn, Subject, SQL["whose"], {"bot": bot})


def sums(conn: PostgresConnection) -> Sums:
    """Return until when longer steps are made, and the time."""
    return Sums(*fetch_only(conn, _Sums, SQL["sums"]))


def of_bot(
    conn: PostgresConnection, bot: int, wanted: Span, made: Sums
) -> dict[str, dict[Happening, Curve]]:
    """Return by grid what happened to a BOT, or to all."""
    found: dict[str, dict[Happening, Curve]] = {}
    places = {at: place for place, at in enumerate(wanted.times)}
    with conn.cursor() as cursor:
        for at, grid, *values in cursor.execute(SQL["bot"], _values(bot, wanted, made)):
            if grid not in found:
                found[grid] = {what: [0] * len(places) for what in HAPPENINGS}
            for what, value in zip(HAPPENINGS, values, strict=True):
                found[grid][what][places[at]] = value
    return found


def failures(
    conn: PostgresConnection, bot: int, wanted: Span, made: Sums
) -> Mapping[tuple[str, str], list[int]]:
    """Return how many replicas of a BOT failed, by reason and grid."""
    places = {at: place for place, at in enumerate(wanted.times)}
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(places))
    for item in fetch(conn, _Failures, SQL["failures"], _values(bot, wanted, made)):
        found[item.reason, item.grid][places[item.at]] = item.errors
    return found


def left(
    conn: PostgresConnection,
    bot: int,
    jobs_left: int,
    wanted: Span,
    made: Sums,
    grids: Mapping[str, Mapping[Happening, Curve]],
) -> list[int]:
    """Return how many jobs had no outcome at the end of each step; now it is `jobs_left`."""
    later = Span(wanted.end, max(wanted.end, int(made.now) + 1), wanted.step)
    if later.times:  # the curve ends before now
        values = _values(bot, later, made)
        jobs_left += fetch_only_value(conn, int, SQL["finished_since"], values)
    found = []
    for place in reversed(range(len(wanted.times))):
        found.append(jobs_left)
        for curves in grids.values():
            finished = curves["done"][place] + curves["failed"][place]
            jobs_left += int(finished - curves["retried"][place] - curves["added"][place])
    return found[::-1]


def of_server(
    conn: PostgresConnection, wanted: Span, made: Sums
) -> Mapping[tuple[str, str], list[float | None]]:
    """Return the server's own figures by name and label; None where nobody looked."""
    places = {at: place for place, at in enumerate(wanted.times)}
    found: dict[tuple[str, str], list[float | None]] = defaultdict(lambda: [None] * len(places))
    values = {"step": wanted.step, "pieces": _pieces(wanted, made)}
    for item in fetch(conn, _Figure, SQL["server"], values):
        found[item.name, item.label][places[item.at]] = item.value
    return found


def _values(bot: int, wanted: Span, made: Sums) -> dict[str, object]:
    return {"bot": bot, "step": wanted.step, "pieces": _pieces(wanted, made)}


def _pieces(wanted: Span, made: Sums) -> str:
    return encode([piece._asdict() for piece in pieces(wanted, made)])
