"""Programs for several platforms on a real server and a native client."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from tests.system.deployment import Deployment

HERE = f"{platform.system()}-{platform.machine()}".lower()
ELSEWHERE = "windows-x86_64"


def script(text: str) -> str:
    return f"#!/bin/sh\n{text}\n"


def test_a_client_runs_the_program_for_its_machine_and_gets_no_other_files(
    running: Deployment, tmp_path: Path
) -> None:
    for folder, text in (("here", "echo narrow $1; ls -R"), ("wide", "echo wide"), ("far", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "prog").write_text(script(text))
    (tmp_path / "for-all").write_text("x")
    (tmp_path / "BOT.toml").write_text(
        f'range = "0:4"\ninput = ["for-all"]\n'
        f'[programs.{ELSEWHERE}]\ncommand = ["far/prog", "{{i}}"]\n'
        f'[programs.{HERE}]\ncommand = ["wide/prog", "{{i}}"]\n'
        f'[programs."{HERE} cpus=2"]\ncommand = ["here/prog", "{{i}}"]\n'
        f'[programs."{HERE} cpus=64"]\ncommand = ["far/prog", "{{i}}"]\n'
    )
    running.client("worker", "--cpus", "2")
    with running.session() as session:
        told = json.loads(running.run("submit", "--wait", "--json", str(tmp_path / "BOT.toml")))
        assert told["jobs_done"] == 4
        for result in session.bot(told["id"]).results():
            first, *files = result.stdout.split("\n")
            assert first == f"narrow {result.args['i']}"
            listing = "\n".join(files)
            assert "for-all" in listing
            assert "wide" not in listing
            assert "far" not in listing


def test_a_bot_without_a_program_for_any_host_waits_and_says_why(
    running: Deployment, tmp_path: Path
) -> None:
    (tmp_path / "BOT.toml").write_text(f'[programs.{ELSEWHERE}]\ncommand = ["prog.exe"]\n')
    running.client("worker", "--cpus", "2")
    done = json.loads(running.run("submit", "--wait", "--json", "--", "true"))
    assert done["jobs_done"] == 1, "the client is there"
    bot = json.loads(running.run("submit", "--json", str(tmp_path / "BOT.toml")))
    assert bot["match"]["hosts_matching"] == 0
    assert f"needs platform {ELSEWHERE}" in running.run("bot", "explain", str(bot["id"]))
