"""What a view of each page of the console takes, with few and with many jobs and hosts."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import psutil
from flask.testing import FlaskClient

from gridbot_client.protocol.messages import Manifest
from gridbot_server.settings import Settings
from gridbot_server.signing import keys
from gridbot_server.storage import db, store_record
from gridbot_server.supervision.garbage import collect_rarely
from gridbot_server.web.app import create_app

from .harness.command import MILLION, measurement, quick_option
from .harness.database import bare_database
from .harness.windows import Row
from .history import bot_with_history

LOOKS, SECONDS_BETWEEN = 24, 3.0  # of a page that stays open
LEASES, HOSTS_PER_JOB = 500, 0.1
_ADD_HOSTS = """
WITH hosts AS (
    INSERT INTO host (identity, owner, ad)
    SELECT 'bench:' || n, 1, json_build_object(
               'Name', 'node' || n, 'NumCpus', 8, 'Memory', 16000, 'Disk', 100000,
               'Platform', 'linux-x86_64', 'ClientVersion', '0.' || n %% 5)
      FROM generate_series(1, %(hosts)s) AS n RETURNING id
)
INSERT INTO client (hash, host, owner, protocol, trusts, grid, seen_at)
SELECT sha256(id::text::bytea), id, 1, 2, '{1}',
       CASE id %% 4 WHEN 0 THEN NULL ELSE 'grid' || id %% 4 END,
       now() - id %% 5000 * interval '1 second'
  FROM hosts
"""
_ADD_LEASES = """
INSERT INTO job (bot, seq, args)
SELECT %(bot)s, %(jobs)s + n, '{}' FROM generate_series(0, %(leases)s - 1) AS n;
"""
_LEASE = """
INSERT INTO lease (bot, seq, replica, round, why, client, host, owner, deadline, request_key)
SELECT %(bot)s, %(jobs)s + row_number() OVER () - 1, 1, 0, 'first', c.id, c.host, 1,
       now() + interval '1 day', gen_random_uuid()
  FROM (SELECT id, host FROM client ORDER BY id LIMIT %(leases)s) AS c
"""


@measurement({name: [name] for name in ("jobs", "page", "ms", "most ms", "cpu ms", "kB")})
@quick_option()
def pages(quick: bool) -> list[Row]:
    """Views of the console, three seconds apart, in one process: their SQL and their HTML.

    A tenth as many hosts as jobs.  Figures that are dear are shared for some seconds, as for real.
    """
    return [row for jobs in ((100,) if quick else (1000, MILLION)) for row in _level(jobs)]


def _level(jobs: int) -> list[Row]:
    with (
        bare_database() as (conn, dsn),
        tempfile.TemporaryDirectory(prefix="gridbot-bench-") as folder,
    ):
        bot = bot_with_history(conn, jobs)
        values: dict[str, object] = {
            "bot": bot, "jobs": jobs, "leases": LEASES,
            "hosts": max(LEASES, int(jobs * HOSTS_PER_JOB)),
        }  # fmt: skip
        conn.execute(_ADD_HOSTS, values)
        conn.execute(_ADD_LEASES, values)
        conn.execute(_LEASE, values)
        values["manifest"] = Manifest("bench", ("echo", "{i}"), {"i": "int"}).text()
        conn.execute(
            "UPDATE bot SET size = size + %(leases)s, manifest = %(manifest)s WHERE id = %(bot)s",
            values,
        )
        conn.execute("UPDATE owner SET operator = true")
        conn.execute("VACUUM ANALYZE")
        looker = _Looker(conn, Settings(data=Path(folder), dsn=dsn))
        try:
            paths = ("/", f"/bots/{bot}", f"/bots/{bot}/jobs/7", f"/bots/{bot}/policy", "/machines")
            return [looker.look(jobs, path) for path in (*paths, "/operations", "/overlay")]
        finally:
            looker.close()


class _Looker:
    """An operator whose browser looks at pages, and whose clock we set."""

    def __init__(self, conn: db.PostgresConnection, settings: Settings) -> None:
        settings.make_directories()
        keys.create(settings.project_key_path)
        public = keys.public_bytes(settings.project_key_path)
        conn.execute("INSERT INTO setting VALUES ('project_key', %s)", [public.hex()])
        conn.execute("INSERT INTO project_key (key) VALUES (%s)", [public])
        store_record.pair(conn, settings.open_store())
        token, digest = keys.new_token("operator")
        conn.execute("INSERT INTO token (hash, owner, scope) VALUES (%s, 1, 'operator')", [digest])
        self._app, self._now = create_app(settings), 1000.0
        self._app.extensions["gridbot_console"].clock = lambda: self._now
        collect_rarely()  # as in a web process
        self._postgres = psutil.Process(conn.info.backend_pid).parent()
        self._browser = self._entered(token)

    def _entered(self, token: str) -> FlaskClient:
        browser = self._app.test_client()
        made = browser.post("/api/v1/console/links", headers={"Authorization": f"Bearer {token}"})
        path = made.get_json()["url"].partition("/enter/")[2]
        browser.get(f"/enter/{path}", headers={"Sec-Fetch-Site": "none"})
        return browser

    def look(self, jobs: int, path: str) -> Row:
        """Look at a page again and again; the milliseconds of a view, and its bytes."""
        times, size = list[float](), 0
        used = self._cpu()
        for _ in range(LOOKS):
            self._now += SECONDS_BETWEEN
            began = time.perf_counter()
            found = self._browser.get(path, headers={"Accept": "text/html"})
            times.append(1000 * (time.perf_counter() - began))
            assert found.status_code == 200, (path, found.status_code, found.text[:500])
            size = len(found.data)
        return {
            "jobs": jobs,
            "page": path,
            "ms": statistics.median(times),
            "most ms": max(times),
            "cpu ms": 1000 * (self._cpu() - used) / LOOKS,
            "kB": size / 1000,
        }

    def _cpu(self) -> float:
        """CPU seconds of this process and of the database."""
        assert self._postgres is not None, "a backend has a parent"
        processes = [self._postgres, *self._postgres.children()]
        spent = [process.cpu_times() for process in processes]
        return time.process_time() + sum(item.user + item.system for item in spent)

    def close(self) -> None:
        """Give the connections back."""
        self._app.extensions["gridbot"].close()
