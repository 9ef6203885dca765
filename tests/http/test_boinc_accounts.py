"""Claims about accounts that are looked up and made from a BOINC client."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest
from tests.http.boinc_site import Site, opened

from gridbot_server import db
from gridbot_server.app import create_app
from gridbot_server.boinc.pages import password_hash
from gridbot_server.settings import Settings


@pytest.fixture
def site(settings: Settings, conn: db.Connection) -> Iterator[Site]:
    """A server on which anybody may make an account."""
    yield from opened(replace(settings, boinc_accounts=True, web_workers=1), conn)


def ask(site: Site, page: str, email: str, password: str, name: str = "Ann") -> str:
    """What a client gets that escapes its arguments as a stock client does."""
    values = {"email_addr": email, "passwd_hash": password_hash(email, password), "user_name": name}
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in values.items())
    return site.get(f"{page}_account.php?{query}").text


def number(answer: str) -> int:
    """The error's number, 0 where there was none."""
    found = re.search(r"<error_num>(-\d+)</error_num>", answer)
    assert found or "<authenticator>" in answer
    return int(found[1]) if found else 0


def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(site: Site) -> None:
    ask(site, "create", "ann@example.com", "right")
    wrong = ask(site, "lookup", "ann@example.com", "wrong")
    assert ask(site, "lookup", "bob@example.com", "wrong") == wrong
    assert number(wrong) == -136


def test_passwords_are_not_guessed_for_long_and_the_right_one_must_wait_too(site: Site) -> None:
    ask(site, "create", "ann@example.com", "right")
    assert number(ask(site, "lookup", "ann@example.com", "right")) == 0
    answers = [number(ask(site, "lookup", "ann@example.com", f"{i}")) for i in range(8)]
    assert answers == [-136] * 5 + [-183] * 3
    assert number(ask(site, "lookup", "Ann@example.com", "right")) == -183
    assert number(ask(site, "create", "ann@example.com", "right")) == -183
    assert number(ask(site, "lookup", "bob@example.com", "right")) == -136


def test_creation_does_not_help_to_guess(site: Site) -> None:
    ask(site, "create", "ann@example.com", "right")
    answers = [number(ask(site, "create", "ann@example.com", f"{i}")) for i in range(8)]
    assert answers == [-137] * 5 + [-183] * 3


def test_an_address_asks_for_few_unknown_accounts(site: Site) -> None:
    answers = [number(ask(site, "lookup", f"u{i}@example.com", "x")) for i in range(40)]
    assert answers == [-136] * 30 + [-183] * 10


def test_an_address_makes_few_accounts(site: Site) -> None:
    answers = [number(ask(site, "create", f"u{i}@example.com", "x")) for i in range(60)]
    assert answers == [0] * 50 + [-183] * 10
    assert site.rows("SELECT count(*) FROM boinc_account") == [(50,)]


def test_behind_a_proxy_people_are_told_apart(settings: Settings, conn: db.Connection) -> None:
    known = replace(settings, boinc_accounts=True, web_workers=1, behind_proxy=True)
    for site in opened(known, conn):
        query = f"lookup_account.php?passwd_hash={'0' * 32}&email_addr="

        def look(i: int, address: str, site: Site = site, query: str = query) -> int:
            said = {"X-Forwarded-For": f"made-up, {address}"}
            return number(site.get(f"{query}u{i}%40example.com", **said).text)

        assert [look(i, "192.0.2.1") for i in range(31)] == [-136] * 30 + [-183]
        assert look(99, "192.0.2.2") == -136


@pytest.mark.parametrize(
    "query",
    [
        "",
        "email_addr=&passwd_hash=",
        "email_addr=ann%40example.com",
        "email_addr=ann%40example.com&passwd_hash=" + "G" * 32,
        "email_addr=ann%40example.com&passwd_hash=" + "0" * 33,
        "email_addr=ann%40example.com&passwd_hash=" + password_hash("ann@example.com", ""),
        "email_addr=a%00nn%40example.com&passwd_hash=" + "0" * 32,
        "email_addr=%e2%80%ae%40example.com&passwd_hash=" + "0" * 32,
        "email_addr=" + "a" * 300 + "%40example.com&passwd_hash=" + "0" * 32,
        "email_addr=a%40b%40c&passwd_hash=" + "0" * 32,
        "server_assigned_cookie=1&server_cookie=abc",
        "ldap_auth=1&ldap_uid=ann&passwd=secret",
        "email_addr[]=ann%40example.com&passwd_hash=%",
    ],
)
@pytest.mark.parametrize("page", ["lookup", "create"])
def test_odd_arguments_are_refused_and_make_nothing(
    site: Site, page: str, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert number(site.get(f"{page}_account.php?{query}&user_name=Ann").text) in (-205, -206)
    assert site.rows("SELECT count(*) FROM boinc_account") == [(0,)]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x00", "\N{RIGHT-TO-LEFT OVERRIDE}x", "x" * 101]
)
def test_a_name_that_cannot_be_shown_is_refused(site: Site, name: str) -> None:
    assert number(ask(site, "create", "ann@example.com", "right", name)) == -188
    assert site.rows("SELECT count(*) FROM boinc_account") == [(0,)]


def test_a_name_is_kept_as_it_was_typed(site: Site) -> None:
    assert number(ask(site, "create", "ann@example.com", "right", "Foo Bär <b>&amp;")) == 0
    assert site.rows("SELECT name FROM boinc_account") == [("Foo Bär <b>&amp;",)]


def test_while_the_database_is_away_the_project_is_down(settings: Settings) -> None:
    app = create_app(replace(settings, dsn="host=/nonexistent dbname=none", boinc_accounts=True))
    app.extensions["gridbot"].pool.timeout = 0.1
    for page in ("lookup", "create"):
        url = f"/boinc/{page}_account.php?email_addr=a%40b&passwd_hash={'0' * 32}"
        answer = app.test_client().get(url)
        assert (answer.status_code, number(answer.text)) == (200, -183)
    app.extensions["gridbot"].close()
