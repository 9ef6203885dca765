"""A backup leaves word of itself."""

import json
import tarfile
from pathlib import Path

import pytest

from gridbot_server.settings import Settings
from gridbot_server.storage import db, storage_key
from gridbot_server.supervision.archive import back_up


def test_the_last_backup_is_noted_once_it_is_whole(
    conn: db.Connection, dsn: str, tmp_path: Path
) -> None:
    settings = Settings(data=tmp_path / "data", dsn=dsn)
    settings.make_directories()
    for name in ("sunday.tar", "monday.tar"):
        back_up(settings, dsn, tmp_path / name, lambda _: None)
    rows = conn.execute("SELECT value FROM setting WHERE name = 'backup'").fetchall()
    ((value,),) = rows
    assert json.loads(value)["file"] == str(tmp_path / "monday.tar")


def test_a_backup_holds_the_key_of_owners_storages(
    conn: db.Connection, dsn: str, tmp_path: Path
) -> None:
    settings, archive = Settings(data=tmp_path / "data", dsn=dsn), tmp_path / "backup.tar"
    settings.make_directories()
    storage_key.create(settings.storage_key_path)
    back_up(settings, dsn, archive, lambda _: None)
    with tarfile.open(archive) as made:
        kept = made.extractfile("settings/storage.key")
        assert kept is not None
        assert kept.read() == settings.storage_key_path.read_bytes()


def test_a_backup_holds_a_key_that_is_made_while_files_are_copied(
    conn: db.Connection, dsn: str, tmp_path: Path
) -> None:
    settings, archive = Settings(data=tmp_path / "data", dsn=dsn), tmp_path / "backup.tar"
    settings.make_directories()

    def somebody_adds_the_first_storage(step: str) -> None:
        if step == "database":
            storage_key.create(settings.storage_key_path)

    back_up(settings, dsn, archive, somebody_adds_the_first_storage)
    with tarfile.open(archive) as made:
        assert made.getnames().count("settings/storage.key") == 1


def test_a_backup_is_whole_also_where_no_word_of_it_can_be_left(
    conn: db.PostgresConnection, dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, archive = Settings(data=tmp_path / "data", dsn=dsn), tmp_path / "backup.tar"
    settings.make_directories()
    conn.execute(
        "CREATE FUNCTION shut_down() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'it shuts down' USING ERRCODE = 'admin_shutdown'; END $$"
    )
    conn.execute(
        "CREATE TRIGGER at_the_end BEFORE INSERT ON setting FOR EACH ROW"
        " WHEN (NEW.name = 'backup') EXECUTE FUNCTION shut_down()"
    )
    try:
        assert back_up(settings, dsn, archive, lambda _: None).files == 0
    finally:
        conn.execute("DROP FUNCTION shut_down CASCADE")
    assert archive.exists()
    assert f"{archive} is whole" in caplog.text
    assert "it shuts down" in caplog.text
