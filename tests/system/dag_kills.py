"""A workflow whose `gridbot dag run` is killed again and again, with the server and its clients."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import click
import psutil
from tests.system.deployment import GRIDBOT, Deployment, deployment, eventually

PATIENCE = 300.0
WIDTH = 6
JOB = """executable = job.sh
arguments = $(JOB) $(RETRY) $(fails:0)
output = $(JOB).out
transfer_input_files = $(inputs)
transfer_output_files = $(JOB).made
queue
"""
PROGRAM = """#!/bin/sh
echo "$1 $2"
sleep 0.3
[ "$2" -ge "$3" ] || exit 1
cat *.made 2>/dev/null > sum
sort sum | cksum > "$1.made"
"""
SCRIPT = """#!/bin/sh
sleep 0.1
echo "$1" > "$1.$2"
exit "${3:-0}"
"""


def write(folder: Path) -> None:
    """Three layers of nodes with scripts and retries, and a sub-DAG between two of them."""
    for name, text in (("job.sh", PROGRAM), ("script.sh", SCRIPT)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "job.sub").write_text(JOB)
    (folder / "inner.dag").write_text('JOB I job.sub\nVARS I inputs="L0.made"\n')
    lines = ["JOB S job.sub", 'VARS S inputs=""', "SUBDAG EXTERNAL U inner.dag", "JOB T job.sub"]
    layer = [f"L{n}" for n in range(WIDTH)]
    for number, name in enumerate(layer):
        lines += [f"JOB {name} job.sub", f'VARS {name} inputs="S.made"', f"PARENT S CHILD {name}"]
        lines += [f"SCRIPT PRE {name} script.sh {name} pre", f"RETRY {name} 2"]
        lines += [f"SCRIPT POST {name} script.sh {name} post $RETURN"]
        if number % 3 == 1:
            lines.append(f'VARS {name} fails="1"')
    inputs = ",".join(f"{name}.made" for name in (*layer, "I"))
    lines += [f"PARENT {' '.join(layer)} CHILD U", "PARENT U CHILD T", f'VARS T inputs="{inputs}"']
    (folder / "x.dag").write_text("\n".join(lines) + "\n")


def files(folder: Path) -> dict[str, str]:
    """What a run leaves that is the same each time."""
    names = [path for kind in ("made", "out", "pre", "post") for path in folder.glob(f"*.{kind}")]
    return {path.name: path.read_text() for path in names}


@dataclass
class Killed:
    """A run that was killed so often, and what it came to."""

    kills: int = 0
    victims: Counter[str] = field(default_factory=Counter)
    code: int = -1
    files: dict[str, str] = field(default_factory=dict)
    jobs: int = 0  # at the server
    attempts: int = 0  # of nodes, by the journals
    twice: list[str] = field(default_factory=list)  # attempts that were submitted twice
    said: str = ""


def run(server: Deployment, folder: Path, kills: int, chance: Random, others: bool) -> Killed:
    """Run the workflow, kill it at lines of its journal that chance chooses, and go on with it."""
    found, before = Killed(), _bots(server)
    write(folder)
    process = _start(server, folder)
    while found.kills < kills and _is_killed(process, folder, chance.randint(0, 3)):
        found.kills += 1
        if others and not found.kills % 5:
            found.victims[_kill_another(server, chance)] += 1
        process = _start(server, folder)
    found.said = process.communicate(timeout=PATIENCE)[0]
    found.code, found.files = process.returncode, files(folder)
    new = {number: jobs for number, jobs in _bots(server).items() if number not in before}
    found.jobs = sum(new.values())
    submitted = Counter(_attempts(folder / "x.dag") + _attempts(folder / "inner.dag"))
    found.attempts = sum(submitted.values())
    found.twice = [name for name, count in submitted.items() if count > 1]
    return found


def _start(server: Deployment, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*GRIDBOT, "dag", "run", "x.dag"], cwd=folder, env=server.env, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _lines(folder: Path) -> int:
    paths = [folder / f"{name}.dag.journal" for name in ("x", "inner")]
    return sum(path.read_bytes().count(b"\n") for path in paths if path.exists())


def _is_killed(process: subprocess.Popen[str], folder: Path, further: int) -> bool:
    """Kill a run when its journal has so many further lines; False if it ends before."""
    wanted = _lines(folder) + further
    eventually(
        lambda: process.poll() is not None or _lines(folder) >= wanted, what="the journal's lines"
    )
    if process.poll() is not None:
        return False
    process.kill()
    process.communicate()
    return True


def _kill_another(server: Deployment, chance: Random) -> str:
    """Kill a process of the server, or the client; they are started again."""
    victim = chance.choice(("web", "feeder", "cycles", "client"))
    if victim == "client":
        server.kill_client("worker")
        server.client("worker", "--cpus", "4")
        return victim
    number = next((pid for name, pid in server.children().items() if name.startswith(victim)), None)
    if number is not None:
        psutil.Process(number).send_signal(signal.SIGKILL)
    return victim


def _bots(server: Deployment) -> dict[int, int]:
    with server.session() as session:
        return {bot.id: bot.jobs_total for bot in session.bots()}


def _attempts(dag: Path) -> list[str]:
    """Each attempt of a node that was submitted, by the journal that is kept."""
    path = Path(f"{dag}.dagman.log")
    found, retries = list[str](), Counter[str]()
    for line in path.read_text().splitlines() if path.exists() else ():
        document: dict[str, Any] = json.loads(line)
        if document.get("event") == "submitted" and document["bot"]:
            found.append(f"{document['node']}.{retries[document['node']]}")
        elif document.get("event") == "job_ended" and document["code"]:
            retries[document["node"]] += 1
    return found


@click.command()
@click.option("--kills", default=30, show_default=True, help="How often the run is killed.")
@click.option("--seed", type=int, help="Repeat an earlier run's choices.")
def command(kills: int, seed: int | None) -> None:
    """Kill `gridbot dag run` at lines of its journal, and compare with an undisturbed run.

    Every fifth time a process of the server or the client is killed, too.  Exit code 1 if files
    differ, or an attempt of a node was submitted twice.
    """
    seed = secrets.randbelow(10**6) if seed is None else seed
    print(f"seed {seed}", flush=True)
    with deployment() as server, tempfile.TemporaryDirectory() as folder:
        server.start()
        server.client("worker", "--cpus", "4")
        calm, shaken, done = Path(folder, "calm"), 0, 0
        calm.mkdir()
        wanted = run(server, calm, 0, Random(seed), others=False)
        wrong = wanted.code != 0
        while shaken < kills:
            done += 1
            place = Path(folder, f"run{done}")
            place.mkdir()
            found = run(server, place, kills - shaken, Random(seed + done), others=True)
            shaken += found.kills
            differs = found.files != wanted.files
            bad = bool(found.code or differs or found.twice or found.jobs != wanted.jobs)
            wrong |= bad
            print(
                f"run {done}: {found.kills} kills, others {dict(found.victims)}, exit code"
                f" {found.code}, {found.attempts} attempts, {found.jobs} jobs,"
                f" {len(found.twice)} twice, files {'differ' if differs else 'equal'}"
                + (f"\n{found.said}" if bad else ""),
                flush=True,
            )
    sys.exit(1 if wrong else 0)
