"""A server without HTTP, and alice, who owns what runs on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.db.dispatching import Caller, Dispatch, caller, dispatching
from tests.factories import make_owner

from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.files import FolderStore


@pytest.fixture
def dispatch(dsn: str, conn: PostgresConnection, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, tmp_path / "test.buffer") as made:
        yield made


@pytest.fixture
def alice(conn: PostgresConnection) -> int:
    return make_owner(conn, "alice")


@pytest.fixture
def client(dispatch: Dispatch, alice: int) -> Caller:
    return caller(dispatch, alice)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    found = FolderStore(tmp_path / "files", tmp_path / "uploads")
    found.root.mkdir()
    found.uploads.mkdir()
    return found
