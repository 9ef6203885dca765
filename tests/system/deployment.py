"""A whole installation for tests: a real server, real clients, and the `gridbot` command."""

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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
from tests.process_tree import kill_tree, signal_tree
from tests.system.bare_client import BareClient

import gridbot
from gridbot import Session
from gridbot_client.work.processes import SLOT_VARIABLE
from gridbot_server.settings import Settings
from gridbot_server.storage import db

T = TypeVar("T")

GRIDBOT = [sys.executable, "-m", "gridbot"]

# The policy of a BOT whose replicas a test counts: jobs that are held back, or a busy machine,
# would make stragglers of some, which get further copies.
NO_COPIES = "ReplicationRequirements = false;"


def eventually(fact: Callable[[], T], seconds: float = 60.0, what: str = "it") -> T:
    """Wait until `fact` is true and return it; fail when it does not come true in time.

    The time is that of a machine with a core to spare: see `patience`.
    """
    began = time.monotonic()
    while not (value := fact()):
        most = patience(seconds)
        assert time.monotonic() < began + most, f"{what} did not come true in {most:.0f} s"
        time.sleep(0.05)
    return value


def patience(seconds: float) -> float:
    """What takes so long with a core to spare takes here, in seconds.

    On a busy machine it is as much longer as processes wait there for each core.
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


# The kernel gives none of these to a connection, as it might while a server is restarted.
_PORTS = range(10_000, 32_768)


def free_port() -> int:
    """A port that nobody listens on."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


@dataclass(frozen=True)
class Gate:
    """Holds jobs back until it is opened, and so do tests decide when a job ends."""

    path: Path

    def command(self, script: str = ":") -> list[str]:
        """A job that waits at the gate and then runs a script, whose $1 is its item."""
        waits = 'while test -e "$0"; do sleep 0.05; done; '
        return ["sh", "-c", waits + script, str(self.path), "{}"]

    def open(self) -> None:
        """Let them all through."""
        self.path.unlink()


class Deployment:
    """One server with its data below `folder`, and the clients that a test starts."""

    def __init__(self, folder: Path, dsn: str | None = None) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = folder / "server"
        self._dsn = dsn
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        # Tests hold jobs back by files in this folder, which jobs read and write.
        self.env = {
            **os.environ,
            "GRIDBOT_DATA": str(folder),
            "GRIDBOT_ALLOW_WRITE": str(folder),
        }

    # ------------------------------------------------------------------------------ server

    def configure(self, **knobs: Any) -> None:
        """Change settings for which `server start` has no option, before it."""
        changed = replace(self.settings, **knobs)
        changed.make_directories()
        changed.save()

    def start(self, *options: str) -> None:
        """Start the server, or take over what an earlier one left."""
        where = ["--data", str(self.data), "--bind", f"127.0.0.1:{self.port}"]
        dsn = ["--dsn", self._dsn] if self._dsn else []
        self.run("server", "start", *where, *dsn, *options)

    def stop(self) -> None:
        """End the clients, then the server, or what is left of it."""
        self.kill_clients()
        if self.settings.lock_path.exists():
            self.run("server", "stop", "--data", str(self.data))

    def crash(self) -> None:
        """End every process of the server at once, as a power failure does."""
        supervisor = self.supervisor
        assert supervisor is not None
        signal_tree(supervisor)

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

    def rows(self, query: str, *values: object) -> list[Any]:
        """What the database says."""
        with self.database() as conn:
            return conn.execute(query, values).fetchall()

    # ----------------------------------------------------------------------------- clients

    def client(
        self, name: str, *options: str, host: str | None = None,
        command: Sequence[str] = GRIDBOT, env: Mapping[str, str] | None = None,
    ) -> int:  # fmt: skip
        """Start a client in a folder of its own, on a host of its own; return its process id.

        `command` is the program, and `env` its variables, if they are not ours.
        """
        log = (self.folder / f"{name}.log").open("ab")
        run = [*command, "client", "run", "--data", str(self.folder / name), *options]
        with log:
            self._clients[name] = subprocess.Popen(
                run,
                env={**(env or self.env), "GRIDBOT_HOST_ID": host or name.replace("/", "-")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._clients[name].pid

    def client_ends(self, name: str, number: signal.Signals | None = None) -> int:
        """Wait until a client ends, by itself or upon a signal; its exit code."""
        if number:
            self._clients[name].send_signal(number)
        return self._clients[name].wait(60.0)

    def programs(self, name: str) -> list[psutil.Process]:
        """The jobs that a client runs."""
        below = psutil.Process(self._clients[name].pid).children(recursive=True)
        found = {process.pid: process for process in below if _is_in_slot(process)}
        return [process for process in found.values() if _parent(process) not in found]

    def freeze(self, name: str) -> None:
        """Stop a client in the midst of its work; what it runs goes on."""
        eventually(lambda: self.programs(name), what=f"a job of {name}")
        self._clients[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen client go on."""
        self._clients[name].send_signal(signal.SIGCONT)

    def bare_client(self, name: str) -> BareClient:
        """A client that is not a process but does as the test says."""
        return BareClient.join(self.url, self.operator_key, name)

    def slots(self, name: str) -> list[str]:
        """What a client holds: the names of its slot directories."""
        return sorted(path.name for path in (self.folder / name / "slots").iterdir())

    def kill_clients(self) -> None:
        """Kill all clients."""
        for name in list(self._clients):
            self.kill_client(name)

    def kill_client(self, name: str) -> None:
        """Kill a client and what it runs."""
        kill_tree(self._clients.pop(name))

    # ------------------------------------------------------------------------------- users

    @property
    def operator_key(self) -> str:
        """The key of the user who started the server."""
        return self.settings.operator_key_path.read_text().strip()

    def add_user(self, name: str, *options: str) -> str:
        """Add a person and return a key of theirs."""
        self.run("user", "add", name, *options)
        return str(json.loads(self.run("token", "create", name, "--json"))["token"])

    def run(
        self, *arguments: str, code: int = 0, key: str | None = None, seconds: float = 120.0
    ) -> str:
        """Run a `gridbot` command, check its exit code and return what it printed.

        With a `key` it is another person's command.
        """
        other = {"GRIDBOT_SERVER": self.url, "GRIDBOT_KEY": key} if key else {}
        done = self._run(*arguments, env={**self.env, **other}, seconds=seconds)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout + (done.stderr if code else "")

    def client_status(self, name: str, *options: str) -> str:
        """What `client status` prints of a client once that runs."""
        command = ("client", "status", "--data", str(self.folder / name), *options)

        def said() -> str:
            done = self._run(*command, env=self.env)
            return done.stdout if done.returncode == 0 else ""

        return eventually(said, what=f"client {name}")

    @staticmethod
    def _run(
        *arguments: str, env: Mapping[str, str], seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*GRIDBOT, *arguments],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def submit(self, *arguments: str, policy: str = "", key: str | None = None) -> int:
        """Submit a BOT, its policy as text, and return its number."""
        options = ["--policy", str(self.file("policy.ad", policy))] if policy else []
        submitted = self.run("submit", "--json", *options, *arguments, key=key)
        return int(json.loads(submitted)["id"])

    def show(self, bot: int) -> dict[str, Any]:
        """What `bot show --json` says."""
        shown = json.loads(self.run("bot", "show", str(bot), "--json"))
        assert isinstance(shown, dict)
        return shown

    def made(self, bot: int) -> dict[str, int]:
        """How many replicas were made for which reason."""
        return dict(self.show(bot)["replicas"]["by_reason"])

    def session(self) -> Session:
        """The scientist's API, as the operator."""
        return gridbot.connect(self.url, self.settings.operator_key_path)

    def wait(self, bot: int, seconds: float = 60.0) -> None:
        """Wait until a BOT has ended."""
        with self.session() as session:
            session.bot(bot).wait(seconds)

    def file(self, name: str, content: str | bytes) -> Path:
        """Write a file beside the server's data and the clients'."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def gate(self) -> Gate:
        """A gate that is closed; with the installation it vanishes, and so opens."""
        return Gate(self.file(f"gate-{uuid.uuid4().hex}", ""))

    # --------------------------------------------------------------------------- the truth

    def leases(self, bot: int) -> list[tuple[int, int, int]]:
        """Replicas in progress: (job, replica, client)."""
        return self.rows("SELECT seq, replica, client FROM lease WHERE bot = %s ORDER BY 1, 2", bot)

    def ended(self, bot: int) -> dict[tuple[int, int], tuple[str, str, bool | None]]:
        """Replicas that are no longer in progress: (why made, how ended, whether valid)."""
        query = "SELECT seq, replica, why, how, valid FROM ended WHERE bot = %s"
        return {(row[0], row[1]): tuple(row[2:]) for row in self.rows(query, bot)}

    def outcomes(self, bot: int) -> dict[int, int | None]:
        """The canonical replica of every finished job."""
        return dict(self.rows("SELECT seq, canonical FROM outcome WHERE bot = %s", bot))


def _is_in_slot(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return SLOT_VARIABLE in process.environ()
    return False


def _parent(process: psutil.Process) -> int | None:
    """Its parent's number, while it lives or as a zombie."""
    with suppress(psutil.NoSuchProcess):
        return process.ppid()
    return None


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
