"""Programs for several platforms on a stock client of Debian."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.deployment import NO_COPIES, Deployment, deployment
from tests.system.stock_client import needs_boinc, stock_client

from gridbot import PlatformProgram

pytestmark = needs_boinc

WHERE = ("linux-x86_64", "linux-x86_64 cpus=2", "linux-x86_64 cpus=64", "darwin-arm64")


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.start("--sign-on-submit")
        yield made


def test_a_stock_client_runs_the_program_for_its_machine(
    server: Deployment, tmp_path: Path
) -> None:
    for number, where in enumerate(WHERE):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "prog").write_text(f"#!/bin/sh\necho {where}, job $1\nls -d [0-9]*\n")
    table = {where: PlatformProgram([f"{n}/prog", "{}"]) for n, where in enumerate(WHERE)}
    server.run("user", "add", "volunteer")
    made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
    with stock_client(server, json.loads(made)["token"], cpus=2), server.session() as session:
        bot = session.submit(
            [], range(3), programs=table, time="10m", base=tmp_path, policy=NO_COPIES
        )
        server.wait(bot.id, 120)
        assert sorted(result.stdout for result in bot.results()) == [
            f"linux-x86_64 cpus=2, job {seq}\n1\n" for seq in range(3)
        ]
