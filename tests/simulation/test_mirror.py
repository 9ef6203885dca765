"""Claims about the tables in memory beside PostgreSQL, under faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from gridbot_server.storage import db
from gridbot_simulator.nemesis.mirror import MirroredStore, faults_of, make_database
from gridbot_simulator.nemesis.points import Points
from gridbot_simulator.nemesis.store import STATEMENTS
from gridbot_simulator.nemesis.story import SeedVerdict, Story, live
from gridbot_simulator.store.tables import Tables

SEEDS = range(1, 21)
DATABASE = "mirror"

_STRANGERS = "all hosts are trusted by the BOT's owner"
NOT_SEEN = {
    "bans.sql:bans": "nobody is banned",
    "brake.sql:hold": "no BOT fails all its first replicas alike",
    "cycles.sql:others_work": "the same",
    "cycles.sql:crews": _STRANGERS,
    "cycles.sql:forget_unjudged": _STRANGERS,
    "cycles.sql:meet_crews": _STRANGERS,
    "cycles.sql:widen_crews": _STRANGERS,
    "dispatch.sql:caches": "hosts keep no files",
    "suspension.sql:suspend": "no policy costs too much",
}
RARE = {"feeder.sql:backend_lives", "feeder.sql:drop_range", "feeder.sql:was_sent"}


@pytest.fixture(scope="module")
def mirror(postgres: str) -> Iterator[db.PostgresConnection]:
    """A connection to a database that goes by the virtual clock."""
    with db.connect(make_database(postgres, DATABASE), autocommit=True) as conn:
        yield conn
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {DATABASE}".encode())


def lived(seed: int, conn: db.PostgresConnection, plant: Any = None) -> SeedVerdict:
    """Live through a seed over memory and PostgreSQL."""

    def make(tables: Tables, points: Points) -> MirroredStore:
        return MirroredStore(tables, points, conn)

    return live(seed, faults_of(seed), plant=plant, make_store=make)


def test_each_statement_gives_the_same_in_memory_as_in_postgresql(
    mirror: db.PostgresConnection,
) -> None:
    seen = Counter[str]()
    for seed in SEEDS:
        verdict = lived(seed, mirror)
        assert verdict.violation is None, f"seed {seed}"
        seen += verdict.statements
    missing = set(STATEMENTS) - set(seen)
    assert NOT_SEEN.keys() <= missing <= NOT_SEEN.keys() | RARE


@pytest.mark.parametrize(
    "statement", ["feeder.sql:bots", "moves.sql:add_leases", "cycles.sql:judge"]
)
def test_a_row_that_only_memory_gives_is_found(
    statement: str, mirror: db.PostgresConnection
) -> None:
    def plant(story: Story) -> None:
        def twice(tables: Tables, **values: Any) -> list[tuple[Any, ...]]:
            rows = was(tables, **values)
            assert isinstance(rows, Sequence)
            return [*rows, *rows]

        was = story.store.answer(statement, twice)

    found = lived(3, mirror, plant).violation
    assert found is not None
    assert found.name == "postgresql_answers_alike"
    assert statement in str(found)


def test_what_only_postgresql_keeps_is_found_when_it_is_read(
    mirror: db.PostgresConnection,
) -> None:
    def plant(story: Story) -> None:
        story.store.answer("cycles.sql:rate_hosts", lambda _tables, **_values: None)

    found = lived(3, mirror, plant).violation
    assert found is not None
    assert found.name == "postgresql_answers_alike"
