"""Claims about new passwords of volunteers' accounts, by a link that is mailed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest
from tests.http.boinc_site import FIRST, Site, hostid, opened
from tests.http.relay import Relay, relaying
from werkzeug.test import TestResponse

from gridbot_server.boinc.protocol.pages import password_hash
from gridbot_server.cycles.password_links import run_once
from gridbot_server.settings import Settings
from gridbot_server.storage import db

EMAIL, OLD, NEW = "ann@example.com", "old secret", "new secret"
CLIENT = "BOINC client (x86_64-pc-linux-gnu 7.20.5)"
ON_ITS_WAY = "If there is an account with this address"
NOT_GOOD = "This link was used already, is older than an hour, or was mailed to another address."


@pytest.fixture
def relay() -> Iterator[Relay]:
    with relaying() as found:
        yield found


@pytest.fixture
def site(settings: Settings, conn: db.Connection, relay: Relay) -> Iterator[Site]:
    """A server on which Ann has made an account."""
    known = replace(settings, boinc_accounts=True, web_workers=1, mail_relay=relay.address)
    for made in opened(known, conn):
        account(made, "create", OLD)
        yield made


def account(site: Site, page: str, password: str, program: str = CLIENT) -> str:
    """The key that a program is told of Ann's account; "" without one."""
    shown = f"email_addr={quote(EMAIL)}&passwd_hash={password_hash(EMAIL, password)}&user_name=Ann"
    answer = site.get(f"{page}_account.php?{shown}", **{"User-Agent": program}).text
    found = re.search("<authenticator>(.*)</authenticator>", answer)
    return found[1] if found else ""


class Browser:
    """A browser of somebody who may not be logged in."""

    def __init__(self, site: Site) -> None:
        self._client = site.app.test_client()

    def get(self, path: str) -> TestResponse:
        return self._client.get(path)

    def post(self, path: str, form_of: str, **form: str) -> TestResponse:
        """Send the form of a page."""
        token = re.search(r'name="form_token" value="(\w+)"', self.get(form_of).text)
        assert token
        return self._client.post(path, data={**form, "form_token": token[1]})

    def forgets(self, email: str = EMAIL) -> TestResponse:
        return self.post("/login/forgotten", "/login/forgotten", email=email)

    def sets(self, code: str, password: str = NEW, email: str = EMAIL) -> TestResponse:
        form = {"code": code, "email": email, "password": password}
        return self.post("/login/password", "/login", **form)

    def logs_in(self, password: str) -> int:
        form = {"email": EMAIL, "password": password, "next": "/machines"}
        return self.post("/login", "/login", **form).status_code


def mailed(site: Site, relay: Relay) -> list[str]:
    """Mail what is due; the codes of the links."""
    relay.lines.clear()
    while run_once(site.conn, site.settings):
        pass
    link = re.escape(f"{site.settings.url}/login/password?code=")
    codes = (re.search(rf"^ +{link}([\w-]{{43}})$", text, re.MULTILINE) for text in relay.texts)
    return [code[1] for code in codes if code]


def code_for(site: Site, relay: Relay) -> str:
    assert Browser(site).forgets().status_code == 200
    (code,) = mailed(site, relay)
    return code


def test_a_link_by_mail_sets_a_new_password_which_logs_in(site: Site, relay: Relay) -> None:
    ann = Browser(site)
    code = code_for(site, relay)
    assert f"To: {EMAIL}" in relay.lines
    for _ in range(2):  # to look at the form uses nothing up
        assert ann.get(f"/login/password?code={code}").status_code == 200
    answer = ann.sets(code)
    assert (answer.status_code, answer.location) == (303, "/machines")
    assert [Browser(site).logs_in(password) for password in (OLD, NEW)] == [403, 303]
    assert account(site, "lookup", OLD) == ""
    assert account(site, "lookup", NEW) != ""


def test_machines_stay_attached_and_what_the_old_password_opened_is_closed(
    site: Site, relay: Relay
) -> None:
    machine, manager = account(site, "lookup", OLD), account(site, "lookup", OLD, "libcurl/7.88")
    weak = re.search("<weak_auth>(.*)</weak_auth>", managed(site, manager))
    assert weak
    thief = Browser(site)
    assert thief.logs_in(OLD) == 303
    assert thief.get("/machines").status_code == 200
    Browser(site).sets(code_for(site, relay))
    assert hostid(site.ask(FIRST, authenticator=machine)) > 0
    assert hostid(site.ask(FIRST, authenticator=weak[1], host_cpid="c" * 32)) > 0
    assert "<error_num>-136</error_num>" in managed(site, manager)
    assert thief.get("/machines").status_code == 303
    assert "<weak_auth>" in managed(site, account(site, "lookup", NEW, "libcurl/7.88"))
    assert site.rows("SELECT count(*) FROM boinc_account") == [(1,)]


def managed(site: Site, key: str) -> str:
    return site.get(f"am_get_info.php?account_key={key}").text


def test_a_link_is_good_once_for_an_hour_and_for_its_address_only(site: Site, relay: Relay) -> None:
    ann = Browser(site)
    code = code_for(site, relay)
    assert NOT_GOOD in ann.sets(code, email="bob@example.com").text
    assert NOT_GOOD in ann.sets("x" * 43).text
    site.conn.execute("UPDATE password_link SET expires_at = expires_at - interval '1 hour'")
    assert ann.get(f"/login/password?code={code}").status_code == 403
    assert NOT_GOOD in ann.sets(code).text
    site.conn.execute("UPDATE password_link SET expires_at = expires_at + interval '1 hour'")
    assert ann.sets(code).status_code == 303
    assert NOT_GOOD in Browser(site).sets(code, "a third secret").text
    assert account(site, "lookup", NEW) != ""


def test_with_one_link_the_others_of_the_account_are_used_up(site: Site, relay: Relay) -> None:
    first, second = code_for(site, relay), code_for(site, relay)
    assert Browser(site).sets(first).status_code == 303
    assert NOT_GOOD in Browser(site).sets(second, "a third secret").text


def test_nobody_learns_whether_an_address_has_an_account(site: Site, relay: Relay) -> None:
    known, unknown = (Browser(site).forgets(email) for email in (EMAIL, "bob@example.com"))
    pages = [re.sub(r'value="\w{64}"', "", page.text) for page in (known, unknown)]
    assert pages[0] == pages[1]
    assert ON_ITS_WAY in pages[0]
    kept = "SELECT mailbox IS NULL, hash IS NULL, octet_length(email) FROM password_link"
    assert site.rows(kept) == [(False, True, 32)] * 2  # the same is written of both
    assert len(mailed(site, relay)) == 1
    assert [line for line in relay.lines if line.startswith("To: ")] == [f"To: {EMAIL}"]
    assert site.rows("SELECT mailbox FROM password_link") == [(None,)] * 2


def test_three_links_a_day_are_mailed_to_a_person_and_the_fourth_is_answered_alike(
    site: Site, relay: Relay
) -> None:
    asked = [Browser(site).forgets() for _ in range(4)]
    assert all(ON_ITS_WAY in answer.text for answer in asked)
    assert len(mailed(site, relay)) == 3
    site.conn.execute("UPDATE password_link SET asked_at = asked_at - interval '25 hours'")
    assert len(code_for(site, relay)) == 43


def test_an_address_of_the_network_asks_for_few_links(site: Site) -> None:
    answers = [Browser(site).forgets(f"u{number}@example.com").status_code for number in range(12)]
    assert answers == [200] * 10 + [429] * 2


def test_only_the_hash_of_a_link_is_kept_and_its_code_stands_in_no_path(
    site: Site, relay: Relay
) -> None:
    code = code_for(site, relay)
    ((kept,),) = site.rows("SELECT p::text FROM password_link p")
    assert code not in kept
    assert Browser(site).get(f"/login/password/{code}").status_code == 404


def test_what_the_relay_does_not_take_is_mailed_later_with_another_link(
    site: Site, relay: Relay
) -> None:
    Browser(site).forgets()
    away = replace(site.settings, mail_relay="127.0.0.1:9")
    assert run_once(site.conn, away) == 0
    assert mailed(site, relay) == []  # not at once
    site.conn.execute("UPDATE password_link SET due_at = now()")
    (code,) = mailed(site, relay)
    assert Browser(site).sets(code).status_code == 303


def test_an_account_whose_key_an_operator_revoked_gets_no_link(site: Site, relay: Relay) -> None:
    site.conn.execute("UPDATE token SET revoked_at = now() WHERE label = 'made by a BOINC client'")
    assert ON_ITS_WAY in Browser(site).forgets().text
    assert mailed(site, relay) == []


def test_a_link_is_worth_nothing_once_an_operator_has_revoked_the_accounts_key(
    site: Site, relay: Relay
) -> None:
    code = code_for(site, relay)
    site.conn.execute("UPDATE token SET revoked_at = now() WHERE label = 'made by a BOINC client'")
    assert NOT_GOOD in Browser(site).sets(code).text
    assert account(site, "lookup", NEW) == ""


def test_who_asks_for_addresses_beside_that_of_an_account_keeps_no_mail_from_it(
    site: Site, relay: Relay
) -> None:
    for _ in range(3):
        assert ON_ITS_WAY in Browser(site).forgets("ann+x@example.com").text
    assert len(code_for(site, relay)) == 43


def test_a_mailbox_that_the_relay_refuses_keeps_no_mail_from_others(
    site: Site, relay: Relay
) -> None:
    bob = "bob@example.com"
    site.get(
        f"create_account.php?email_addr={quote(bob)}&passwd_hash={password_hash(bob, OLD)}"
        "&user_name=Bob"
    )
    relay.refused = bob
    for email in (bob, EMAIL):
        Browser(site).forgets(email)
    assert len(mailed(site, relay)) == 1


@pytest.mark.parametrize(("password", "fault"), [("short", "6 characters"), (OLD, "or had")])
def test_a_password_that_cannot_be_one_is_refused_and_the_link_stays_good(
    site: Site, relay: Relay, password: str, fault: str
) -> None:
    code = code_for(site, relay)
    answer = Browser(site).sets(code, password)
    assert (answer.status_code, fault in answer.text) == (400, True)
    assert Browser(site).sets(code).status_code == 303


@pytest.mark.parametrize(
    "email", ["", "ann", "a\r\nBcc: b@c.de", "a,b@example.com", "ä@example.com"]
)
def test_what_can_be_no_mailbox_is_refused(site: Site, email: str) -> None:
    answer = Browser(site).forgets(email)
    assert (answer.status_code, "no mail can be sent" in answer.text) == (400, True)
    assert site.rows("SELECT 1 FROM password_link") == []


def test_the_forms_cannot_be_forged(site: Site, relay: Relay) -> None:
    code = code_for(site, relay)
    client = site.app.test_client()
    form = {"code": code, "email": EMAIL, "password": NEW, "form_token": "0" * 64}
    for path in ("/login/password", "/login/forgotten"):
        assert client.post(path, data=form).status_code == 403
    assert account(site, "lookup", OLD) != ""


def test_boincs_manager_and_the_login_lead_there(site: Site) -> None:
    assert site.get("get_passwd.php").location == "/login/forgotten"
    assert 'href="/login/forgotten"' in Browser(site).get("/login").text


def test_a_server_without_a_relay_offers_none_of_it(
    settings: Settings, conn: db.Connection
) -> None:
    for site in opened(replace(settings, boinc_accounts=True), conn):
        for path in ("/login/forgotten", "/login/password?code=x", "/boinc/get_passwd.php"):
            assert Browser(site).get(path).status_code == 404
        assert "forgotten" not in Browser(site).get("/login").text
