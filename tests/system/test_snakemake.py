"""Workflows of Snakemake through our executor plugin, on a real server and client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.deployment import Deployment, eventually

SNAKEFILE = """
rule all:
    input: "sum.txt", "folder"

rule part:
    input: "in/{n}.txt"
    output: "out/{n}.txt"
    log: "logs/{n}.log"
    shell: "cat {input} extra > {output}; echo read {wildcards.n} > {log}"

rule sum:
    input: expand("out/{n}.txt", n=range(2))
    output: "sum.txt", directory("folder")
    script: "scripts/sum.py"
"""
SCRIPT = """
import os

numbers = [int(open(file).read()) for file in snakemake.input]
os.makedirs(f"{snakemake.output[1]}/below")
for name in (snakemake.output[0], f"{snakemake.output[1]}/below/copy"):
    open(name, "w").write(str(sum(numbers)))
"""


@pytest.fixture
def workflow(running: Deployment, tmp_path: Path) -> Path:
    running.client("worker", "--cpus", "4", "--allow-read", sys.prefix)
    for name, text in {
        "Snakefile": SNAKEFILE, "scripts/sum.py": SCRIPT, "extra": "0",
        **{f"in/{n}.txt": str(n + 1) for n in range(2)},
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def start(running: Deployment, folder: Path, *options: str) -> subprocess.Popen[str]:
    snakemake = (sys.executable, "-m", "snakemake", "--executor", "gridbot", "--jobs", "9")
    return subprocess.Popen(
        [*snakemake, *options], cwd=folder, env={**os.environ, **running.env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_a_workflow_runs_on_hosts_that_share_no_files_and_what_its_jobs_leave_comes_back(
    running: Deployment, workflow: Path
) -> None:
    snakemake = start(running, workflow, "--gridbot-files", "extr?")
    said = snakemake.communicate()[0]
    assert snakemake.returncode == 0, said
    assert [(workflow / f"out/{n}.txt").read_text() for n in range(2)] == ["10", "20"]
    assert (workflow / "logs/1.log").read_text() == "read 1\n"
    assert (workflow / "folder/below/copy").read_text() == "30"
    with running.session() as session:
        (bot,) = [bot for bot in session.bots() if bot.name == f"Snakemake {workflow.name}"]
    assert (bot.document["state"], bot.jobs_total) == ("done", 3)


def test_a_job_that_fails_says_why_and_its_log_comes_back(
    running: Deployment, workflow: Path
) -> None:
    (workflow / "Snakefile").write_text(
        'rule fail:\n    output: "x"\n    log: "logs/x"\n'
        '    shell: "echo it is gone >&2; echo noted > {log}; touch {output}; exit 3"\n'
    )
    snakemake = start(running, workflow)
    said = snakemake.communicate()[0]
    assert snakemake.returncode == 1, said
    assert "message: exit code 1" in said
    assert "it is gone" in said
    assert (workflow / "logs/x").read_text() == "noted\n"
    assert not (workflow / "x").exists()


def test_a_workflow_that_is_interrupted_cancels_its_jobs(
    running: Deployment, workflow: Path
) -> None:
    (workflow / "Snakefile").write_text('rule wait:\n    output: "x"\n    shell: "sleep 600"\n')
    snakemake = start(running, workflow)
    with running.session() as session:
        (bot,) = eventually(
            lambda: [
                bot
                for bot in session.bots()
                if bot.name == f"Snakemake {workflow.name}" and bot.jobs_in_progress
            ]
        )
        snakemake.send_signal(signal.SIGINT)
        snakemake.communicate()
        assert session.bot(bot.id).show().document["state"] == "cancelled"
