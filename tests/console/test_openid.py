"""An account at an OpenID provider logs in like the key that it was linked with."""

from __future__ import annotations

import html
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from flask import Response
from playwright.sync_api import Browser
from tests.console.browser import PHONE, Visitor
from tests.console.provider import CLIENT, SECRET, Provider
from tests.console.site import served
from tests.console.stage import Stage
from tests.console.test_entry import HTML, logged_in, token_in
from tests.console.test_pages import audit
from tests.http.loopback import serve

from gridbot_server.console import openid
from gridbot_server.storage import db

Site = tuple[str, Stage, Provider]
BACK = "/login/openid/back"


@pytest.fixture
def site(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with a provider beside it."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # of the provider, on the loopback
    provider = Provider("http://127.0.0.1:8765" + BACK)  # what the server says of itself
    with serve(provider.app) as provider.url:
        knobs = {
            "oidc_issuer": provider.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET,
        }  # fmt: skip
        with served(dsn, tmp_path, **knobs) as (url, stage):
            yield url, stage, provider


def agent() -> requests.Session:
    found = requests.Session()
    found.headers.update(HTML)
    return found


def at_provider(address: str, user: str) -> str:
    """Be somebody at the provider; where it sends the browser, as a path."""
    found = requests.get(f"{address}&user={user}", allow_redirects=False)
    assert found.status_code == 302, found.text
    return urlsplit(found.headers["Location"])._replace(scheme="", netloc="").geturl()


def left(url: str, session: requests.Session, path: str = "/") -> str:
    """Ask to log in; where that leads."""
    found = session.get(f"{url}/login/openid?next={path}", allow_redirects=False)
    assert found.status_code == 303, found.text
    return found.headers["Location"]


def begun_link(url: str, session: requests.Session) -> str:
    """Ask to link an account; where that leads."""
    token = token_in(session.get(f"{url}/logins").text)
    page = session.post(f"{url}/logins", data={"form_token": token}).text
    leads_to = re.search(r'<a class="button" href="([^"]+)"', page)
    assert leads_to is not None
    return html.unescape(leads_to[1])


def link(url: str, session: requests.Session, user: str) -> requests.Response:
    return session.get(url + at_provider(begun_link(url, session), user))


def enter(url: str, user: str, path: str = "/") -> requests.Response:
    session = agent()
    return session.get(url + at_provider(left(url, session, path), user))


def test_a_linked_account_logs_in_to_where_one_wanted_and_others_do_not(site: Site) -> None:
    url, stage, _ = site
    assert enter(url, "ann").status_code == 403
    session = logged_in(url, stage.user_key)
    assert ">ann " in link(url, session, "ann").text
    found = enter(url, "ann", f"/bots/{stage.busy}")
    assert found.url == f"{url}/bots/{stage.busy}"
    assert enter(url, "bob").status_code == 403
    assert enter(url, "ann", "//evil.example/").url == f"{url}/"
    token = token_in(session.get(f"{url}/logins").text)
    form = {"form_token": token, "issuer": site[2].url, "subject": "ann"}
    assert "None yet" in session.post(f"{url}/logins/remove", data=form).text
    assert enter(url, "ann").status_code == 403


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_pages_are_accessible_and_fit_on_a_phone(
    site: Site, browser: Browser, scheme: Literal["light", "dark"]
) -> None:
    url, stage, _ = site
    link(url, logged_in(url, stage.user_key), "a" * 200)
    context = browser.new_context(viewport=PHONE, color_scheme=scheme, bypass_csp=True)
    visitor = Visitor(url, context)
    audit(visitor.open("/login"))
    page = visitor.log_in(stage.user_key, "/logins")
    for _ in range(2):  # what is linked, and what leads to the provider
        audit(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        if button := page.locator("text=Link an account").all():
            button[0].click()
            page.wait_for_load_state()
    assert page.locator("text=Go on to").count() == 1
    assert (visitor.complaints, visitor.elsewhere) == ([], [])
    context.close()


def test_a_log_in_ends_with_its_key(site: Site, conn: db.Connection) -> None:
    url, stage, _ = site
    link(url, logged_in(url, stage.user_key), "ann")
    conn.execute("UPDATE token SET revoked_at = now()")
    assert enter(url, "ann").status_code == 403


def test_what_leads_to_the_provider_has_state_nonce_challenge_and_one_way_back(site: Site) -> None:
    url, _, provider = site
    first, second = (parse_qs(urlsplit(left(url, agent())).query) for _ in range(2))
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) >= 43
        assert first[name] != second[name]
    assert first["code_challenge_method"] == ["S256"]
    assert first["redirect_uri"] == [provider.back]
    assert first["scope"] == ["openid"]


def test_an_answer_is_good_once_and_only_in_the_browser_that_asked(site: Site) -> None:
    url, stage, _ = site
    link(url, logged_in(url, stage.user_key), "ann")
    session = agent()
    back = at_provider(left(url, session), "ann")
    assert requests.get(url + back, headers=HTML).status_code == 403  # no cookie at all
    other = agent()
    left(url, other)
    assert other.get(url + back).status_code == 403  # of another log-in
    assert session.get(url + back).url == f"{url}/"
    assert session.get(url + back).status_code == 403
    back = at_provider(left(url, session), "ann")
    assert session.get(url + back + "&iss=https://evil.example").status_code == 403


def test_a_code_is_worth_nothing_without_the_verifier_of_its_browser(site: Site) -> None:
    url, stage, _ = site
    link(url, logged_in(url, stage.user_key), "ann")
    victim, thief = agent(), agent()
    stolen = parse_qs(urlsplit(at_provider(left(url, victim), "ann")).query)["code"][0]
    state = parse_qs(urlsplit(left(url, thief)).query)["state"][0]
    found = thief.get(f"{url}{BACK}?code={stolen}&state={state}")
    assert found.status_code == 403
    assert "takes back its answer" in found.text


def test_only_the_session_that_began_it_links_an_account(site: Site) -> None:
    url, stage, _ = site
    victim, thief = logged_in(url, stage.operator_key), logged_in(url, stage.user_key)
    leads_to = begun_link(url, thief)
    planted = thief.cookies["gridbot_openid"]
    victim.cookies.set("gridbot_openid", planted)  # as a site beside ours may
    found = victim.get(url + at_provider(leads_to, "mallory"))
    assert found.status_code == 403
    assert "None yet" in victim.get(f"{url}/logins").text
    assert enter(url, "mallory").status_code == 403


def test_a_session_that_ended_meanwhile_links_nothing(site: Site) -> None:
    url, stage, _ = site
    session = logged_in(url, stage.user_key)
    leads_to = begun_link(url, session)
    session.post(f"{url}/logout", data={"form_token": token_in(session.get(f"{url}/").text)})
    assert session.get(url + at_provider(leads_to, "ann")).status_code == 403
    assert enter(url, "ann").status_code == 403


def test_a_log_in_begins_a_session_that_nobody_knew_before(site: Site) -> None:
    url, stage, _ = site
    link(url, logged_in(url, stage.user_key), "ann")
    session = agent()
    session.cookies.set("gridbot_session", "planted")
    session.get(url + at_provider(left(url, session), "ann"))
    values = [cookie.value for cookie in session.cookies if cookie.name == "gridbot_session"]
    assert "" not in values
    assert any(len(value or "") >= 43 for value in values)
    planted = requests.get(f"{url}/", headers=HTML, cookies={"gridbot_session": "planted"})
    assert planted.url.endswith("/login")


def test_a_refused_answer_is_forgotten_too(site: Site) -> None:
    url, stage, _ = site
    link(url, logged_in(url, stage.user_key), "ann")
    session = agent()
    back = at_provider(left(url, session), "ann")
    assert session.get(url + back.replace("state=", "state=x")).status_code == 403
    assert "gridbot_openid" not in session.cookies
    assert session.get(url + back).status_code == 403


def test_a_cookie_that_the_server_did_not_set_is_refused(site: Site) -> None:
    answer = {"state": "a", "code": "b"}
    for cookie in ("", "....", "a.b.c", "a.b.c.d.%ff", "[" * 2000, "a." * 5000):
        found = requests.get(site[0] + BACK, params=answer, cookies={"gridbot_openid": cookie})
        assert found.status_code == 403, cookie


def test_a_provider_that_names_itself_in_answers_does_so_in_each(site: Site) -> None:
    url, stage, provider = site
    provider.says["authorization_response_iss_parameter_supported"] = True
    session = agent()
    back = at_provider(left(url, session), "ann")
    assert session.get(url + back).status_code == 403
    session = logged_in(url, stage.user_key)
    back = at_provider(begun_link(url, session), "ann")
    assert session.get(f"{url}{back}&iss={provider.url}").status_code == 200
    assert enter(url, "ann").status_code == 403


def test_wrong_answers_are_limited_by_address(site: Site) -> None:
    url, _, _ = site
    found = [
        requests.get(
            f"{url}{BACK}?state=s&code={code}", cookies={"gridbot_openid": "s.n.v.."}
        ).status_code
        for code in range(32)
    ]
    assert set(found[:30]) == {403}
    assert found[-1] == 503


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda claims: {key: value for key, value in claims.items() if key != name}


WRONG: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (
    lambda claims: {**claims, "nonce": "another"},
    lambda claims: {**claims, "iss": "https://evil.example"},
    lambda claims: {**claims, "aud": "another"},
    lambda claims: {**claims, "aud": [CLIENT, "another"], "azp": "another"},
    lambda claims: {**claims, "exp": claims["iat"] - 120},
    lambda claims: {**claims, "sub": ["ann"]},
    *map(without, ("nonce", "iss", "aud", "sub", "exp", "iat")),
)


def test_a_token_with_a_wrong_claim_lets_nobody_in(site: Site) -> None:
    url, stage, provider = site
    link(url, logged_in(url, stage.user_key), "ann")
    right = provider.err
    for number, wrong in enumerate(WRONG):
        provider.err = wrong
        assert enter(url, "ann").status_code == 403, number
    provider.err = right
    assert enter(url, "ann").status_code == 200


def test_a_token_is_signed_by_a_key_of_the_provider(site: Site) -> None:
    url, stage, provider = site
    link(url, logged_in(url, stage.user_key), "ann")
    provider.algorithm = "HS256"  # with the client's own secret
    assert enter(url, "ann").status_code == 403


def test_a_provider_that_is_away_is_told_and_the_key_still_logs_in(site: Site) -> None:
    url, stage, provider = site
    provider.app.view_functions["describe"] = lambda: ("no", 500)
    found = agent().get(f"{url}/login/openid")
    assert found.status_code == 503
    assert "does not answer as it should" in found.text
    assert logged_in(url, stage.user_key).get(f"{url}/").url == f"{url}/"


def drops() -> Iterator[bytes]:
    while True:
        yield b" "
        time.sleep(0.02)  # as long as somebody reads


def test_an_answer_without_an_end_is_not_read_to_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, stage, provider = site
    monkeypatch.setattr(openid, "_ASKING_SECONDS", 1.0)
    asked = provider.app.view_functions
    for name in ("show_keys", "exchange"):
        for endless in (lambda: repeat(b" " * 10_000), drops):
            right, asked[name] = asked[name], lambda endless=endless: Response(endless())
            assert enter(url, "ann").status_code == 503
            asked[name] = right
    assert logged_in(url, stage.user_key).get(f"{url}/").url == f"{url}/"


@contextmanager
def dripping(answer: bytes) -> Iterator[str]:
    """A provider that begins an answer, and goes on with it as long as somebody reads."""
    with socket.create_server(("127.0.0.1", 0)) as door, ThreadPoolExecutor(1) as pool:
        pool.submit(_drip, door, answer)
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)


def _drip(door: socket.socket, answer: bytes) -> None:
    with door.accept()[0] as link, suppress(OSError):
        link.sendall(answer)
        while True:
            link.sendall(b"a")
            time.sleep(0.02)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX-Long: "])
def test_an_answer_whose_head_has_no_end_is_broken_off(
    answer: bytes, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "_ASKING_SECONDS", 1.0)
    with dripping(answer) as issuer:
        knobs = {"oidc_issuer": issuer, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
        with served(dsn, tmp_path, **knobs) as (url, _):
            found = agent().get(f"{url}/login/openid", timeout=60.0)
    assert found.status_code == 503
    assert "does not answer as it should" in found.text


def test_what_is_no_token_is_refused(site: Site) -> None:
    url, _, provider = site
    for said in ("", "[]", "{}", '"error"', '{"id_token": 1}', '{"error": {}}'):
        provider.app.view_functions["exchange"] = lambda said=said: Response(said)
        assert enter(url, "ann").status_code == 403, said


def test_without_a_provider_nothing_speaks_of_one(dsn: str, tmp_path: Path) -> None:
    with served(dsn, tmp_path) as (url, _):
        assert "openid" not in agent().get(f"{url}/login").text
        assert agent().get(f"{url}/login/openid").status_code == 404
