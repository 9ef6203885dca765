"""Claims about a standby that is missing, and about poolers between a server and its database."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.system.deployment import eventually, free_port

from gridbot_server.storage import db
from gridbot_server.supervision.postgres import Postgres, service_account


@pytest.fixture
def cluster(private_directory: Path) -> Iterator[Postgres]:
    server = Postgres(private_directory, durable=False)
    server.wait_ready(server.start(private_directory / "log"))
    yield server
    server.stop()


@contextmanager
def cancelling(dsn: str) -> Iterator[None]:
    """Somebody who cancels whatever waits for a standby, as an operator may."""
    is_over = threading.Event()

    def cancel() -> None:
        query = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not is_over.wait(0.05):
                conn.execute(query)

    thread = threading.Thread(target=cancel)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_commit_that_no_standby_has_is_an_error_and_not_acknowledged(cluster: Postgres) -> None:
    with db.connect(cluster.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE report (n int)")
        conn.execute("CREATE TABLE probe (n int)")
        conn.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        conn.execute("SELECT pg_reload_conf()")

        def waits() -> bool:
            # Not the setting, which a session has before the process that makes commits wait.
            try:
                conn.execute("INSERT INTO probe VALUES (1)")
            except db.NotReplicated:
                return True
            return False

        with cancelling(cluster.dsn):
            eventually(waits, what="the new setting")
            with pytest.raises(db.NotReplicated):
                conn.execute("INSERT INTO report VALUES (1)")
            with pytest.raises(db.NotReplicated), conn.transaction():
                conn.execute("INSERT INTO report VALUES (2)")
        # They are here all the same: a retry must find them.
        assert conn.execute("SELECT count(*) FROM report").fetchone() == (2,)


def test_an_ordinary_database_is_no_pooler(dsn: str) -> None:
    db.refuse_pooling_by_transaction(dsn)


@pytest.fixture
def pooled(
    request: pytest.FixtureRequest, cluster: Postgres, private_directory: Path
) -> Iterator[str]:
    """A pgbouncer in front of a database, in a mode; and what it ignores."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None and "CI" not in os.environ:
        pytest.skip("no pgbouncer here: apt-get install pgbouncer")
    assert program
    with psycopg.connect(cluster.dsn, autocommit=True) as conn:
        row = conn.execute("SHOW hba_file").fetchone()
        assert row
        Path(str(row[0])).write_text("local all all trust\n")  # it runs as another user
        conn.execute("SELECT pg_reload_conf()")
    mode, ignored = request.param
    real, port = conninfo_to_dict(cluster.dsn), free_port()
    name, user = str(real["dbname"]), str(real["user"])
    folder = private_directory / "pooler"
    folder.mkdir()
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n{name} = host={real['host']} dbname={name} user={user}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = {mode}\nignore_startup_parameters = {ignored}\nlogfile = {folder}/log\n"
    )
    account = service_account(private_directory / "none")  # it refuses to run as root
    if account:
        for path in (folder, file):
            os.chown(path, account.uid, account.gid)
    with subprocess.Popen(
        [program, str(file)],
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
        stderr=subprocess.DEVNULL,
    ) as process:
        place = make_conninfo("", host="127.0.0.1", port=port, dbname=name, user=user)
        try:
            eventually(lambda: _answers(place), 30, what="pgbouncer")
            yield place
        finally:
            process.terminate()


def _answers(place: str) -> bool:
    try:
        psycopg.connect(place, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    "pooled", [("transaction", "options"), ("statement", "options"), ("session", "")], indirect=True
)
def test_a_pooler_that_keeps_no_session_is_refused_with_the_reason(pooled: str) -> None:
    with pytest.raises(db.PooledByTransaction, match="let pool_mode be session"):
        db.refuse_pooling_by_transaction(pooled)


@pytest.mark.parametrize("pooled", [("session", "options")], indirect=True)
def test_a_pooler_that_keeps_sessions_is_taken(pooled: str) -> None:
    db.refuse_pooling_by_transaction(pooled)


@pytest.mark.parametrize("pooled", [("session", "options")], indirect=True)
def test_a_machine_that_no_packet_reaches_is_given_up_after_seconds(pooled: str) -> None:
    with db.connect(pooled) as conn, socket.socket(fileno=os.dup(conn.fileno())) as link:
        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 5000  # ms
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        asks = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        idle, interval, count = (link.getsockopt(socket.IPPROTO_TCP, name) for name in asks)
        assert idle + interval * count <= 5
