"""Claims about processes that stand still, are killed at their work, or take all there is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial

from tests.db.dispatching import daemons
from tests.http.conftest import Person, Site
from tests.system.deployment import eventually

from gridbot_server.http.services import Services
from gridbot_server.storage.db import Connection

# Writes in a transaction, says so, and commits once it is told to.
_WRITER = """
import sys, psycopg
options = "-c idle_in_transaction_session_timeout=1s"  # as ours, but shorter
with psycopg.connect(sys.argv[1], options=options) as conn:
    conn.execute("UPDATE owner SET share = 7")
    print("written", flush=True)
    sys.stdin.read()
"""


def test_what_a_frozen_process_holds_is_freed_and_nothing_of_it_is_written(
    site: Site, alice: Person
) -> None:
    dsn = str(site.settings.dsn)
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, dsn],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as frozen:  # fmt: skip
        assert frozen.stdout
        assert frozen.stdout.readline() == b"written\n"
        os.kill(frozen.pid, signal.SIGSTOP)
        site.conn.execute("UPDATE owner SET share = 3")  # waits until the row is free
        os.kill(frozen.pid, signal.SIGCONT)
        _, said = frozen.communicate(timeout=60)
    assert frozen.returncode != 0
    assert b"terminating connection due to idle-in-transaction timeout" in said
    shares = {share for (share,) in site.conn.execute("SELECT share FROM owner").fetchall()}
    assert shares == {3}


def leaders(conn: Connection) -> list[int]:
    """The connections that hold the leaders' lock."""
    query = (
        "SELECT a.pid FROM pg_stat_activity a JOIN pg_locks l USING (pid)"
        " WHERE a.datname = current_database() AND a.application_name = 'gridbot-leader'"
        " AND l.locktype = 'advisory' AND l.granted"
    )
    return [pid for (pid,) in conn.execute(query).fetchall()]


def test_of_several_that_would_lead_one_does_whatever_is_killed(site: Site) -> None:
    def others(before: int) -> list[int]:
        return [pid for pid in leaders(site.conn) if pid != before]

    with daemons(site.settings, 3):
        before = 0
        for _ in range(2):  # as many as can end without a supervisor, which starts them again
            (leader,) = eventually(partial(others, before), what="a leader")
            site.conn.execute("SELECT pg_terminate_backend(%s)", [leader])
            before = leader
        assert len(eventually(partial(others, before), what="a leader")) == 1


def test_without_a_free_connection_a_request_is_asked_to_come_again(
    site: Site, alice: Person
) -> None:
    services: Services = site.app.extensions["gridbot"]
    with ExitStack() as held:
        for _ in range(services.pool.max_size):
            held.enter_context(services.pool.connection())
        refused = alice("GET", "/api/v1/bots")
        assert (refused.status_code, refused.json["retry"]) == (503, True)
        assert int(refused.headers["Retry-After"]) > 0
    assert alice("GET", "/api/v1/bots").status_code == 200
