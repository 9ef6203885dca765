"""A backup leaves word of itself."""

import json
from pathlib import Path

from gridbot_server.settings import Settings
from gridbot_server.storage import db
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
