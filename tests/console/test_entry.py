"""Who gets in, how, and what others get instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import requests
from tests.console.browser import Visitor
from tests.console.stage import Stage
from tests.factories import HOST, make_client, make_host, make_key, make_owner

from gridbot_server.boinc import first_start
from gridbot_server.boinc.protocol.pages import password_hash
from gridbot_server.settings import Settings
from gridbot_server.storage import db

HTML = {"Accept": "text/html"}
Site = tuple[str, Stage]


def token_in(page: str) -> str:
    found = re.search(r'name="form_token" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def logged_in(url: str, key: str) -> requests.Session:
    """A session without a browser."""
    session = requests.Session()
    session.headers.update(HTML)
    page = session.get(f"{url}/login").text
    found = session.post(f"{url}/login", data={"key": key, "form_token": token_in(page)})
    assert found.status_code == 200, found.text
    return session


def test_a_key_lets_a_person_in_and_to_where_they_wanted(guest: Visitor, own_site: Site) -> None:
    stage = own_site[1]
    page = guest.log_in(stage.user_key, f"/bots/{stage.busy}")
    assert page.url.endswith(f"/bots/{stage.busy}")
    assert page.locator("h1").inner_text() == "linkage-scan"
    page.click("text=Log out")
    assert page.url.endswith("/login")
    assert guest.open("/").url.endswith("/login")


def test_a_wrong_key_is_refused_in_place(guest: Visitor) -> None:
    page = guest.log_in("gb_user_wrong")
    assert "unknown, expired, revoked" in page.locator("[role=alert]").inner_text()
    assert guest.context.cookies()[0]["name"] == "gridbot_visitor"


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    guest: Visitor, own_site: Site
) -> None:
    guest.log_in(own_site[1].user_key)
    (cookie,) = guest.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (
        "gridbot_session", True, "Lax",
    )  # fmt: skip
    assert guest.page.evaluate("document.cookie") == ""


def test_a_session_that_has_expired_asks_to_log_in_again(
    guest: Visitor, own_site: Site, conn: db.Connection
) -> None:
    guest.log_in(own_site[1].user_key)
    conn.execute("UPDATE console_session SET expires_at = now() - interval '1 second'")
    assert guest.open("/machines").url.endswith("/login?next=/machines")


def test_a_session_ends_with_its_key(own_site: Site, conn: db.Connection) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    conn.execute("UPDATE token SET revoked_at = now()")
    assert session.get(f"{url}/").url.endswith("/login")


def test_keys_of_machines_let_nobody_in(own_site: Site, conn: db.Connection) -> None:
    url, owner = own_site[0], make_owner(conn, "eve")
    used_up = make_key(conn, owner, "join", uses=1, expires_at="yesterday")
    invitation = make_key(conn, owner, "join", uses=1, expires_at="tomorrow")
    for key in (used_up, invitation, make_key(conn, owner, "metrics"), ""):
        page = requests.get(f"{url}/login", headers=HTML)
        form = {"key": key, "form_token": token_in(page.text)}
        found = requests.post(f"{url}/login", data=form, cookies=page.cookies, headers=HTML)
        assert found.status_code == 403


def test_a_session_of_an_invitation_ends(own_site: Site, conn: db.Connection) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    conn.execute("UPDATE token SET scope = 'join', uses = 3, expires_at = now() + interval '1 day'")
    assert session.get(f"{url}/machines").url.endswith("/login?next=/machines")


CHANGES_OF_AN_ACCOUNT: dict[str, dict[str, str]] = {
    "/machines/{host}/venue": {"venue": "work"},
    "/machines/{host}/forget": {},
    "/machines/preferences": {"preference": "hours=22:00-06:00", "venue": "default"},
    "/machines/share": {"share": "50", "venue": "work"},
    "/machines/team": {"team": "linkers", "do": "found"},
    "/machines/public": {"public": "yes"},
    "/machines/{host}/leave": {},
}


def changes_of(url: str, session: requests.Session, host: int) -> list[int]:
    """Ask for every change of an account; the statuses."""
    token = token_in(session.get(f"{url}/machines").text)
    return [
        session.post(
            url + path.format(host=host), data={**form, "form_token": token}, allow_redirects=False
        ).status_code
        for path, form in CHANGES_OF_AN_ACCOUNT.items()
    ]


def test_a_key_that_joins_sees_its_machines_and_changes_nothing(
    own_site: Site, conn: db.Connection
) -> None:
    url, owner = own_site[0], make_owner(conn, "eve")
    host = make_host(conn, owner)
    make_client(conn, owner, host)
    session = logged_in(url, make_key(conn, owner, "join"))
    assert session.get(f"{url}/").url == f"{url}/machines"
    assert session.get(f"{url}/bots/{own_site[1].busy}").status_code == 403
    assert 'action="/machines' not in session.get(f"{url}/machines").text
    assert changes_of(url, session, host) == [403] * len(CHANGES_OF_AN_ACCOUNT)
    assert "a key of scope user" in session.get(f"{url}/machines").text


def test_a_volunteers_password_changes_the_account_and_its_key_does_not(
    own_site: Site, conn: db.Connection, tmp_path: Path
) -> None:
    first_start.ensure_keys(conn, Settings(data=tmp_path))
    url, email = own_site[0], "ann@example.com"
    made = {
        "email_addr": email, "passwd_hash": password_hash(email, "right"), "user_name": "Ann",
    }  # fmt: skip
    client = {"User-Agent": "BOINC client (x86_64-pc-linux-gnu 7.20.5)"}
    answer = requests.get(f"{url}/boinc/create_account.php", params=made, headers=client).text
    key = re.search("<authenticator>(.*)</authenticator>", answer)
    assert key is not None
    row = conn.execute("SELECT id FROM owner ORDER BY id DESC LIMIT 1").fetchone()
    assert row is not None
    host = make_host(conn, row[0])
    make_client(conn, row[0], host)
    assert set(changes_of(url, logged_in(url, key[1]), host)) == {403}
    by_password = requests.Session()
    by_password.headers.update(HTML)
    token = token_in(by_password.get(f"{url}/login").text)
    form = {"email": email, "password": "right", "form_token": token}
    assert by_password.post(f"{url}/login", data=form).url == f"{url}/machines"
    assert set(changes_of(url, by_password, host)) == {303}


def test_operators_see_each_their_own_machines_and_certificate(
    own_site: Site, conn: db.Connection
) -> None:
    url, stage = own_site
    owner = make_owner(conn, "second", operator=True)
    make_client(conn, owner, make_host(conn, owner, {**HOST, "Name": "second-room"}))
    first, second = (
        logged_in(url, key) for key in (stage.operator_key, make_key(conn, owner, "operator"))
    )
    for _ in range(2):
        for query in ("", "?live"):
            pages = [session.get(f"{url}/machines{query}").text for session in (first, second)]
            assert ["server-room" in page for page in pages] == [True, False]
            assert ["second-room" in page for page in pages] == [False, True]
            address = f"{url}/machines/certificate{query}"
            names = [session.get(address).text.count("second") for session in (first, second)]
            assert (names[0], names[1] > 0) == (0, True)


def test_of_many_machines_those_seen_last_are_told_as_they_are(
    own_site: Site, conn: db.Connection
) -> None:
    owner = make_owner(conn, "many")
    for number in range(102):
        make_client(conn, owner, make_host(conn, owner, {**HOST, "Name": f"node{number}"}))
    page = logged_in(own_site[0], make_key(conn, owner)).get(f"{own_site[0]}/machines").text
    assert "node101" in page
    assert "Has left" not in page


def test_a_mailbox_is_added_confirmed_and_removed_by_its_owner(
    own_site: Site, conn: db.Connection
) -> None:
    url, owner = own_site[0], make_owner(conn, "eve")
    session, others = logged_in(url, make_key(conn, owner)), logged_in(url, own_site[1].user_key)

    def post(who: requests.Session, path: str, **form: str) -> str:
        token = token_in(who.get(f"{url}/notices").text)
        return who.post(f"{url}/notices{path}", data={**form, "form_token": token}).text

    assert "Code from the mail" in post(session, "", mailbox="eve@example.org")
    row = conn.execute("SELECT id, code FROM notice_address WHERE owner = %s", [owner]).fetchone()
    assert row is not None
    address, code = row
    assert "not the one that was mailed" in post(session, f"/{address}/confirm", code="WRONG")
    assert "eve@example.org" not in post(others, f"/{address}/confirm", code=code)
    page = post(session, f"/{address}/confirm", code=code)
    assert re.findall(r'<td data-label="State">(.*?)</td>', page) == ["good"]
    assert "Code from the mail" not in session.get(f"{url}/notices").text
    assert "None yet" in post(session, f"/{address}/remove")


def test_forms_that_say_nonsense_are_refused_in_place(own_site: Site) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    token = token_in(session.get(f"{url}/").text)
    nonsense = [
        ("name", {"name": ""}),
        ("name", {}),
        ("retry", {"job": str(2**63)}),
        ("retry", {"job": "9" * 9000}),
        ("retry", {"job": "all"}),
    ]
    for verb, form in nonsense:
        sent = {**form, "form_token": token}
        refused = session.post(f"{url}/bots/{stage.busy}/{verb}", data=sent)
        assert (refused.status_code, "This did not work" in refused.text) == (400, True), form
    assert session.get(f"{url}/login?next=//[").status_code == 200


@pytest.mark.parametrize("token", [None, "", "0" * 64])
def test_a_forged_form_changes_nothing(own_site: Site, token: str | None) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    form = {} if token is None else {"form_token": token}
    refused = session.post(f"{url}/bots/{stage.busy}/hold", data=form)
    assert (refused.status_code, "not of your session" in refused.text) == (403, True)
    assert ">running<" in session.get(f"{url}/bots/{stage.busy}").text


def test_a_form_of_another_session_is_forged(own_site: Site) -> None:
    url, stage = own_site
    other = token_in(logged_in(url, stage.operator_key).get(f"{url}/").text)
    session = logged_in(url, stage.user_key)
    refused = session.post(f"{url}/bots/{stage.busy}/hold", data={"form_token": other})
    assert refused.status_code == 403


def test_the_form_of_the_login_cannot_be_forged_either(own_site: Site) -> None:
    url, stage = own_site
    assert requests.post(f"{url}/login", data={"key": stage.user_key}).status_code == 403


def test_guessing_keys_is_slowed_down_and_a_right_one_costs_nothing(own_site: Site) -> None:
    url, stage = own_site
    for _ in range(3):
        logged_in(url, stage.user_key)
    page = requests.get(f"{url}/login", headers=HTML)
    form = {"key": "gb_user_guess", "form_token": token_in(page.text)}
    answers = [
        requests.post(f"{url}/login", data=form, cookies=page.cookies).status_code
        for _ in range(35)
    ]
    assert answers[:30] == [403] * 30
    assert 429 in answers[30:]


def test_a_link_lets_its_maker_in_once(guest: Visitor, own_site: Site) -> None:
    url, stage = own_site
    key = {"Authorization": f"Bearer {stage.user_key}"}
    made = requests.post(f"{url}/api/v1/console/links", headers=key).json()["url"]
    path = made[made.index("/enter/") :]
    page = guest.open(path)
    assert page.locator("nav a").first.inner_text() == "BOTs"
    guest.context.clear_cookies()
    assert "used already" in guest.open(path).locator("[role=alert]").inner_text()


def test_a_link_on_another_site_must_be_confirmed(own_site: Site) -> None:
    url, stage = own_site
    key = {"Authorization": f"Bearer {stage.user_key}"}
    made = requests.post(f"{url}/api/v1/console/links", headers=key).json()["url"]
    path = url + made[made.index("/enter/") :]
    session = requests.Session()
    page = session.get(path, headers={**HTML, "Sec-Fetch-Site": "cross-site"})
    assert "gridbot_session" not in session.cookies
    session.post(path, data={"form_token": token_in(page.text)}, headers=HTML)
    assert "gridbot_session" in session.cookies


def test_what_others_own_does_not_exist(own_site: Site) -> None:
    url, stage = own_site
    session = logged_in(url, stage.user_key)
    paths = (
        "", "/policy", "/jobs/0", "/results.jsonl", "/archive.tar", "/logs.jsonl",
        "/outputs/0/stdout", "/pictures/0/x.png",
    )  # fmt: skip
    for path in paths:
        theirs = session.get(f"{url}/bots/{stage.others}{path}")
        absent = session.get(f"{url}/bots/999999{path}")
        assert (theirs.status_code, absent.status_code) == (404, 404), path
    token = token_in(session.get(f"{url}/").text)
    for verb in ("hold", "resume", "cancel", "retry", "close", "name", "policy"):
        form = {"form_token": token, "confirm": "yes", "name": "mine"}
        refused = session.post(f"{url}/bots/{stage.others}/{verb}", data=form)
        assert refused.status_code == 404, verb


def test_an_operator_sees_what_all_own_and_others_no_page_of_operators(own_site: Site) -> None:
    url, stage = own_site
    operator, user = logged_in(url, stage.operator_key), logged_in(url, stage.user_key)
    assert operator.get(f"{url}/bots/{stage.busy}").status_code == 200
    for path in ("/operations", "/overlay"):
        assert operator.get(url + path).status_code == 200
        assert user.get(url + path).status_code == 403
    assert "other-scan" not in user.get(f"{url}/").text


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example/", "/\\evil.example", "//[", ""]
)
def test_no_login_leads_elsewhere(own_site: Site, path: str) -> None:
    url, stage = own_site
    session = requests.Session()
    form = {
        "key": stage.user_key, "next": path,
        "form_token": token_in(session.get(f"{url}/login").text),
    }  # fmt: skip
    found = session.post(f"{url}/login", data=form, allow_redirects=False)
    assert found.headers["Location"] == "/"


def test_programs_that_speak_json_find_at_the_root_what_they_did(own_site: Site) -> None:
    for accept in ("*/*", "application/json"):
        found = requests.get(own_site[0], headers={"Accept": accept})
        assert (found.status_code, found.json()["error"]) == (404, "NotFound")


def test_the_cookie_needs_tls_where_the_server_has_it(own_site: Site, tmp_path: Path) -> None:
    from gridbot_server.web.app import create_app

    settings = Settings(data=tmp_path / "tls", public_url="https://grid.example.org")
    found = create_app(settings).test_client().get("/login", headers=HTML)
    assert "Secure" in found.headers["Set-Cookie"]
