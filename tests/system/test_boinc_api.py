"""A program that is made for BOINC's API, under a stock client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.stock_client import StockClient, needs_boinc, stock_client

_HEADERS = Path("/usr/include/boinc")
_SOURCE = Path(__file__).parents[1] / "fakes" / "boinc_program.cpp"
_FACTOR, _STEPS = 3, 40

# On the build machine what needs it fails where it is not.
needs_compiler = pytest.mark.skipif(
    not (shutil.which("g++") and _HEADERS.is_dir()) and "CI" not in os.environ,
    reason="no BOINC library here: apt-get install g++ libboinc-app-dev",
)
pytestmark = [needs_boinc, needs_compiler, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure()
        made.start("--sign-on-submit")
        yield made


@pytest.fixture(scope="module")
def client(server: Deployment) -> Iterator[StockClient]:
    server.run("user", "add", "volunteer")
    made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
    with stock_client(server, str(json.loads(made)["token"]), cpus=2) as client:
        client.listens()
        yield client


@pytest.fixture(scope="module")
def count(server: Deployment) -> Path:
    """The program, built for this machine."""
    built = server.folder / "count"
    libraries = ("-lboinc_api", "-lboinc", "-lpthread")
    subprocess.run(
        ["g++", "-o", built, _SOURCE, f"-I{_HEADERS}", *libraries], check=True, timeout=120
    )
    return built


def test_a_program_of_boincs_api_shows_its_progress_and_goes_on_from_its_checkpoint(
    server: Deployment, client: StockClient, count: Path
) -> None:
    factor, gate = server.file("factor.txt", f"{_FACTOR}\n"), server.folder / "opened"
    bot = server.submit(
        *("--boinc-api", "--platform", "linux-x86_64"),
        *("--input", str(count), "--input", str(factor)),
        *("--output", "sum.txt", "--output", "trace.txt", "--time", "10m", "--attempts", "1"),
        *("--", "./count", str(_STEPS), str(gate)),
    )
    client.update()
    eventually(lambda: client.fraction_done(bot) == 0.5, 120, "the middle, by its own word")
    client.kill()
    client.start()
    again = f"began at {_STEPS // 2}"
    said = "SELECT said FROM boinc_trickle WHERE bot = %s"
    eventually(lambda: any(client.folder.glob("projects/*/trickle_up_*")), what="its trickle")
    client.update()
    eventually(lambda: again in str(server.rows(said, bot)), what="its word that it goes on")
    gate.touch()
    server.wait(bot, 120)
    with server.session() as session:
        (result,) = session.bot(bot).results()
        total = _FACTOR * sum(range(_STEPS))
        assert result.outputs["sum.txt"].read().decode().split()[0] == str(total)
        assert result.outputs["trace.txt"].read().decode() == f"began at 0\n{again}\n"
    logs = server.run("bot", "logs", str(bot))
    trickles, _, log = logs.partition("stderr:")
    assert "<variety>note</variety>" in trickles
    assert trickles.index("began at 0") < trickles.index(again)
    assert f"stderr: {again}" in log
