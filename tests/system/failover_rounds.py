"""The command behind scripts/failover: takes the database's primary away, round after round."""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import click
import requests
from tests.system import crashes
from tests.system.crashes import Load
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.postgres_trio import Node, Trio, trio

IN_OWN_NETWORK = "GRIDBOT_FAILOVER_NETWORK"
FAULTS = ("kill", "freeze", "cut")
_LOADED_SECONDS = 2.0  # of load before a fault, and between fault and promotion

HEAD = """\
round  primary is   s after promotion until      reports acked
                    dispatch   /health            so far"""


@dataclass(frozen=True)
class Failover:
    """What was done to the primary, and how long after the promotion the server was back."""

    fault: str
    dispatch_seconds: float
    health_seconds: float


@dataclass
class Watch:
    """Looks again and again at what works, in a thread."""

    server: Deployment
    load: Load
    healthy_at: list[float] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Note when the server says that it is well."""
        while not self._stop.wait(0.1):
            began = time.monotonic()
            with suppress(requests.RequestException):
                if requests.get(f"{self.server.url}/health", timeout=5).status_code == 200:
                    self.healthy_at.append(began)

    def count(self) -> None:
        """Note when reports are acknowledged."""
        before = 0
        while not self._stop.wait(0.05):
            now = len(self.load.acknowledged)
            if now > before:
                self.acknowledged_at.append(time.monotonic())
            before = now

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look in the background."""
        threads = [threading.Thread(target=work) for work in (self.look, self.count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def first_after(moments: list[float], since: float, what: str) -> float:
    """Wait for a moment after another; return how many seconds later it was."""
    found = eventually(lambda: [at for at in moments if at >= since], 120, what)
    return found[0] - since


@click.command()
@click.option("--rounds", default=20, show_default=True, help="Faults of each kind.")
@click.option("--minutes", type=click.FloatRange(0), default=math.inf,
              help="Begin no further fault after so long; the kinds come mixed.")  # fmt: skip
@click.option("--fault", "faults", type=click.Choice(FAULTS), multiple=True, default=FAULTS,
              show_default=True, help="What happens to the primary; may be repeated.")  # fmt: skip
@click.option("--seed", type=int, help="Repeat an earlier run's choices.")
@click.option("--json", "as_json", is_flag=True, help="Print one document; the table on stderr.")
def command(
    rounds: int, minutes: float, faults: tuple[str, ...], seed: int | None, as_json: bool
) -> None:
    """Exit code 1 if an acknowledged report or a job is lost, or an invariant breaks.

    Three nodes of PostgreSQL replicate in quorum mode.  Their primary is killed, frozen or cut off
    while a server and its clients work; another node is promoted, the old one comes back anew.
    """
    if "cut" in faults and IN_OWN_NETWORK not in os.environ:
        _enter_network()
    seed = secrets.randbelow(10**6) if seed is None else seed
    table = sys.stderr if as_json else sys.stdout
    print(f"seed {seed}\n{HEAD}", file=table, flush=True)
    with tempfile.TemporaryDirectory(prefix="gridbot-failover-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        with trio(Path(folder)) as nodes, deployment(nodes.dsn) as server:
            server.configure(buffer_slots=256)
            server.start()
            document = _rounds(server, nodes, rounds * list(faults), seed, minutes, table)
    if as_json:
        print(json.dumps(document, default=str))
    else:
        broken = len(document["violations"])
        print(f"{crashes.sentence_of(document)}; {broken} invariants broken")
    sys.exit(1 if document["broken"] else 0)


def _enter_network() -> None:
    """Begin again in a network that is ours alone, where packets may be dropped."""
    os.environ[IN_OWN_NETWORK] = "yes"
    script = 'ip link set lo up && exec "$@"'
    again = [sys.executable, *sys.argv]
    os.execvp("unshare", ["unshare", "--net", "--", "sh", "-c", script, "sh", *again])


def _rounds(
    server: Deployment, nodes: Trio, faults: list[str], seed: int, minutes: float, table: TextIO
) -> dict[str, Any]:
    """Take the primary away under load, let the load end, and say what was found."""
    random.Random(seed).shuffle(faults)
    found = list[Failover]()
    ends_at = time.monotonic() + 60 * minutes
    with crashes.loaded(server, seed) as load:
        with closing(fail_over(server, nodes, load, faults)) as rounds:
            for made in rounds:
                found.append(made)
                print(_row(len(found), made, load), file=table, flush=True)
                if time.monotonic() > ends_at:
                    break
        load.drain()
    left = crashes.found_of(server, load)
    violations = crashes.violations(server, idle=False)
    return {
        "seed": seed,
        "failovers": [asdict(item) for item in found],
        **left,
        "violations": violations,
        "broken": not crashes.is_whole(left) or bool(violations),
    }


def fail_over(
    server: Deployment, nodes: Trio, load: Load, faults: Sequence[str]
) -> Generator[Failover]:
    """Do one thing after the other to whichever node is the primary.

    The one before comes back as a standby first; the last one does not.
    """
    watch = Watch(server, load)
    old = None
    with watch.watching():
        for fault in faults:
            if old is not None:
                nodes.heal(old)
            old, made = _one(nodes, watch, fault)
            yield made


def _one(nodes: Trio, watch: Watch, fault: str) -> tuple[Node, Failover]:
    """Take the primary away; return it with what was found."""
    began = time.monotonic()
    first_after(watch.acknowledged_at, began, "work")
    time.sleep(_LOADED_SECONDS)
    {"kill": nodes.kill, "freeze": nodes.freeze, "cut": nodes.cut}[fault]()
    time.sleep(_LOADED_SECONDS)  # until somebody would notice
    old = nodes.fail_over()
    promoted_at = time.monotonic()
    made = Failover(
        fault,
        first_after(watch.acknowledged_at, promoted_at, "work after the promotion"),
        first_after(watch.healthy_at, promoted_at, "health after the promotion"),
    )
    return old, made


def _row(number: int, made: Failover, load: Load) -> str:
    done = {"kill": "killed", "freeze": "frozen", "cut": "cut off"}[made.fault]
    return (
        f"{number:5}  {done:10}  {made.dispatch_seconds:12.1f}  {made.health_seconds:9.1f}"
        f"  {len(load.acknowledged):15}"
    )
