"""What people are told of answers that are provisional, confirmed or recalled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.db.dispatching import Caller, Dispatch, dispatching
from tests.db.test_assurance import assured, lie, strangers, trust, unchecked, work
from tests.http.conftest import Person, Site
from tests.http.loopback import serve
from tests.http.test_gridbot_command import runner

from gridbot_client.standing import told_of
from gridbot_server.storage import invariants

__all__ = ["unchecked"]  # a fixture

JOBS = 8


@pytest.fixture
def dispatch(dsn: str, site: Site, tmp_path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, site.conn, tmp_path / "test.buffer") as made:
        yield made
        assert [str(item) for item in invariants.check(site.conn, idle=False)] == []


def lines(person: Person, path: str) -> list[Any]:
    answer = person("GET", f"/api/v1/bots/{path}")
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.data.splitlines()]


def told(events: list[Any]) -> list[tuple[int, int, str]]:
    return [(event["n"], event["seq"], event["event"]) for event in events]


def lied_to(site: Site, dispatch: Dispatch, owner: Person) -> tuple[int, Caller, list[Caller]]:
    """Make a BOT of whose jobs a trusted host gave wrong answers; that one, and honest ones."""
    bot = assured(site.conn, owner.id, JOBS)
    eve, *honest = strangers(dispatch, 6)
    trust(site.conn, eve, *honest)
    work(dispatch, eve, say=lie)
    return bot, eve, honest


def work_in_turns(dispatch: Dispatch, callers: list[Caller]) -> Iterator[None]:
    """Let honest hosts work until the BOT is done, a look after each."""
    for one in 6 * callers:
        work(dispatch, one)
        yield


@pytest.mark.usefixtures("unchecked")
def test_the_stream_gives_confirmed_rows_only_one_per_job_and_never_alters_them(
    site: Site, dispatch: Dispatch, alice: Person
) -> None:
    bot, _, honest = lied_to(site, dispatch, alice)
    assert lines(alice, f"{bot}/results") == []
    assert alice("GET", f"/api/v1/bots/{bot}").json["jobs_done"] == 0
    known: list[Any] = []
    for _ in work_in_turns(dispatch, honest):
        now = lines(alice, f"{bot}/results")
        assert now[: len(known)] == known
        assert now[len(known) :] == lines(alice, f"{bot}/results?after={len(known)}")
        known = now
    assert [row["n"] for row in known] == list(range(1, JOBS + 1))
    assert sorted(row["seq"] for row in known) == list(range(JOBS))
    assert all("event" not in row and row["state"] == "done" for row in known)
    assert alice("GET", f"/api/v1/bots/{bot}").json["state"] == "done"


@pytest.mark.usefixtures("unchecked")
def test_all_events_come_under_one_cursor_and_each_job_ends_confirmed(
    site: Site, dispatch: Dispatch, alice: Person
) -> None:
    bot, _, honest = lied_to(site, dispatch, alice)
    seen = lines(alice, f"{bot}/results?events=all")
    assert told(seen) == [(seq + 1, seq, "provisional") for seq in range(JOBS)]
    lied = {row["seq"]: row["outputs"]["stdout"]["sha256"] for row in seen}
    for _ in work_in_turns(dispatch, honest):
        seen += lines(alice, f"{bot}/results?events=all&after={len(seen)}")
    assert seen == lines(alice, f"{bot}/results?events=all")
    assert [row["n"] for row in seen] == list(range(1, len(seen) + 1))
    for seq in range(JOBS):
        of_job = [row for row in seen if row["seq"] == seq]
        kinds = [row["event"] for row in of_job]
        assert kinds[:2] == ["provisional", "recalled"]
        assert kinds.count("confirmed") == 1
        assert kinds[-1] == "confirmed"
        assert of_job[1]["outputs"]["stdout"]["sha256"] == lied[seq]
        assert of_job[-1]["outputs"]["stdout"]["sha256"] != lied[seq]


@pytest.mark.usefixtures("unchecked")
def test_pages_tell_the_assurance_and_what_a_host_that_was_caught_came_to(
    site: Site, dispatch: Dispatch, alice: Person, operator: Person, tmp_path: Path
) -> None:
    bot, eve, honest = lied_to(site, dispatch, alice)
    host = site.conn.execute("SELECT host FROM ended LIMIT 1").fetchone()
    assert host is not None
    as_eve = replace(alice, token=eve.token)
    before = as_eve("GET", "/api/v1/clients/self/standing").json
    assert (before["wrong"], before["unchecked"]) == (0, JOBS)
    with serve(site.app) as url:
        run, ask = runner(url, alice, tmp_path), runner(url, operator, tmp_path)
        page = run("bot", "show", str(bot)).output
        assert f"0.999 asked for, {JOBS} jobs provisional" in page
        for _ in work_in_turns(dispatch, honest):
            pass
        page = run("bot", "show", str(bot)).output
        told_line = r"0\.999 asked for, (1|0\.999\d*) reached, \d+\.\d\d replicas a job"
        assert re.search(told_line, page)
        assert "provisional" not in page
        shown = ask("host", "show", str(host[0])).output
        logs = run("bot", "logs", str(bot)).output
    after = as_eve("GET", "/api/v1/clients/self/standing").json
    assert after["wrong"] >= 1
    assert after["unchecked"] == 0
    lines_ = told_of(after)
    assert f"{after['right']} right, {after['wrong']} wrong, 0 not checked yet" in lines_[0]
    assert "earn no credit" in lines_[1]
    assert f"{after['right']} right, {after['wrong']} wrong, 0 not checked" in shown
    assert "it was caught" in shown
    assert "not equal to the last bit with the canonical replica" in logs
