"""A database and its file store belong together, and neither goes on with another's past."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.factories import make_bot, make_client, make_owner

from gridbot_server.storage import store_record
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import FolderStore
from gridbot_server.storage.store_record import StoreMismatch, StoreRecord


@pytest.fixture
def files(tmp_path: Path) -> FolderStore:
    return _folder(tmp_path / "files")


def _folder(root: Path) -> FolderStore:
    root.mkdir()
    return FolderStore(root, root)


def record(files: FolderStore) -> StoreRecord:
    found = store_record.read_record(files)
    assert found is not None
    return found


def put_back(conn: Connection, revision: int) -> None:
    """As a restore by other tools leaves the database."""
    query = "UPDATE setting SET value = %s WHERE name = 'store_revision'"
    conn.execute(query, [str(revision)])


def epoch(conn: Connection) -> int:
    row = conn.execute("SELECT value::bigint FROM setting WHERE name = 'epoch'").fetchone()
    assert row is not None
    return int(row[0])


def test_the_first_start_joins_both_and_later_ones_find_them(
    conn: Connection, files: FolderStore
) -> None:
    store_record.pair(conn, files)
    first = record(files)
    store_record.pair(conn, files)
    store_record.keep(conn, files)
    assert record(files).identity == first.identity
    assert record(files).revision > first.revision
    assert store_record.fault(files, first.identity) == ""


def test_a_store_of_another_database_or_none_is_refused(
    conn: Connection, files: FolderStore, tmp_path: Path
) -> None:
    store_record.pair(conn, files)
    empty = _folder(tmp_path / "empty")
    with pytest.raises(StoreMismatch, match=r"is not the file store of this database"):
        store_record.pair(conn, empty)
    known = record(files)
    (files.root / "store.json").write_text(
        (files.root / "store.json").read_text().replace(known.identity, "another")
    )
    with pytest.raises(StoreMismatch, match="is the file store of another database"):
        store_record.pair(conn, files)
    with pytest.raises(StoreMismatch, match="is the file store of another database"):
        store_record.accept(conn, files)
    assert "another database" in store_record.fault(files, known.identity)
    (files.root / "store.json").write_text("{")
    with pytest.raises(StoreMismatch, match="is damaged"):
        store_record.pair(conn, files)
    assert "is damaged" in store_record.fault(files, known.identity)


def test_a_start_that_was_killed_while_it_joined_both_is_made_again(
    conn: Connection, files: FolderStore
) -> None:
    store_record.pair(conn, files)
    put_back(conn, 0)
    written = (files.root / "store.json").read_text()
    (files.root / "store.json").write_text(
        written.replace(f'"revision":{record(files).revision}', '"revision":0')
    )
    store_record.pair(conn, files)
    assert record(files).revision > 0


def test_an_earlier_database_is_refused_until_it_is_accepted(
    conn: Connection, files: FolderStore
) -> None:
    store_record.pair(conn, files)
    before = epoch(conn)
    owner = make_owner(conn, "alice")
    last = make_bot(conn, owner)
    store_record.keep(conn, files)
    conn.execute("DELETE FROM job")
    conn.execute("DELETE FROM bot")
    conn.execute("ALTER SEQUENCE bot_id_seq RESTART")
    put_back(conn, 1)
    with pytest.raises(StoreMismatch, match="restored by other tools"):
        store_record.pair(conn, files)
    store_record.accept(conn, files)
    store_record.pair(conn, files)
    assert epoch(conn) >> 40 > before >> 40
    assert make_bot(conn, owner) > last


def test_a_database_that_goes_back_in_service_begins_a_new_epoch(
    conn: Connection, files: FolderStore
) -> None:
    store_record.pair(conn, files)
    for _ in range(3):
        store_record.keep(conn, files)
    before, epoch_before = record(files), epoch(conn)
    put_back(conn, 1)
    store_record.keep(conn, files)
    assert record(files).revision > before.revision
    assert record(files).epoch == epoch(conn) != epoch_before
    store_record.pair(conn, files)


def test_what_was_withdrawn_is_so_again(conn: Connection, files: FolderStore) -> None:
    store_record.pair(conn, files)
    owner = make_owner(conn, "alice")
    make_client(conn, owner)
    make_client(conn, owner)
    conn.execute("INSERT INTO token (hash, owner, scope) VALUES ('\\x0a', %s, 'user')", [owner])
    conn.execute("UPDATE token SET revoked_at = now()")
    conn.execute("UPDATE host SET banned_at = now(), banned_why = 'it lied'")
    conn.execute("UPDATE client SET revoked_at = now()")
    store_record.keep(conn, files)
    conn.execute("UPDATE token SET revoked_at = NULL")
    conn.execute("UPDATE host SET banned_at = NULL, banned_why = ''")
    conn.execute("UPDATE client SET revoked_at = NULL")
    conn.execute("DELETE FROM client WHERE id = (SELECT max(id) FROM client)")
    conn.execute("DELETE FROM host WHERE id = (SELECT max(id) FROM host)")
    put_back(conn, 1)
    store_record.accept(conn, files)
    assert conn.execute("SELECT count(*) FROM token WHERE revoked_at IS NULL").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM client WHERE revoked_at IS NULL").fetchone() == (0,)
    assert conn.execute("SELECT DISTINCT banned_why FROM host").fetchall() == [("it lied",)]
    kept = store_record.read_withdrawn(files)
    assert len(kept.clients) == len(kept.hosts) == 2  # also those that it does not know


def test_two_servers_that_start_at_once_with_a_folder_each_do_not_both_serve(
    conn: Connection, files: FolderStore, tmp_path: Path
) -> None:
    other = _folder(tmp_path / "other")
    store_record.pair(conn, files)
    with pytest.raises(StoreMismatch):
        store_record.pair(conn, other)
    assert list(other.root.iterdir()) == []
