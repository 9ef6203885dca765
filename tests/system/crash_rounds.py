"""The command behind scripts/crash: kills every process of a loaded server, round after round."""

from __future__ import annotations

import json
import random
import secrets
import sys
from dataclasses import asdict
from typing import Any, TextIO

import click
from tests.system import crashes
from tests.system.crashes import Load, Recovery
from tests.system.deployment import Deployment, deployment

HEAD = """\
round  killed        seconds until  reports acked  invariants
                      work went on         so far"""


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Kills of each process.")
@click.option("--seed", type=int, help="Repeat an earlier run's choices.")
@click.option("--json", "as_json", is_flag=True, help="Print one document; the table on stderr.")
def command(rounds: int, seed: int | None, as_json: bool) -> None:
    """Exit code 1 if an invariant breaks, or a job or an acknowledged report is lost."""
    seed = secrets.randbelow(10**6) if seed is None else seed
    table = sys.stderr if as_json else sys.stdout
    print(f"seed {seed}\n{HEAD}", file=table, flush=True)
    with deployment() as server:
        server.configure(buffer_slots=256)
        server.start()
        document = _crash(server, rounds, seed, table)
    if as_json:
        print(json.dumps(document, default=str))
    else:
        print(crashes.sentence_of(document))
    sys.exit(1 if document["broken"] else 0)


def _crash(server: Deployment, rounds: int, seed: int, table: TextIO) -> dict[str, Any]:
    """Kill under load, let the load end, and say what was found."""
    chance, kills = random.Random(seed), []
    with crashes.loaded(server, seed) as load:
        for number in range(1, rounds + 1):
            for victim in chance.sample(sorted(crashes.VICTIMS), len(crashes.VICTIMS)):
                kills.append(crashes.kill(server, victim, chance))
                print(_row(number, kills[-1], load), file=table, flush=True)
        load.drain()
    found = crashes.found_of(server, load)
    return {
        "seed": seed,
        "kills": [asdict(kill) for kill in kills],
        **found,
        "broken": not crashes.is_whole(found) or any(kill.violations for kill in kills),
    }


def _row(number: int, kill: Recovery, load: Load) -> str:
    state = "; ".join(map(str, kill.violations)) or "hold"
    return (
        f"{number:5}  {kill.victim:12}  {kill.seconds:13.1f}  {len(load.acknowledged):13}  {state}"
    )
