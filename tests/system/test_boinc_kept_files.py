"""What a stock client of Debian keeps of a BOT is not downloaded again for a later one."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator

import pytest
from tests.system.deployment import NO_COPIES, Deployment, deployment
from tests.system.stock_client import needs_boinc, stock_client

pytestmark = needs_boinc

DATA = random.Random(1).randbytes(3 << 20)
HOLDERS = f"JobRequirements = Host.CachedMB >= 3; {NO_COPIES}"


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.start("--sign-on-submit")
        yield made


def test_a_later_bot_over_the_same_data_goes_to_the_client_that_kept_it(
    server: Deployment,
) -> None:
    data = server.file("data", DATA)
    over_data = ("--time", "10m", "--input", str(data), "--", "cksum")
    server.run("user", "add", "volunteer")
    made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
    with stock_client(server, json.loads(made)["token"], cpus=1) as client:
        server.wait(server.submit(*over_data, "data", policy=NO_COPIES), 120)
        # From then on nothing that the client was told to run needs the data.
        server.wait(server.submit("--time", "10m", "--", "true", policy=NO_COPIES), 120)
        later = server.submit(*over_data, "./data", policy=HOLDERS)
        client.update()
        server.wait(later, 240)
        sha256 = hashlib.sha256(DATA).hexdigest()
        assert client.log.count(f"Started download of gb_{sha256}") == 1
