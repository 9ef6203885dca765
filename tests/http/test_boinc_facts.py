"""Facts of BOINC's protocol that only a whole server shows; the number is the fact's section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from flask import Flask
from tests.boinc_captures import captures, others
from tests.http.boinc_site import FIRST, MANIFEST, SECOND, Site, hostid, lend, opened

from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.web.app import create_app


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    yield from opened(settings, conn)


@pytest.fixture
def away(settings: Settings) -> Iterator[Flask]:
    """The same server while its database is away."""
    app = create_app(replace(settings, dsn="host=/nonexistent dbname=none"))
    app.extensions["gridbot"].pool.timeout = 0.1
    yield app
    app.extensions["gridbot"].close()


def script_of(site: Site) -> str:
    """The name of a file that a client was told to download."""
    lend(site)
    return site.ask().all("file_info")[0].text("name")


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/xml", "", "nonsense"])
def test_point_3_a_body_is_read_as_it_is_whatever_its_type_says(site: Site, kind: str) -> None:
    body = site.request(FIRST, domain_name="a=b&c=%41+d")
    answer = site.app.test_client().post("/boinc/scheduler", data=body, content_type=kind)
    assert "<hostid>" in answer.text
    ((ad,),) = site.rows("SELECT ad FROM host")
    assert ad["Name"] == "a=b&c=%41+d"


def test_point_3_an_upload_is_read_as_it_is_too(site: Site) -> None:
    upload = next(body for name, _, _, body in others() if name.startswith("run1_021"))
    answers = {
        site.app.test_client()
        .post("/boinc/file_upload_handler", data=upload, content_type=kind)
        .text
        for kind in ("application/x-www-form-urlencoded", "text/xml")
    }
    (answer,) = answers
    assert "<status>-1</status>" in answer
    assert "j_ok_r0_0 was never asked for" in answer


def test_point_18_only_what_can_never_come_is_a_client_error(site: Site, away: Flask) -> None:
    script = script_of(site)
    assert site.get("download/" + script).status_code == 200
    assert site.get("download/" + script[:-1]).status_code == 404
    assert away.test_client().get("/boinc/download/" + script).status_code == 503
    upload = next(body for name, _, _, body in others() if name.startswith("run1_021"))
    assert away.test_client().post("/boinc/file_upload_handler", data=upload).status_code == 503


def test_point_20_a_client_that_gets_no_work_asks_again_within_a_minute(site: Site) -> None:
    reply = site.ask()
    assert reply.all("result") == []
    assert reply.number("next_rpc_delay") == 60
    assert 5 < reply.number("request_delay") <= 60
    again = site.ask(SECOND, hostid=hostid(reply))
    assert 0 < again.number("next_rpc_delay") <= 600
    assert "no_rsc_apps" not in again


@pytest.mark.parametrize("name", ["", "get_project_config.php", "download/FILE"])
def test_section_1_pages_are_answered_at_once_and_as_they_are(site: Site, name: str) -> None:
    script = script_of(site)
    answer = site.get(
        name.replace("FILE", script),
        **{
            "Accept-Encoding": "deflate, gzip, br, zstd",
            "User-Agent": "BOINC client (x86_64-pc-linux-gnu 7.20.5)",
        },
    )
    assert answer.status_code == 200
    assert "Content-Encoding" not in answer.headers


def test_section_3_the_scheduler_is_where_the_master_page_says(site: Site) -> None:
    link = re.search(r'^<link rel="boinc_scheduler" href="([^"]+)">$', site.get("").text, re.M)
    assert link
    address = link[1].removeprefix(site.settings.url)
    answer = site.app.test_client().post(address, data=site.request(FIRST))
    assert "<hostid>" in answer.text


def test_section_5_requests_of_a_bad_key_are_not_read_further(site: Site) -> None:
    long = captures()[FIRST].replace(b"</scheduler_request>", b"<x>" * 50_000)
    answer = site.post("scheduler", long)
    assert "Invalid or missing account key" in answer.text


@pytest.mark.parametrize(("capture", "is_there"), [("run3_019_trickle", True), (SECOND, False)])
def test_section_12_messages_are_acknowledged_when_there_are_any(
    site: Site, capture: str, is_there: bool
) -> None:
    given = hostid(site.ask())
    assert ("message_ack" in site.ask(capture, hostid=given)) == is_there


def test_section_12_what_this_server_never_gave_is_aborted(site: Site) -> None:
    given = hostid(site.ask())
    aborts = [item.text("name") for item in site.ask(SECOND, hostid=given).all("result_abort")]
    held = re.findall(rb"<other_result>\s*<name>([^<]+)", captures()[SECOND])
    assert sorted(aborts) == sorted(name.decode() for name in held)


def test_section_14_a_first_request_whose_reply_was_damaged_comes_again_as_a_later_one(
    site: Site,
) -> None:
    given = hostid(site.ask())
    # No longer the first in the client's eyes, but still without a number.
    again = site.ask("run2_078_malformed", hostid=0, host_cpid="ab" * 16)
    assert hostid(again) == given
    assert site.rows("SELECT count(*) FROM client") == [(1,)]


def test_section_14_whoever_has_a_bad_key_loses_no_work(site: Site) -> None:
    lease = lend(site, MANIFEST)
    site.ask(SECOND, hostid=lease.client, authenticator="wrong")
    assert site.rows("SELECT client FROM lease") == [(lease.client,)]


def test_section_14_while_the_database_is_away_a_client_keeps_what_it_would_report(
    site: Site, away: Flask
) -> None:
    body = site.request("run1_041_ok")
    answer = away.test_client().post("/boinc/scheduler", data=body)
    assert answer.status_code == 200
    assert "<project_is_down/>" in answer.text
    assert "<result_ack>" not in answer.text


def test_a_client_that_asks_again_before_its_delay_gets_no_work(site: Site) -> None:
    site.bot(MANIFEST)
    with site.fed():
        first = site.ask(FIRST)
        assert first.all("result")
        soon = site.ask(FIRST, hostid=hostid(first), rpc_seqno=1)
        assert soon.all("result") == []
        assert soon.number("request_delay") >= site.settings.boinc_delay_seconds
        site.conn.execute("UPDATE client SET seen_at = seen_at - interval '1 minute'")
        later = site.ask(FIRST, hostid=hostid(first), rpc_seqno=2)
        assert later.all("result")
