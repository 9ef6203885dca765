"""Claims about what a project tells stock clients of itself, and asks of them."""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from http import HTTPStatus
from xml.etree import ElementTree

import pytest
from tests.boinc_captures import NAMES, captures
from tests.factories import make_key, make_lease, make_owner
from tests.http.boinc_site import FIRST, MANIFEST, Site, acks, lend, opened
from tests.http.conftest import Person

from gridbot_server.boinc.protocol.names import Lease
from gridbot_server.boinc.protocol.tags import Grammar, read
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.web.app import create_app

FEEDS = Grammar(
    root="scheduler_reply",
    inside={
        "": frozenset({"scheduler_reply"}),
        "scheduler_reply": frozenset({"rss_feeds"}),
        "rss_feeds": frozenset({"rss_feed"}),
    },
)
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


# ------------------------------------------------------------------------------------------- news

TITLE, TEXT = "New <b>data</b> & more", "First line ]]>\nsecond <script>"


def news(site: Site, scope: str = "operator") -> Person:
    """Somebody with a key of that scope."""
    owner = make_owner(site.conn, scope, operator=scope == "operator")
    return Person(site.app, make_key(site.conn, owner, scope), owner, scope)


def shown(html: str) -> str:
    """What a page shows of a text in HTML, that has no elements but ends of lines."""
    assert "<" not in html.replace("<br>", "")
    return unescape(html.replace("<br>", "\n"))


def test_news_reach_clients_as_a_feed_in_which_texts_stay_texts(
    settings: Settings, conn: db.Connection
) -> None:
    with site_of(settings, conn) as site:
        operator = news(site)
        for title, text in (("Older", "x"), (TITLE, TEXT)):
            posted = operator("POST", "/api/v1/news", json={"title": title, "text": text})
            assert posted.status_code == 201
        answer = site.post("scheduler", site.request(FIRST)).text
        told = read(answer, FEEDS).one("rss_feeds").one("rss_feed")
        assert told.number("poll_interval") > 0
        path = told.text("url").removeprefix("http://127.0.0.1:8765/boinc/")
        fetched = site.get(path)
        assert fetched.mimetype == "application/rss+xml"
        items = ElementTree.fromstring(fetched.data).findall("channel/item")
        found = [(shown(item.findtext("title", "")), item.findtext("guid")) for item in items]
        assert [title for title, _ in found] == [TITLE, "Older"]
        assert len({guid for _, guid in found}) == 2
        assert shown(items[0].findtext("description", "")) == TEXT
        at = parsedate_to_datetime(items[0].findtext("pubDate", ""))
        assert abs((datetime.now(UTC) - at).total_seconds()) < 3600


def test_twenty_items_are_in_the_feed_at_most(settings: Settings, conn: db.Connection) -> None:
    with site_of(settings, conn) as site:
        operator = news(site)
        for number in range(22):
            operator("POST", "/api/v1/news", json={"title": f"{number}", "text": "x"})
        titles = re.findall(r"<item>\n<title>(.*)</title>", site.get("notices.php").text)
        assert titles == [f"{number}" for number in range(21, 1, -1)]
        listed = operator("GET", "/api/v1/news?limit=2").json["news"]
        assert [item["title"] for item in listed] == ["21", "20"]


def test_only_operators_post_and_withdraw_news(settings: Settings, conn: db.Connection) -> None:
    with site_of(settings, conn) as site:
        operator, user = news(site), news(site, "user")
        item = {"title": "t", "text": "x"}
        assert user("POST", "/api/v1/news", json=item).status_code == 403
        posted = operator("POST", "/api/v1/news", json=item).json
        assert user("GET", "/api/v1/news").json == {"news": [posted]}
        assert user("DELETE", f"/api/v1/news/{posted['id']}").status_code == 403
        assert operator("DELETE", f"/api/v1/news/{posted['id']}").json == {"id": posted["id"]}
        assert operator("DELETE", f"/api/v1/news/{posted['id']}").status_code == 404
        assert "<item>" not in site.get("notices.php").text


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ({"title": "", "text": "x"}, "title"),
        ({"title": "a\nb", "text": "x"}, "title"),
        ({"title": "x" * 101, "text": "x"}, "title"),
        ({"title": "t", "text": ""}, "text"),
        ({"title": "t", "text": "x" * 5001}, "text"),
        ({"title": "t", "text": "\0"}, "text"),
    ],
)
def test_news_that_cannot_be_shown_are_refused(
    settings: Settings, conn: db.Connection, item: dict[str, str], fault: str
) -> None:
    with site_of(settings, conn) as site:
        answer = news(site)("POST", "/api/v1/news", json=item)
        assert (answer.status_code, fault in answer.json["detail"]) == (400, True)


def test_the_public_page_shows_the_news(settings: Settings, conn: db.Connection) -> None:
    with site_of(replace(settings, public_page=True), conn) as site:
        news(site)("POST", "/api/v1/news", json={"title": TITLE, "text": TEXT})
        page = site.app.test_client().get("/project").text
        assert "New &lt;b&gt;data&lt;/b&gt; &amp; more" in page
        assert "First line ]]&gt;<br>second &lt;script&gt;" in page
        link = "<link>http://127.0.0.1:8765/project</link>"
        assert link in site.get("notices.php").text


# ---------------------------------------------------------------------------------- terms of use

TERMS = "Be kind & patient.\n\nDo not <harm>."
ANN = "create_account.php?email_addr=ann%40example%2Ecom&user_name=Ann&passwd_hash=" + "0" * 32
AGREED = "&consent_flag=1&source=BOINC%20Manager"


def with_terms(settings: Settings, terms: str = TERMS) -> Settings:
    settings.terms_path.write_text(terms)
    return replace(settings, boinc_accounts=True)


def test_the_terms_of_use_reach_managers_as_lines_of_text(
    settings: Settings, conn: db.Connection
) -> None:
    with site_of(with_terms(settings), conn) as site:
        config = ElementTree.fromstring(site.get("get_project_config.php").data)
        assert shown(config.findtext("terms_of_use", "")) == TERMS
        settings.terms_path.unlink()
        assert "terms_of_use" not in site.get("get_project_config.php").text


def test_terms_that_nobody_can_read_let_managers_ask_later(
    settings: Settings, conn: db.Connection
) -> None:
    with site_of(with_terms(settings), conn) as site:
        settings.terms_path.write_bytes(b"\xff")
        for page in ("get_project_config.php", "create_account.php"):
            answer = site.get(page)
            assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            assert "terms of use cannot be read" in answer.text


@pytest.mark.parametrize("said", ["", "&consent_flag=0&source=x", "&consent_flag=1"])
def test_where_there_are_terms_nobody_makes_an_account_without_consent(
    settings: Settings, conn: db.Connection, said: str
) -> None:
    with site_of(with_terms(settings), conn) as site:
        assert "<error_num>-242</error_num>" in site.get(ANN + said).text
        assert site.rows("SELECT 1 FROM boinc_account") == []
        assert "<authenticator>" in site.get(ANN + AGREED).text
        assert "<authenticator>" in site.get(ANN + said).text  # it is there already


def test_it_is_kept_to_which_terms_somebody_agreed(settings: Settings, conn: db.Connection) -> None:
    with site_of(with_terms(settings), conn) as site:
        site.get(ANN + AGREED)
        settings.terms_path.unlink()
        site.get(ANN.replace("ann", "bob") + AGREED)
        digest = hashlib.sha256(TERMS.encode()).digest()
        query = "SELECT terms, agreed_at > now() - interval '1 hour' FROM boinc_account ORDER BY 1"
        assert site.rows(query) == [(digest, True), (None, None)]
