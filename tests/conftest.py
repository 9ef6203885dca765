"""PostgreSQL for tests: the launcher that the server uses, and a fresh database per test."""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from gridbot_server.storage import db
from gridbot_server.storage.embedded import PostgresError
from gridbot_server.supervision.postgres import Postgres

_ROOM_FOR_DATABASES = 4 << 30  # bytes

# A runner in the background ignores ^C, and so would all programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So it is with other signals, which a handler keeps from the runner and does not pass on.
for _number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# Hypothesis would measure each example's time by the wall clock, on a machine that is busy.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("tests"), max_examples=100_000)
settings.load_profile("tests")  # pytest --hypothesis-profile=long takes the other one


@pytest.fixture(scope="session", autouse=True)
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep logins and signing keys of tests out of the configuration of those who run them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield


@pytest.fixture
def private_directory() -> Iterator[Path]:
    """A directory with a short path that PostgreSQL's own user can enter, unlike pytest's."""
    path = Path(tempfile.mkdtemp(prefix="gridbot-test-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Connection string of a server whose superuser we are: GRIDBOT_TEST_DSN, or our own."""
    if given := os.environ.get("GRIDBOT_TEST_DSN"):
        yield given
        return
    directory = Path(tempfile.mkdtemp(prefix="gridbot-test-", dir=_fast_folder()))
    directory.chmod(0o711)
    server = Postgres(directory, durable=False)
    try:
        server.wait_ready(server.start(directory / "postgresql.log"))
        yield server.dsn
    except PostgresError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def template(postgres: str) -> Iterator[str]:
    """Name of a database that was migrated once, to be copied by each test."""
    name = f"gridbot_template_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with db.connect(make_conninfo(postgres, dbname=name), autocommit=True) as conn:
        db.migrate(conn)
    yield name
    _drop(postgres, name)


@pytest.fixture
def dsn(postgres: str, template: str) -> Iterator[str]:
    """Connection string of a fresh, migrated database."""
    name = f"gridbot_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
    yield make_conninfo(postgres, dbname=name)
    _drop(postgres, name)


@pytest.fixture
def conn(dsn: str) -> Iterator[db.PostgresConnection]:
    """A connection to the test's own database, autocommit as the daemons use it."""
    with db.connect(dsn, autocommit=True) as connection:
        yield connection


def _fast_folder() -> str:
    """Give a folder in memory where there is room: copying a database takes a tenth of the time."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free >= _ROOM_FOR_DATABASES:
        return str(memory)
    return "/tmp"


def _drop(postgres: str, name: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
