"""What a measurement runs on: a server with its hosts and jobs, or the bare web server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import gridbot_server
from gridbot import Session
from gridbot_server.settings import DATA_VARIABLE

from . import floor
from .database import Database, database
from .installation import CHECKOUT, BenchFailed, Installation, free_port, installation
from .load.generator import Plan
from .usage import Meter, wait_for_calm
from .windows import OF_A_REQUEST, Generator, Row, Window, generator

HOSTS = 64  # as many as connections in the widest plan
# Loose enough to give a host all that it asks for, as the policy of a BOT of short jobs is.
POLICY = "Concurrency = 1000;"
COMMAND = ["true", "{i}"]
_CONFIGURATION = Path(gridbot_server.__file__).with_name("web") / "gunicorn_conf.py"
_START_SECONDS = 30.0


class Stage(Protocol):
    """Something that can be measured."""

    def measure(self, plan: Plan) -> Window:
        """Make ready what the plan needs, then carry it out."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan on a stage, and what tells its rows from the others."""

    stage: Stage
    plan: Plan
    labels: Mapping[str, int] = field(default_factory=dict)


def measure(subjects: Sequence[Subject], rounds: int) -> list[list[Row]]:
    """Measure all subjects in turn, round after round: noise that lasts meets them all.

    Returns the rows of each subject.
    """
    rows: list[list[Row]] = [[] for _ in subjects]
    for _ in range(rounds):
        for subject, found in zip(subjects, rows, strict=True):
            found.append({**subject.labels, **subject.stage.measure(subject.plan).row()})
    return rows


class Stock:
    """The jobs that the hosts are given: one BOT, replaced when too little of it is left."""

    def __init__(self, place: Installation, session: Session, jobs: int, least: int) -> None:
        self._place, self._session, self._jobs, self._least = place, session, jobs, least
        self._policy = place.folder / "load.ad"
        self._policy.write_text(POLICY)
        self.bot = 0

    def fill(self) -> bool:
        """Submit the BOT anew if need be; return whether it was."""
        if self.bot and self._session.bot(self.bot).show().jobs_unsent >= self._least:
            return False
        if self.bot:
            self._session.bot(self.bot).cancel()
        options = ("--range", f"0:{self._jobs}", "--policy", str(self._policy))
        self.bot = self._place.submit(*options, "--", *COMMAND)
        return True


def _keep() -> bool:
    return False


class Server:
    """A server of its own; `fill` brings it jobs where some are lacking and says whether it did.

    With `known`, its database, measurements tell whom PostgreSQL served.
    """

    def __init__(
        self, place: Installation, load: Generator, fill: Callable[[], bool] = _keep,
        known: Database | None = None,
    ) -> None:  # fmt: skip
        self.roots = {name: pid for name, pid in place.servers().items() if name != "supervisor"}
        if missing := set(OF_A_REQUEST) - self.roots.keys():
            raise BenchFailed(f"the server has no process named {', '.join(sorted(missing))}")
        self._load, self._fill = load, fill
        self.meter = Meter(self.roots, known)
        self.port, self.data = int(place.url.rpartition(":")[2]), place.data

    def measure(self, plan: Plan) -> Window:
        """Fill the queue, then carry the plan out."""
        if self._fill():
            self.calm_down()
        return self._load.measure(plan, self.meter)

    def calm_down(self) -> None:
        """Let the server finish what a submission left it to do."""
        wait_for_calm(self.roots)


class Bare:
    """Gunicorn with the settings of a server, and nothing behind it."""

    def __init__(self, port: int, pid: int, load: Generator) -> None:
        self._load, self._meter = load, Meter({"gunicorn": pid})
        self.port = port

    def measure(self, plan: Plan) -> Window:
        """Carry the plan out."""
        return replace(self._load.measure(plan, self._meter), jobs=0)


@contextmanager
def server(jobs: int, least: int, hosts: int = HOSTS) -> Iterator[Server]:
    """Run a server that always has at least `least` jobs of one BOT queued."""
    with prepared(hosts) as (place, known, load), place.session() as session:
        yield Server(place, load, Stock(place, session, jobs, least).fill, known)


@contextmanager
def prepared(
    hosts: int = HOSTS, *options: str, owners: int = 0, settings: Mapping[str, Any] | None = None
) -> Iterator[tuple[Installation, Database, Generator]]:
    """Run a server that knows so many hosts, and a load generator that speaks for them."""
    with (
        installation(*options, settings=settings) as place,
        database(place) as known,
        generator() as load,
    ):
        known.add_hosts(hosts, owners)
        yield place, known, load


@contextmanager
def bare(data: Path) -> Iterator[Bare]:
    """Run the bare web server with the settings of the server in `data`."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-c", str(_CONFIGURATION)]
    command += ["--bind", f"127.0.0.1:{port}", f"{floor.__name__}:app"]
    process = subprocess.Popen(
        command, cwd=CHECKOUT, env={**os.environ, DATA_VARIABLE: str(data)}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(port, process)
        with generator() as load:
            yield Bare(port, process.pid, load)
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    gives_up_at = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > gives_up_at:
                raise BenchFailed("the bare gunicorn did not start") from None
            time.sleep(0.05)
