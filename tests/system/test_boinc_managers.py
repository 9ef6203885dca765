"""An account manager attaches a stock client, changes what it may, and detaches it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.account_manager import account_manager
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import StockClient, needs_boinc, stock_client

pytestmark = needs_boinc


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(boinc_accounts=True)
        made.start("--sign-on-submit")
        yield made


def share_of(client: StockClient) -> float:
    """The project's share of the client's time, by its word; 0 while it is attached to none."""
    told = client.command("--get_project_status")
    found = re.search(r"resource share: ([\d.]+)", told)
    return float(found[1]) if found else 0.0


def test_an_account_manager_attaches_a_client_changes_share_and_venue_and_detaches_it(
    server: Deployment,
) -> None:
    bot = server.submit("--range", "0:1", "--time", "10m", "--", "echo", "{}")
    with stock_client(server) as client, account_manager(client.url) as manager:
        manager.register("ann@example.com", "a password", "Ann")
        client.listens()
        client.command("--acct_mgr", "attach", manager.url, "ann", "a password")
        eventually(lambda: share_of(client) == 100, 120, "that the client is attached")
        server.wait(bot)

        client.command("--acct_mgr", "sync")
        eventually(lambda: "<hostid>" in manager.asked[-1], what="the host's number")
        at_work = '<venue name="work">\n<resource_share>20</resource_share>\n</venue>\n'
        shares = f"<project_preferences>\n{at_work}</project_preferences>"
        key = manager.account_key
        done = manager.call("am_set_info", account_key=key, project_prefs=shares)
        assert "<success/>" in done
        done = manager.call("am_set_host_info", account_key=key, hostid=manager.host, venue="work")
        assert "<success/>" in done
        client.update()
        eventually(lambda: share_of(client) == 20, 120, "the venue's share")

        manager.is_detaching = True
        client.command("--acct_mgr", "sync")
        eventually(lambda: share_of(client) == 0, 120, "that the client is detached")
    assert server.outcomes(bot) == {0: 1}
