"""Gives jobs the confirmed outcomes that their very derivations have already."""

from __future__ import annotations

from typing import NamedTuple

from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import NO_GRID, Counters
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import encode, fetch, fetch_one, fetch_values

SQL = sql.load("reuse.sql")
CYCLES = sql.load("cycles.sql")
EVENTS = sql.load("assurance.sql")

# Of a BOT without an Assurance of its own, among strangers (`matching/assurance.py`).
_USUAL_ASSURANCE = 0.999


class _Reusing(NamedTuple):
    """A BOT that asks for it; the transaction holds its row and its owner's."""

    derivation: bytes
    owner: int
    size: int
    among_strangers: bool


class _Unseen(NamedTuple):
    """Outcomes of a BOT that are not entered by their keys."""

    bot: int
    seen: int
    upto: int


class _Numbered(NamedTuple):
    """The last number that a BOT had given to an outcome, or to an event."""

    bot: int
    last: int


def reuse(conn: PostgresConnection, bot: int, first: int, counters: Counters) -> int:
    """Give the jobs of a BOT from a number on, which nobody has seen, the outcomes that are there.

    Return how many.  Nothing unless the BOT asks for it.
    """
    found = fetch_one(conn, _Reusing, SQL["reuses"], {"bot": bot})
    if found is None or first >= found.size:
        return 0
    _enter(conn, found.derivation)
    jobs = {"bot": bot, "first": first, "end": found.size, "owner": found.owner}
    wanted = {**jobs, "derivation": found.derivation, "usual": _USUAL_ASSURANCE}
    conn.execute(SQL["find"], wanted)
    hashes = fetch_values(conn, bytes, SQL["hold_files"], jobs)
    conn.execute(SQL["drop_incomplete"], {**jobs, "hashes": hashes})
    count = len(fetch_values(conn, int, moves.SQL["copy_answers"], jobs))
    if count:
        conn.execute(SQL["copy_outputs"], jobs)
        conn.execute(SQL["count_reused"], {"bot": bot, "jobs": count})
        _give_outcomes(conn, bot, jobs, count, counters)
        if found.among_strangers:
            _tell(conn, bot, jobs, count)
    return count


def _enter(conn: PostgresConnection, derivation: bytes) -> None:
    """Enter the outcomes of a derivation by their keys; each once."""
    for item in fetch(conn, _Unseen, SQL["unseen"], {"derivation": derivation}):
        conn.execute(SQL["enter"], {**item._asdict(), "derivation": derivation})
        conn.execute(SQL["mark_seen"], {"bot": item.bot, "upto": item.upto})


def _give_outcomes(
    conn: PostgresConnection, bot: int, jobs: dict[str, int], count: int, counters: Counters
) -> None:
    told = encode([{"bot": bot, "done": count, "failed": 0}])
    (numbered,) = fetch(conn, _Numbered, CYCLES["number_outcomes"], {"bots": told})
    conn.execute(SQL["give_outcomes"], {**jobs, "last": numbered.last})
    conn.execute(CYCLES["end_bots"], {"bots": [bot]})
    counters.add(bot, "sent_first", count)
    counters.add(bot, "withheld", count)
    counters.add(bot, "back", count)
    counters.note(bot, NO_GRID, "done", count)


def _tell(conn: PostgresConnection, bot: int, jobs: dict[str, int], count: int) -> None:
    """Number the events of these outcomes."""
    told = encode([{"bot": bot, "events": count, "provisional": 0, "doubt": 0.0}])
    (numbered,) = fetch(conn, _Numbered, EVENTS["number_events"], {"bots": told})
    conn.execute(SQL["give_events"], {**jobs, "last": numbered.last})
