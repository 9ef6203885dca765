"""A whole installation for tests: a real server, real clients, and the `gridbot` command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil

import gridbot
from gridbot import Session
from gridbot_server import db
from gridbot_server.settings import Settings

T = TypeVar("T")

GRIDBOT = [sys.executable, "-m", "gridbot"]


def eventually(fact: Callable[[], T], seconds: float = 60.0, what: str = "it") -> T:
    """Wait until `fact` is true and return it; fail when it does not come true in time."""
    end = time.monotonic() + seconds
    while not (value := fact()):
        assert time.monotonic() < end, f"{what} did not come true within {seconds:g} s"
        time.sleep(0.05)
    return value


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """One server with its data below `folder`, and the clients that a test starts."""

    def __init__(self, folder: Path, dsn: str | None = None) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = folder / "server"
        self._dsn = dsn
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**os.environ, "GRIDBOT_DATA": str(folder)}

    # ------------------------------------------------------------------------------ server

    def start(self, *options: str) -> None:
        """Start the server, or take over what an earlier one left."""
        where = ["--data", str(self.data), "--bind", f"127.0.0.1:{self.port}"]
        dsn = ["--dsn", self._dsn] if self._dsn else []
        self.run("server", "start", *where, *dsn, *options)

    def stop(self) -> None:
        """End the clients, then the server."""
        for name in list(self._clients):
            self.kill_client(name)
        if psutil.pid_exists(self.supervisor or 0):
            self.run("server", "stop", "--data", str(self.data))

    @property
    def supervisor(self) -> int | None:
        """Its process id, while the server is healthy."""
        path = self.settings.endpoint_path
        return json.loads(path.read_text())["pid"] if path.exists() else None

    @property
    def settings(self) -> Settings:
        """The server's settings."""
        return Settings.load(self.data)

    def children(self) -> dict[str, int]:
        """Process ids of the server's processes, by name."""
        status = json.loads(self.run("server", "status", "--json", "--data", str(self.data)))
        return {item["name"]: item["pid"] for item in status["processes"]}

    @contextmanager
    def database(self) -> Iterator[db.Connection]:
        """A connection to the server's database."""
        with db.connect(self.settings.dsn_or_embedded, "test", autocommit=True) as conn:
            yield conn

    # ----------------------------------------------------------------------------- clients

    def client(self, name: str, *options: str, host: str | None = None) -> int:
        """Start a client in a folder of its own, on a host of its own; return its process id."""
        log = (self.folder / f"{name}.log").open("ab")
        command = [*GRIDBOT, "client", "run", "--data", str(self.folder / name), *options]
        with log:
            self._clients[name] = subprocess.Popen(
                command,
                env={**self.env, "GRIDBOT_HOST_ID": host or name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._clients[name].pid

    def signal_client(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a client's own process, not to what it runs."""
        self._clients[name].send_signal(number)

    def kill_client(self, name: str) -> None:
        """Kill a client and what it runs."""
        process = self._clients.pop(name)
        if process.poll() is None:
            below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in below:
                if child.is_running():
                    child.kill()
        process.wait()

    # ------------------------------------------------------------------------------- users

    def run(self, *arguments: str, code: int = 0, seconds: float = 120.0) -> str:
        """Run a `gridbot` command, check its exit code and return what it printed."""
        done = subprocess.run(
            [*GRIDBOT, *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout + (done.stderr if code else "")

    def submit(self, *arguments: str) -> int:
        """Submit a BOT and return its number."""
        return int(json.loads(self.run("submit", "--json", *arguments))["id"])

    def show(self, bot: int) -> dict[str, Any]:
        """What `bot show --json` says."""
        shown = json.loads(self.run("bot", "show", str(bot), "--json"))
        assert isinstance(shown, dict)
        return shown

    def session(self) -> Session:
        """The scientist's API, as the operator."""
        return gridbot.connect(self.url, self.settings.operator_key_path)


@contextmanager
def deployment(dsn: str | None = None) -> Iterator[Deployment]:
    """Make an installation below a private directory; nothing is left of it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gridbot-test-", dir="/tmp"))
    folder.chmod(0o711)  # PostgreSQL's own user must get in
    made = Deployment(folder, dsn)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
