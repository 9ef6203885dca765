"""Claims about what a project tells stock clients of itself, and asks of them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.boinc_captures import NAMES, captures
from tests.factories import make_lease
from tests.http.boinc_site import FIRST, MANIFEST, acks, lend, opened

from gridbot_server.boinc.protocol.names import Lease
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.web.app import create_app

site_of = contextmanager(opened)  # a server with these settings

TOO_OLD = "Your BOINC client software is too old.  Please install the current version."


# ------------------------------------------------------------------------------- the least version


# The captured client is of version 7.20.5.
@pytest.mark.parametrize(
    ("least", "code", "is_too_old"),
    [
        ("7.20.5", 72005, False),
        ("7.20.6", 72006, True),
        ("8.0", 80000, True),
        ("6.99.99", 69999, False),
    ],
)
def test_a_client_that_is_too_old_is_told_so_and_given_no_work(
    settings: Settings, conn: db.Connection, least: str, code: int, is_too_old: bool
) -> None:
    with site_of(replace(settings, min_client_version=least), conn) as site:
        site.bot(MANIFEST)
        with site.fed():
            answer = site.post("scheduler", site.request(FIRST)).text
    assert (f'<message priority="notice">{TOO_OLD}' in answer) == is_too_old
    assert ("<workunit>" in answer) == (not is_too_old)
    assert ("<request_delay>86400</request_delay>" in answer) == is_too_old
    config = f"<min_client_version>{code}</min_client_version>\n"
    assert config in site.get("get_project_config.php").text


def test_what_a_client_that_became_too_old_still_has_counts_and_comes_in_time(
    settings: Settings, conn: db.Connection
) -> None:
    with site_of(settings, conn) as site:
        ended = lend(site)
        held = Lease(ended.replica._replace(seq=1), ended.client)
        make_lease(conn, held.replica, held.client)
        changed = replace(site, app=create_app(replace(settings, min_client_version="8.0")))
        told = (
            f"<result>\n<name>{NAMES.replica(ended)}</name>\n<state>3</state>\n"
            "<exit_status>7</exit_status>\n</result>\n<other_results>\n"
            f"<other_result>\n<name>{NAMES.replica(held)}</name>\n</other_result>\n"
        )
        body = captures()[FIRST].replace(b"<other_results>\n", told.encode())
        reply = changed.ask(body=body)
        assert acks(reply) == [NAMES.replica(ended)]
        assert reply.all("result_abort") == []
        assert reply.number("request_delay") < 60
        assert site.rows("SELECT seq, how FROM ended") == [(ended.replica.seq, "error")]
        assert site.rows("SELECT seq FROM lease") == [(held.replica.seq,)]
        changed.app.extensions["gridbot"].close()
