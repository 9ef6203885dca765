"""What a project tells a stock client of itself, and asks of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests
from tests.http.relay import relaying
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import StockClient, needs_boinc, stock_client

pytestmark = needs_boinc

TOO_OLD = "Your BOINC client software is too old.  Please install the current version."


def key_of(server: Deployment) -> str:
    """A key with which clients attach."""
    owner = json.loads(server.run("user", "list", "--json"))["owners"][0]["name"]
    made = server.run("token", "create", owner, "--scope", "join", "--json")
    return str(json.loads(made)["token"])


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        yield made


def test_a_stock_client_that_is_too_old_says_so_and_has_no_job_until_it_may(
    server: Deployment,
) -> None:
    server.configure(min_client_version="99.0")
    server.start("--sign-on-submit")
    bot = server.submit("--range", "0:1", "--time", "10m", "--", "echo", "{}")
    with stock_client(server, key_of(server)) as client:
        eventually(lambda: TOO_OLD in client.log, 120, "what the client is told")
        assert client.tasks() == {}
        server.stop()
        server.configure(min_client_version="")
        server.start()
        client.update()
        server.wait(bot, 120)
    assert server.outcomes(bot) == {0: 1}


def kept(client: StockClient) -> str:
    """The news that a client shows, as it keeps them; "" before it has looked."""
    files = (client.folder / "notices").glob("archive_*.xml")
    return "".join(path.read_text() for path in files)


def test_a_stock_client_shows_the_news_until_they_are_withdrawn(server: Deployment) -> None:
    server.start()
    told = server.run("news", "add", "New data", "Leave <20 GB> free,\nplease.", "--json")
    shown = "Leave &lt;20 GB&gt; free,<br>please."  # as HTML
    with stock_client(server, key_of(server), fetches_news=True) as client:
        client.listens()
        eventually(lambda: shown in client.command("--get_notices"), 120, "the news")
        server.run("news", "remove", str(json.loads(told)["id"]))
        client.update()  # upon which it looks at once
        eventually(lambda: "</notices>" in kept(client) and shown not in kept(client), 120)


def known(reply: str) -> str:
    """What a client says of a question to the project; "" while it waits for the answer."""
    return "" if "<error_num>-204</error_num>" in reply else reply


def test_boincs_manager_is_shown_the_terms_and_makes_an_account_only_with_consent(
    server: Deployment,
) -> None:
    server.configure(boinc_accounts=True)
    server.settings.terms_path.write_text("Be kind.\nDo no harm.\n")
    server.start()
    version = "<major>7</major>\n<minor>20</minor>\n<release>5</release>\n<name>tests</name>"
    with stock_client(server) as client:
        client.listens()
        with client.manager() as ask:
            ask(f"<exchange_versions>\n{version}\n</exchange_versions>")

            def told(what: str, body: str) -> str:
                url = f"<url>{client.url}</url>"
                assert "<success/>" in ask(f"<{what}>\n{url}\n{body}</{what}>")
                return eventually(lambda: known(ask(f"<{what}_poll/>")), what=what)

            terms = told("get_project_config", "")
            assert "Be kind.&lt;br&gt;Do no harm." in terms
            ann = (
                "<email_addr>ann@example.com</email_addr>\n<user_name>Ann</user_name>\n"
                f"<passwd_hash>{'0' * 32}</passwd_hash>\n<team_name></team_name>\n"
            )
            assert "<error_num>-242</error_num>" in told("create_account", ann)
            assert "<authenticator>" in told("create_account", f"{ann}<consented_to_terms/>\n")


def test_a_forgotten_password_is_replaced_and_the_attached_client_computes_on(
    server: Deployment,
) -> None:
    email, form = "ann@example.com", re.compile(r'name="form_token" value="(\w+)"')
    with relaying() as relay, requests.Session() as browser, ExitStack() as stack:
        server.configure(boinc_accounts=True, mail_relay=relay.address)
        server.start("--sign-on-submit")
        client = stack.enter_context(stock_client(server))
        client.listens()
        made = client.command("--create_account", client.url, email, "old secret", "Ann")
        client.attach(account_key(made))

        def send(path: str, **fields: str) -> requests.Response:
            token = form.findall(browser.get(f"{server.url}/login").text)[0]
            return browser.post(f"{server.url}{path}", data={"form_token": token, **fields})

        send("/login/forgotten", email=email)
        eventually(lambda: relay.texts, what="the mail")
        code = re.findall(r"/login/password\?code=([\w-]+)", relay.texts[0])[0]
        done = send("/login/password", code=code, email=email, password="new secret")
        assert done.url == f"{server.url}/machines"
        told = client.command("--lookup_account", client.url, email, "new secret")
        assert account_key(told) != account_key(made)
        assert "account key" not in client.command(
            "--lookup_account", client.url, email, "old secret"
        )
        bot = server.submit("--range", "0:1", "--time", "10m", "--", "echo", "{}")
        client.update()
        server.wait(bot, 120)
    assert server.outcomes(bot) == {0: 1}


def account_key(told: str) -> str:
    """The key that boinccmd prints."""
    found = re.search("account key: ([0-9a-f]{32})", told)
    assert found, told
    return found[1]
