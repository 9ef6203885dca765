from __future__ import annotations

import gzip
import json
import re
import urllib.request
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import StockClient, needs_boinc, stock_client


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(statistics_seconds=1)
        made.start("--sign-on-submit")
        yield made
        made.kill_clients()


def told(client: StockClient, what: str) -> float:
    """What `boinccmd` shows of the project."""
    found = re.search(rf"^ +{what}: ([0-9.]+)", client.command("--get_project_status"), re.M)
    return float(found[1]) if found else 0.0


def fetched(server: Deployment, name: str) -> ElementTree.Element:
    """A statistics file, as a statistics site reads it."""
    with urllib.request.urlopen(f"{server.settings.url}/boinc/stats/{name}") as answer:
        content = answer.read()
    return ElementTree.fromstring(gzip.decompress(content) if name.endswith(".gz") else content)


@needs_boinc
def test_stock_and_native_clients_earn_the_same_and_the_world_may_read_it(
    server: Deployment,
) -> None:
    server.run("user", "add", "volunteer")
    made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
    server.client("native", "--cpus", "1")
    with stock_client(server, json.loads(made)["token"]) as client:
        options = ("--range", "0:3", "--quorum", "2", "--time", "10m")
        bot = server.submit(*options, "--", "echo", "{}")
        server.wait(bot, 120)
        earned = server.rows("SELECT total FROM volunteer ORDER BY owner")
        (native,), (stock,) = earned
        client.update()
        eventually(lambda: told(client, "user_total_credit") == pytest.approx(stock, abs=2e-6), 90)
        assert told(client, "host_total_credit") == told(client, "user_total_credit")
        assert "[unparsed_xml]" not in client.log
    assert native == pytest.approx(stock) != 0
    directory = server.settings.statistics
    eventually((directory / "tables.xml").exists, 90, what="the statistics files")
    counts = {item.tag: item.text for item in fetched(server, "tables.xml")}
    assert (counts["nusers_total"], counts["nhosts_total"]) == ("2", "2")
    assert len(fetched(server, "user.gz")) == 0  # nobody agreed
    hosts = fetched(server, "host.gz")
    assert sorted(host.findtext("boinc_version", "none") for host in hosts)[1] == "none"
    assert all(float(host.findtext("total_credit", "0")) > 0 for host in hosts)
    assert hosts.find("host/userid") is None
