"""What a project tells a stock client of itself, and asks of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import needs_boinc, stock_client

pytestmark = needs_boinc

TOO_OLD = "Your BOINC client software is too old.  Please install the current version."


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(min_client_version="99.0")
        made.start("--sign-on-submit")
        yield made


def test_a_stock_client_that_is_too_old_says_so_and_has_no_job_until_it_may(
    server: Deployment,
) -> None:
    owner = json.loads(server.run("user", "list", "--json"))["owners"][0]["name"]
    made = server.run("token", "create", owner, "--scope", "join", "--json")
    key = json.loads(made)["token"]
    bot = server.submit("--range", "0:1", "--time", "10m", "--", "echo", "{}")
    with stock_client(server, key) as client:
        eventually(lambda: TOO_OLD in client.log, 120, "what the client is told")
        assert client.tasks() == {}
        server.stop()
        server.configure(min_client_version="")
        server.start()
        client.update()
        server.wait(bot, 120)
    assert server.outcomes(bot) == {0: 1}
