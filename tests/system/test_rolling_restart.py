"""A claim about servers behind nginx that are restarted in turn, as for an upgrade."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.system import crashes
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.nginx_front import nginx_front

FURTHER = 50  # more reports, or jobs, than may have been on their way


def sent(server: Deployment) -> int:
    """How many jobs this one of several servers has handed out."""
    machine = (server.data / "machine").read_text()
    query = (
        "SELECT coalesce(sum(value), 0)::bigint FROM bot_stat"
        " WHERE name = 'sent_first' AND split_part(writer, '-', 1) = %s"
    )
    return int(server.rows(query, machine[:8])[0][0])


def until_more(count: Callable[[], int], what: str) -> None:
    """Wait until a count has risen."""
    before = count()
    eventually(lambda: count() > before + FURTHER, what=what)


def test_no_request_fails_while_servers_behind_nginx_are_restarted_in_turn(
    dsn: str, private_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployment(dsn) as one, deployment(dsn) as other:
        places = [f"127.0.0.1:{server.port}" for server in (one, other)]
        with nginx_front(private_directory, places) as front:
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(front.bundle))
            options = ("--behind-proxy", "--url", front.url)
            for server in (one, other):
                server.configure(buffer_slots=256)
            one.start(*options)
            shutil.rmtree(other.settings.files)
            other.settings.files.symlink_to(one.settings.files)
            other.start(*options)
            one.url = front.url
            with crashes.loaded(one, seed=1, job_seconds=(0.3, 0.6)) as load:
                for server in (one, other):
                    until_more(partial(sent, server), "work from it")
                    server.run("server", "stop", "--data", str(server.data))
                    until_more(lambda: len(load.acknowledged), "work without it")
                    server.start(*options)
                    until_more(partial(sent, server), "work from it again")
                load.drain()
            assert load.refusals == []
            assert crashes.lost_reports(one, load) == []
            assert crashes.wrong_outcomes(one, load) == []
