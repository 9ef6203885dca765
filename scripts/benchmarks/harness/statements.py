"""A PostgreSQL that counts what statements cost: pages, bytes of the log, and time."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

from psycopg import sql

from gridbot_server.storage import db
from gridbot_server.supervision.postgres import (
    CREATE_DATABASE,
    INITDB_OPTIONS,
    Postgres,
    service_account,
)
from gridbot_server.supervision.postgres_binaries import Binaries, find_binaries, run_program

from .installation import BenchFailed

_LIBRARY = "pg_stat_statements"
_READ = """
SELECT coalesce(sum(calls), 0)::float8,
       coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8,
       coalesce(sum(wal_bytes), 0)::float8, 1000 * coalesce(sum(total_exec_time), 0)
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the statements in a database have cost so far, or between two moments."""

    statements: float
    pages: float  # that were looked at, in memory or not
    log_bytes: float
    microseconds: float  # by the clock, without those of the commit's write to the disk

    def since(self, before: Self) -> Cost:
        """What was added to `before`."""
        return Cost(*(new - old for new, old in zip(astuple(self), astuple(before), strict=True)))


class CountingPostgres:
    """A cluster of our own that counts."""

    def __init__(self, conn: db.PostgresConnection, dsn: str) -> None:
        self._conn, self._dsn = conn, dsn

    def create(self, database: str) -> str:
        """Make an empty database; return how to connect to it."""
        self._conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return re.sub(r"dbname=\w+", f"dbname={database}", self._dsn)

    def cost(self, database: str) -> Cost:
        """What the statements in a database have cost so far."""
        row: Any = self._conn.execute(_READ, [database]).fetchone()
        return Cost(*row)


@contextmanager
def counting_postgres() -> Iterator[CountingPostgres]:
    """Run a cluster that counts; raises BenchFailed where no PostgreSQL here can do that."""
    folder = Path(tempfile.mkdtemp(prefix="gridbot-bench-", dir="/tmp"))
    folder.chmod(0o711)
    server = Postgres(folder, durable=False)
    try:
        _make_cluster(server)
        server.wait_ready(server.start(folder / "postgresql.log"))
        with db.connect(server.dsn, autocommit=True) as conn:
            conn.execute(f"CREATE EXTENSION {_LIBRARY}")
            yield CountingPostgres(conn, server.dsn)
    finally:
        server.stop()
        shutil.rmtree(folder)


def _make_cluster(server: Postgres) -> None:
    binaries = _binaries()
    account = service_account(server.cluster)
    server.cluster.mkdir(mode=0o700)
    if account:
        shutil.chown(server.cluster, account.name)
    initdb = [str(binaries.directory / "initdb"), "--pgdata", str(server.cluster), *INITDB_OPTIONS]
    run_program([*initdb, "--no-sync"], account)
    single = [str(binaries.directory / "postgres"), "--single", "-D", str(server.cluster)]
    run_program([*single, "postgres"], account, CREATE_DATABASE)
    with (server.cluster / "postgresql.auto.conf").open("a") as file:
        file.write(f"shared_preload_libraries = '{_LIBRARY}'\n")


def _binaries() -> Binaries:
    """The newest PostgreSQL of the system that has the library; the wheel's has it not."""
    found = Path("/usr/lib/postgresql").glob(f"*/lib/{_LIBRARY}.so")
    majors = [int(path.parts[-3]) for path in found]
    if not majors:
        raise BenchFailed(f"no PostgreSQL with {_LIBRARY}: apt-get install postgresql")
    return find_binaries(max(majors))
