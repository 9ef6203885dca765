"""A server of our own on the loopback address, its clients, and their end whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gridbot import Session, connect

COMMAND = [sys.executable, "-m", "gridbot"]
SCRIPTS = Path(__file__).resolve().parent.parent

_COMMAND_SECONDS = 600.0
_STOP_SECONDS = 30.0


class BenchFailed(Exception):
    """A part of the installation did not do what the measurement needs; the message says what."""


class Installation:
    """One server with its data below `folder`, and the clients that were started for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "server"
        self.url = f"http://127.0.0.1:{_free_port()}"
        own = {name: value for name, value in os.environ.items() if name[:8] != "GRIDBOT_"}
        self._environment = {**own, "GRIDBOT_DATA": str(folder)}
        self._clients: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the server; return when it is healthy."""
        self.gridbot("server", "start", "--bind", self.url.removeprefix("http://"))

    def stop(self) -> None:
        """End the clients, then the server."""
        for client in self._clients.values():
            client.terminate()
        for client in self._clients.values():
            try:
                client.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(client.pid, signal.SIGKILL)
                client.wait()
        self.gridbot("server", "stop")

    def gridbot(self, *arguments: str) -> str:
        """Run a `gridbot` command and return what it printed; BenchFailed with what it said."""
        return self.run(*COMMAND, *arguments)

    def run(self, *command: str, folder: Path | None = None) -> str:
        """Run any command as a user of this server would."""
        ended = subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        if ended.returncode != 0:
            raise BenchFailed(f"`{' '.join(command)}` failed: {ended.stderr.strip()}")
        return ended.stdout

    def part(self, module: str, *arguments: str) -> dict[str, float]:
        """Run a module of this package as a process of its own; return the JSON it prints."""
        command = (sys.executable, "-m", f"benchmarks.{module}", *arguments)
        document: dict[str, float] = json.loads(self.run(*command, folder=SCRIPTS))
        return document

    def submit(self, *arguments: str) -> int:
        """Submit a BOT with the real command; return its number."""
        return int(json.loads(self.gridbot("submit", "--json", *arguments))["id"])

    def session(self) -> Session:
        """The scientist's API, as the operator."""
        return connect(self.url, self.key_path)

    @property
    def key_path(self) -> Path:
        """The file with the operator's key."""
        return self.data / "operator.key"

    def servers(self) -> dict[str, int]:
        """The process ids of the server's processes, by name."""
        status = json.loads(self.gridbot("server", "status", "--json"))
        return {item["name"]: item["pid"] for item in status["processes"]}

    def start_client(self, name: str, *options: str) -> int:
        """Start a client that stands for a machine of its own; return its process id."""
        options = ("--data", str(self.folder / name), "--server", self.url, *options)
        with (self.folder / f"{name}.log").open("wb") as log:
            self._clients[name] = subprocess.Popen(
                [*COMMAND, "client", "run", *options],
                cwd=self.folder,
                env={**self._environment, "GRIDBOT_HOST_ID": name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._clients[name].pid

    def check_clients(self) -> None:
        """Raise BenchFailed when a client has ended."""
        for name, client in self._clients.items():
            if client.poll() is not None:
                said = (self.folder / f"{name}.log").read_text()[-1000:]
                raise BenchFailed(f"{name} ended with exit code {client.returncode}: {said}")


@contextmanager
def installation() -> Iterator[Installation]:
    """Start a server in a private directory; leave nothing running and nothing behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="gridbot-bench-", dir="/tmp"))
    folder.chmod(0o711)  # PostgreSQL, another user when we are root, passes through it
    made = Installation(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
