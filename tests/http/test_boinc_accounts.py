"""Claims about accounts that are looked up and made from a BOINC client."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from tests.factories import make_owner
from tests.http.boinc_site import FIRST, Site, opened
from werkzeug.test import TestResponse

from gridbot_server.boinc.protocol.pages import password_hash
from gridbot_server.settings import Settings
from gridbot_server.storage import db
from gridbot_server.web.app import create_app


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


def test_behind_a_proxy_that_does_not_say_who_asks_nobody_is_locked_out(
    settings: Settings, conn: db.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    known = replace(settings, boinc_accounts=True, behind_proxy=True)
    for site in opened(known, conn):
        answers = [number(ask(site, "lookup", f"u{i}@example.com", "x")) for i in range(40)]
        assert answers == [-136] * 40
        answers = [number(ask(site, "lookup", "ann@example.com", f"{i}")) for i in range(8)]
        assert answers == [-136] * 5 + [-183] * 3
        said = [record for record in caplog.records if "X-Forwarded-For" in record.message]
        assert len(said) == 1


def test_web_processes_count_guesses_together(settings: Settings, conn: db.Connection) -> None:
    known = replace(settings, boinc_accounts=True)
    for site in opened(known, conn):
        other = replace(site, app=create_app(known))
        ask(site, "create", "ann@example.com", "right")
        sites = [site, other] * 4
        answers = [number(ask(each, "lookup", "ann@example.com", "x")) for each in sites]
        assert answers == [-136] * 5 + [-183] * 3
        other.app.extensions["gridbot"].close()


def join(site: Site, key: str, count: int) -> list[int]:
    """How so many machines fare that join with a key in our own protocol."""
    headers = {"Authorization": f"Bearer {key}"}
    answers = [
        site.app.test_client().post(
            "/api/v1/clients", json={"host": {}, "mac": f"{number}"}, headers=headers
        )
        for number in range(count)
    ]
    return [answer.status_code for answer in answers]


def test_an_account_that_anybody_made_gets_few_hosts_whatever_they_speak(site: Site) -> None:
    made = re.search("<authenticator>(.+)</", ask(site, "create", "ann@example.com", "right"))
    assert made
    assert join(site, made[1], 52) == [201] * 50 + [503] * 2
    assert site.rows("SELECT count(*) FROM client JOIN host ON host.id = client.host") == [(50,)]
    refused = site.post("scheduler", site.request(FIRST, authenticator=made[1]))
    assert "many new hosts of this account" in refused.text
    assert join(site, site.key, 52) == [201] * 52


@pytest.mark.parametrize(
    "query",
    [
        "",
        "email_addr=&passwd_hash=",
        "email_addr=ann%40example.com&passwd_hash=",
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


# ------------------------------------------------------------------- what a volunteer decides


def decide(site: Site, decision: str, password: str = "right", team: str = "") -> TestResponse:
    form = {"email": "Ann@example.com", "password": password, "decision": decision, "team": team}
    return site.app.test_client().post("/boinc/account", data=form)


def decided(site: Site) -> list[Any]:
    return site.rows(
        "SELECT is_public, team.name FROM volunteer v LEFT JOIN team ON team.id = v.team"
        " JOIN boinc_account b ON b.owner = v.owner"
    )


def found_team(site: Site, name: str) -> None:
    owner = make_owner(site.conn, "founder")
    site.conn.execute("INSERT INTO team (name, founder) VALUES (%s, %s)", [name, owner])


def test_who_made_an_account_agrees_and_joins_a_team_with_the_password(site: Site) -> None:
    ask(site, "create", "ann@example.com", "right")
    found_team(site, "<Owls>")
    page = decide(site, "nothing")
    assert "0.00 credit, in no team, not named in the statistics" in page.text
    assert decided(site) == []
    decide(site, "public")
    page = decide(site, "join", team="<Owls>")
    assert (page.status_code, page.mimetype) == (200, "text/html")
    assert "in the team &lt;Owls&gt;, named in the statistics" in page.text
    assert decided(site) == [(True, "<Owls>")]
    decide(site, "private")
    decide(site, "leave")
    assert decided(site) == [(False, None)]


def test_the_form_offers_what_may_be_decided(site: Site) -> None:
    ask(site, "create", "ann@example.com", "right")
    found_team(site, "Owls")
    offered = re.findall(r'<option value="(\w+)">', site.get("account").text)
    assert len(offered) == 5
    answers = [decide(site, decision, team="Owls").status_code for decision in offered]
    assert answers == [200] * 5


def test_nothing_is_decided_without_the_password_and_guesses_are_counted(site: Site) -> None:
    key = re.search(r"<authenticator>(\w+)", ask(site, "create", "ann@example.com", "right"))
    assert key
    # Jobs can read the key; the account's owner alone knows the password.
    answers = [decide(site, "public", wrong).status_code for wrong in ("", key[1], "a", "b", "c")]
    assert answers == [403] * 5
    assert number(ask(site, "lookup", "ann@example.com", "d")) == -136
    assert decide(site, "public", "e").status_code == 503
    assert number(ask(site, "lookup", "ann@example.com", "right")) == -183
    assert decided(site) == []


@pytest.mark.parametrize(
    ("decision", "team", "status"),
    [
        ("join", "Larks", 404),
        ("join", "", 400),
        ("join", "ow\0ls", 400),
        ("join", "x" * 5000, 413),
        ("found", "Owls", 400),
        ("", "Owls", 400),
    ],
)
def test_an_odd_decision_is_refused_and_changes_nothing(
    site: Site, decision: str, team: str, status: int
) -> None:
    ask(site, "create", "ann@example.com", "right")
    assert decide(site, decision, team=team).status_code == status
    assert decided(site) == []


def test_while_the_database_is_away_the_project_is_down(settings: Settings) -> None:
    app = create_app(replace(settings, dsn="host=/nonexistent dbname=none", boinc_accounts=True))
    app.extensions["gridbot"].pool.timeout = 0.1
    for page in ("lookup", "create"):
        url = f"/boinc/{page}_account.php?email_addr=a%40b&passwd_hash={'0' * 32}"
        answer = app.test_client().get(url)
        assert (answer.status_code, number(answer.text)) == (200, -183)
    app.extensions["gridbot"].close()
