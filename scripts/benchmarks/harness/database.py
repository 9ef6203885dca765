"""What the benches put into the server's database, and read from it, past the server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import orjson

from gridbot_server.matching.track_record import TrackRecord
from gridbot_server.storage import db
from gridbot_server.supervision.postgres import Postgres

from .installation import Installation
from .load.native_hosts import HOST, token

# Hosts and their clients as `POST /api/v1/clients` makes them, a hundred thousand in seconds.
_ADD_OWNERS = """
INSERT INTO owner (name) SELECT 'volunteer' || n FROM generate_series(1, %(owners)s) AS n
"""
_ADD_HOSTS = """
WITH people AS (
    SELECT array_agg(id ORDER BY id) AS ids FROM owner WHERE operator = (%(owners)s = 0)
), added AS (
    INSERT INTO host (identity, owner, ad)
    SELECT 'load:' || n, ids[1 + n %% cardinality(ids)],
           %(ad)s::jsonb || jsonb_build_object('Name', 'node' || n)
      FROM people, generate_series(0, %(hosts)s - 1) AS n
    RETURNING id, owner, identity
)
INSERT INTO client (hash, host, owner, protocol, trusts)
SELECT sha256(convert_to(%(token)s || split_part(identity, ':', 2), 'UTF8')), id, owner, 2,
       ARRAY[owner] FROM added
"""
_WIDEN_HOSTS = "UPDATE host SET width = 1024"
_WIDEN_CREWS = "INSERT INTO crew (name, width) SELECT DISTINCT crew, 1024 FROM host"
_WIDE_FROM_THE_START = "ALTER TABLE host ALTER COLUMN width SET DEFAULT 1024"
_WIDEN_OWNERS = """
INSERT INTO crew (name, width) SELECT 'owner ' || id, 1024 FROM owner ON CONFLICT DO NOTHING
"""
_JOIN_OWNER = """
WITH chosen AS (
    SELECT id FROM host WHERE identity = ANY (
           SELECT 'load:' || n FROM generate_series(0, %(hosts)s - 1) AS n)
), owner_of_all AS (
    SELECT owner FROM host WHERE identity = 'load:0'
), clients AS (
    UPDATE client c SET owner = o.owner, trusts = ARRAY[o.owner] FROM owner_of_all o
     WHERE c.host IN (SELECT id FROM chosen)
)
UPDATE host h SET owner = o.owner FROM owner_of_all o WHERE h.id IN (SELECT id FROM chosen)
"""
_RECORDS = """
SELECT split_part(h.identity, ':', 2)::int, t.streak, t.caught
  FROM track_record t JOIN host h ON t.who = 'host ' || h.id
"""
_ANALYZE = "ANALYZE host, client"

# A file uploaded for the first replica of each job, as the upload handler leaves it.
_ADD_UPLOADS = """
WITH seqs AS (
    SELECT generate_series(0, %(jobs)s - 1) AS seq
), uploads AS (
    INSERT INTO boinc_upload (bot, seq, replica, number, md5, size)
    SELECT %(bot)s, seq, 1, 0, decode(md5(%(content)s), 'hex'), octet_length(%(content)s) FROM seqs
)
INSERT INTO output (bot, seq, replica, name, sha256, size, content)
SELECT %(bot)s, seq, 1, 'stdout', sha256(%(content)s), octet_length(%(content)s), NULL FROM seqs
"""

_BACKENDS = """
SELECT pid, coalesce(application_name, '') FROM pg_stat_activity WHERE datname = current_database()
"""
_PENDING = "SELECT count(*) FROM pending"
# From the answer that settled a job to the transaction that made its outcome.
_SETTLED = """
SELECT count(*) FILTER (WHERE made_at < to_timestamp(%(ended)s)),
       coalesce(percentile_disc(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY lag), '{0,0,0}')
  FROM (SELECT made.at AS made_at, extract(epoch FROM made.at - max(e.ended_at))::float8 AS lag
          FROM (SELECT seq, min(made_at) AS at
                  FROM (SELECT seq, made_at FROM outcome WHERE bot = %(bot)s
                        UNION ALL
                        SELECT seq, made_at FROM provisional WHERE bot = %(bot)s) AS judged
                 GROUP BY seq) AS made
          JOIN ended e ON (e.bot, e.seq) = (%(bot)s, made.seq) AND e.ended_at <= made.at
         WHERE made.at >= to_timestamp(%(began)s)
         GROUP BY made.seq, made.at) AS settled
"""


class Database:
    """A connection of our own to the database of an installation."""

    def __init__(self, conn: db.Connection) -> None:
        self._conn = conn

    def add_hosts(self, hosts: int, owners: int = 0) -> None:
        """Make hosts with a client each, the operator's or of so many other owners."""
        ad = orjson.dumps(dict(HOST)).decode()
        self._conn.execute(_ADD_OWNERS, {"owners": owners})
        values = {"hosts": hosts, "owners": owners, "ad": ad, "token": token(0)[:-1]}
        self._conn.execute(_ADD_HOSTS, values)
        self._conn.execute(_ANALYZE)

    def join_owner(self, hosts: int) -> None:
        """Let the first so many hosts be machines of one owner."""
        self._conn.execute(_JOIN_OWNER, {"hosts": hosts})

    def records(self) -> dict[int, TrackRecord]:
        """What the checked answers of hosts have proven, by their numbers."""
        rows = self._conn.execute(_RECORDS).fetchall()
        return {number: TrackRecord(streak, caught) for number, streak, caught in rows}

    def widen_hosts(self) -> None:
        """Let all hosts have proven what they can do: none is bounded by its width."""
        self._conn.execute(_WIDEN_HOSTS)
        self._conn.execute(_WIDEN_CREWS)

    def add_uploads(self, bot: int, jobs: int, content: bytes) -> None:
        """Keep an output of this content for every job of a BOT."""
        self._conn.execute(_ADD_UPLOADS, {"bot": bot, "jobs": jobs, "content": content})

    def backends(self) -> dict[int, str]:
        """Whom each of PostgreSQL's processes serves, by its id."""
        return dict(self._conn.execute(_BACKENDS).fetchall())

    def pending(self) -> int:
        """How many wake-ups wait for the transitioner."""
        return int(self._one(_PENDING, {})[0])

    def settled(self, bot: int, began: float, ended: float) -> tuple[int, list[float]]:
        """How many jobs were judged between two times, and how late (s) those since `began` were.

        Among strangers a verdict is provisional at first: it counts as soon as it is made.

        Late by the median, by the 99 % that were less late, and at most.
        """
        made, lags = self._one(_SETTLED, {"bot": bot, "began": began, "ended": ended})
        return made, lags

    def _one(self, query: LiteralString, values: Mapping[str, Any]) -> tuple[Any, ...]:
        row = self._conn.execute(query, values).fetchone()
        assert row is not None
        return row


def believe_all_hosts(conn: db.Connection) -> None:
    """Let machines of all owners, also those that join later, hold what proven ones may hold."""
    conn.execute(_WIDE_FROM_THE_START)
    conn.execute(_WIDEN_OWNERS)


@contextmanager
def database(place: Installation) -> Iterator[Database]:
    """Open the database of an installation."""
    dsn = place.settings.dsn_or_embedded
    with db.connect(dsn, "bench", autocommit=True) as conn:
        yield Database(conn)


@contextmanager
def bare_database(*, durable: bool = False) -> Iterator[tuple[db.PostgresConnection, str]]:
    """A migrated database with one owner and no server, and how to connect to it."""
    folder = Path(tempfile.mkdtemp(prefix="gridbot-bench-", dir="/tmp"))
    folder.chmod(0o711)
    server = Postgres(folder, durable=durable)
    try:
        server.wait_ready(server.start(folder / "postgresql.log"))
        with db.connect(server.dsn, autocommit=True) as conn:
            db.migrate(conn)
            conn.execute("INSERT INTO owner (name) VALUES ('bench')")
            yield conn, server.dsn
    finally:
        server.stop()
        shutil.rmtree(folder)
