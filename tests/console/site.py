"""The console on a real socket, over a database in which there is something to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.console.stage import Stage, make_stage
from tests.http.conftest import Echo
from tests.http.loopback import serve

from gridbot_server.settings import Settings
from gridbot_server.signing import keys
from gridbot_server.storage import db, store_record
from gridbot_server.web.app import create_app


@contextmanager
def served(dsn: str, data: Path, hostile: str = "", **knobs: Any) -> Iterator[tuple[str, Stage]]:
    """Serve the console; give its URL and who is there."""
    settings = Settings(
        data=data,
        dsn=dsn,
        public_page=True,
        boinc_accounts=True,
        mail_relay="127.0.0.1:9",
        **knobs,
    )
    settings.make_directories()
    keys.create(settings.project_key_path)
    public = keys.public_bytes(settings.project_key_path)
    with db.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO setting VALUES ('project_key', %s)", [public.hex()])
        conn.execute("INSERT INTO project_key (key) VALUES (%s)", [public])
        store_record.pair(conn, settings.open_store())
        stage = make_stage(conn, hostile)
    app = create_app(settings, engine=Echo)
    try:
        with serve(app) as url:
            yield url, stage
    finally:
        app.extensions["gridbot"].close()
