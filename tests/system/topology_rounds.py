"""The command behind scripts/topology: kills parts of what a site runs under load, and accounts."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import click
import psycopg
from tests.system import crashes
from tests.system.crashes import Load
from tests.system.deployment import eventually
from tests.system.topology import VICTIMS, Topology, topology

BUNDLE = "REQUESTS_CA_BUNDLE"
CLIENTS = ("one", "two")
PATIENCE_SECONDS = 120.0
_DOWN_SECONDS = 2.0
# More than the answers that may have been on their way when the part was killed.
_FURTHER_REPORTS = 100

HEAD = """\
round  killed    s until        s until its   BOT  damaged  reports acked
                 all is back    BOT was done       outputs         so far"""


@dataclass(frozen=True)
class Round:
    """What was killed in the midst of a BOT, and what came of that BOT."""

    victim: str
    back_seconds: float  # from the kill until all parts were healthy
    done_seconds: float  # from the kill until the BOT was done
    bot: int
    damaged: list[int]  # jobs whose output is not what it should be


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Kills of each part.")
@click.option("--kill", "victims", type=click.Choice([*VICTIMS, "none"]), multiple=True,
              default=VICTIMS, show_default=True, help="Part; may be repeated.")  # fmt: skip
@click.option("--jobs", default=60, show_default=True, help="Jobs of the BOT of each round.")
@click.option("--json", "as_json", is_flag=True, help="Print one document; the table on stderr.")
def command(rounds: int, victims: tuple[str, ...], jobs: int, as_json: bool) -> None:
    """Exit code 1 if an acknowledged report, a job or an output is lost, or an invariant breaks.

    Two servers, PostgreSQL, an object store, and nginx with TLS by server/deploy/nginx.conf, all on
    this machine.  Real clients send outputs to the store, others report as fast as they can.
    """
    table = sys.stderr if as_json else sys.stdout
    print(HEAD, file=table, flush=True)
    with tempfile.TemporaryDirectory(prefix="gridbot-topology-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        os.environ[BUNDLE] = str(folder / "fullchain.pem")
        with topology(folder) as site:
            document = account(site, rounds * list(victims), jobs, table)
    if as_json:
        print(json.dumps(document, default=str))
    else:
        print(
            f"{crashes.sentence_of(document)}; {document['clients']} clients joined"
            f" {document['joined']} times; {len(document['violations'])} invariants broken"
        )
    sys.exit(1 if document["broken"] else 0)


def account(site: Topology, victims: Sequence[str], jobs: int, table: TextIO) -> dict[str, Any]:
    """Kill one part after the other under load, let the load end, and say what was found."""
    for name in CLIENTS:
        site.client(name)
    found = list[Round]()
    with crashes.loaded(site.first, seed=secrets.randbelow(10**6)) as load:
        for made in rounds_of(site, load, victims, jobs):
            found.append(made)
            print(_row(len(found), made, load), file=table, flush=True)
        load.drain()
    left = crashes.found_of(site.first, load)
    violations = crashes.violations(site.first, idle=False)
    joined = site.joined()
    damaged = any(made.damaged for made in found)
    return {
        "rounds": [asdict(made) for made in found],
        **left,
        "clients": len(site.clients),
        "joined": joined,
        "violations": violations,
        "broken": bool(
            damaged or violations or joined != len(site.clients) or not crashes.is_whole(left)
        ),
    }


def rounds_of(site: Topology, load: Load, victims: Sequence[str], jobs: int) -> Iterator[Round]:
    """Kill each of the parts in the midst of a BOT, and start it again."""
    for number, victim in enumerate(victims):
        bot = site.submit(jobs)
        _until_done(site, bot, 1, "a first output")
        began = time.monotonic()
        if victim != "none":
            _kill(site, load, victim, number)
        eventually(site.is_healthy, PATIENCE_SECONDS, "health of all parts")
        back = time.monotonic() - began
        _until_done(site, bot, jobs, f"BOT {bot} after {victim}")
        done = time.monotonic() - began
        yield Round(victim, back, done, bot, site.damaged(bot, jobs))


def _kill(site: Topology, load: Load, victim: str, number: int) -> None:
    """Kill a part; start it again once it was seen what goes on without it."""
    kill, start = site.part(victim, number)
    kill()
    if victim in ("server", "store"):
        before = len(load.acknowledged)
        eventually(
            lambda: len(load.acknowledged) > before + _FURTHER_REPORTS,
            PATIENCE_SECONDS,
            f"reports without a {victim}",
        )
    else:
        time.sleep(_DOWN_SECONDS)  # nothing works meanwhile
    start()


def _until_done(site: Topology, bot: int, jobs: int, what: str) -> None:
    """Wait until so many jobs of a BOT have an outcome; the database may be away meanwhile."""

    def are_done() -> bool:
        with suppress(psycopg.OperationalError):
            return bool(
                site.first.rows("SELECT outcomes FROM bot WHERE id = %s", bot)[0][0] >= jobs
            )
        return False

    eventually(are_done, PATIENCE_SECONDS, what)


def _row(number: int, made: Round, load: Load) -> str:
    return (
        f"{number:5}  {made.victim:8}  {made.back_seconds:11.1f}  {made.done_seconds:14.1f}"
        f"  {made.bot:4}  {len(made.damaged):7}  {len(load.acknowledged):13}"
    )
