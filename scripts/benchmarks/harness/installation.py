"""A server of our own on the loopback address, its clients, and their end whatever happens."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.process_tree import kill_tree

from gridbot import Session, connect
from gridbot_server.settings import Settings

CHECKOUT = Path(__file__).resolve().parents[3]

_HOST_REQUESTS_PER_MINUTE = 1_000_000_000
_COMMAND_SECONDS = 600.0
_STOP_SECONDS = 60.0  # the server's last checkpoint may take long
_LOOK_SECONDS = 0.1
_PASSABLE = 0o711  # of folders: PostgreSQL is another user when we are root

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# Below those that the kernel gives to connections.
_PORTS = range(10_000, 32_768)


class BenchFailed(Exception):
    """A part of the installation did not do what the measurement needs; the message says what."""


class Installation:
    """One server with its data below `folder`, and the clients that were started for it.

    `python` is of the environment in which that GridBot is installed: ours, or an older one's.
    Such a server is reached by its command, its files `settings.json`, `endpoint.json` and
    `operator.key`, and HTTP; `settings` and `database` are for servers of this checkout.
    """

    def __init__(
        self, folder: Path, python: str = sys.executable, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.folder, self._settings = folder, settings or {}
        self._command = (python, "-m", "gridbot")
        self.data = folder / "server"
        self.url = f"http://127.0.0.1:{free_port()}"
        own = {name: value for name, value in os.environ.items() if name[:8] != "GRIDBOT_"}
        self.environment = {**own, "GRIDBOT_DATA": str(folder)}
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start the server, also after it was killed; return when it is healthy."""
        # In the foreground: it is our child from its first moment, whenever we are interrupted.
        if not self.data.exists():
            self._configure()
        address = self.url.removeprefix("http://")
        self._server = self._spawn("server", "server", "start", "--foreground", "--bind", address,
                                   *options)  # fmt: skip
        while not (self.data / "endpoint.json").exists():
            if self._server.poll() is not None:
                raise BenchFailed(f"the server did not start: {self._said('server')}")
            time.sleep(_LOOK_SECONDS)

    def _configure(self) -> None:
        """Let few hosts stand for many: they ask more often than a client may."""
        self.data.mkdir()
        self.data.chmod(_PASSABLE)
        settings = {"client_requests_per_minute": _HOST_REQUESTS_PER_MINUTE, **self._settings}
        if self._command[0] == sys.executable:  # an older server may not know it
            settings["boinc_delay_seconds"] = 1  # with what is tolerated: none
        (self.data / "settings.json").write_text(json.dumps(settings))

    def stop(self) -> None:
        """End the clients, then the server."""
        _end(list(self._clients.values()))
        if self._server is not None:
            _end([self._server])

    @property
    def settings(self) -> Settings:
        """The server's knobs, and where it keeps what."""
        return Settings.load(self.data)

    def gridbot(self, *arguments: str) -> str:
        """Run a `gridbot` command and return what it printed; BenchFailed with what it said."""
        return self.run(*self._command, *arguments)

    def run(self, *command: str, folder: Path | None = None) -> str:
        """Run any command as a user of this server would."""
        ended = subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        if ended.returncode != 0:
            raise BenchFailed(f"`{' '.join(command)}` failed: {ended.stderr.strip()}")
        return ended.stdout

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
        self._clients[name] = self._spawn(name, "client", "run", *options)
        return self._clients[name].pid

    def kill_client(self, name: str) -> None:
        """Kill a client and what it runs, as if its machine had lost power."""
        kill_tree(self._clients.pop(name))

    def kill_server(self) -> None:
        """Kill all processes of the server, its database's included."""
        assert self._server is not None, "it was started"
        kill_tree(self._server)
        (self.data / "endpoint.json").unlink()

    def check_clients(self) -> None:
        """Raise BenchFailed when a client has ended."""
        for name, client in self._clients.items():
            if client.poll() is not None:
                said = self._said(name)
                raise BenchFailed(f"{name} ended with exit code {client.returncode}: {said}")

    def _spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Run a `gridbot` command as a child, beyond the reach of a ^C that is meant for us."""
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*self._command, *arguments],
                cwd=self.folder,
                env={**self.environment, "GRIDBOT_HOST_ID": name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-1000:]


@contextmanager
def installation(
    *options: str, python: str = sys.executable, settings: Mapping[str, Any] | None = None
) -> Iterator[Installation]:
    """Start a server in a private directory; leave nothing running and nothing behind."""
    for number in _INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="gridbot-bench-", dir="/tmp"))
    folder.chmod(_PASSABLE)
    made = Installation(folder, python, settings)
    try:
        made.start(*options)
        yield made
    finally:
        with _undisturbed():
            made.stop()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let nobody interrupt the cleaning up: whoever presses ^C does so more than once."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Tell processes to end, and their groups once they do not."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """A port of the loopback address that nobody uses now, and the kernel gives no connection."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
