"""Claims about the jobs that the replication cycle looks at, by chance that its caller gives."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.factories import make_bot, make_client, make_host, make_lease

from gridbot_client.protocol.messages import ReplicaId
from gridbot_server.cycles.replication import SQL
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_values

JOBS, SAMPLED = 60, 10


@pytest.fixture
def bot(conn: Connection, alice: int) -> int:
    """A BOT all of whose jobs run; each of the second half has three replicas."""
    client = make_client(conn, alice, make_host(conn, alice))[0]
    bot = make_bot(conn, alice, jobs=JOBS)
    for seq in range(JOBS):
        for replica in range(1, 2 if seq < JOBS // 2 else 4):
            make_lease(conn, ReplicaId(bot, seq, replica), client)
    return bot


def sample(conn: Connection, bot: int, chance: int) -> list[int]:
    values = {"bot": bot, "most": 5, "limit": SAMPLED, "chance": chance}
    return fetch_values(conn, int, b"SELECT seq FROM (%b) AS x" % SQL["running_jobs"], values)


def test_equal_chance_looks_at_equal_jobs_in_equal_order(conn: Connection, bot: int) -> None:
    assert sample(conn, bot, 2**62) == sample(conn, bot, 2**62)
    assert sample(conn, bot, 2**62) != sample(conn, bot, 7)


def test_any_job_is_looked_at_and_rather_one_with_few_replicas(conn: Connection, bot: int) -> None:
    chance = random.Random(1)
    seen = Counter(seq for _ in range(300) for seq in sample(conn, bot, chance.getrandbits(63)))
    assert set(seen) == set(range(JOBS))
    few, many = (sum(seen[seq] for seq in half) for half in (range(30), range(30, 60)))
    assert 2.0 < few / many < 4.0
