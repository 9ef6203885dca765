"""Two web machines, a database, an object store, and nginx with TLS in front: what a site runs.

All of it is on this machine, as processes; each part can be killed and started again.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests
from tests.object_store import ENVIRONMENT, ObjectStore, object_store
from tests.process_tree import kill_tree
from tests.system.deployment import NO_COPIES, Deployment, deployment, eventually
from tests.system.nginx_front import NginxFront

from gridbot_server.supervision.postgres import Postgres

VICTIMS = ("server", "store", "database", "proxy")
OUTPUT_BYTES = 100_000  # too long to travel in a report


@dataclass
class Database:
    """A PostgreSQL that belongs to no server."""

    postgres: Postgres
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = self.postgres.start(self.postgres.data / "postgresql.log")
        self.postgres.wait_ready(self.process)

    def kill(self) -> None:
        """End all its processes at once."""
        assert self.process is not None
        kill_tree(self.process)


@dataclass
class Topology:
    """The parts.  Clients and people know the front's address only."""

    servers: list[Deployment]
    database: Database
    store: ObjectStore
    front: NginxFront
    clients: list[str] = field(default_factory=list)

    @property
    def first(self) -> Deployment:
        """Where the operator is at home."""
        return self.servers[0]

    def client(self, name: str) -> None:
        """Start a client of two slots, which comes by TLS and is joined once."""
        key = str(self.first.settings.operator_key_path)
        self.first.client(name, "--cpus", "2", "--server", self.front.url, "--key-file", key)
        self.clients.append(name)

    def submit(self, jobs: int) -> int:
        """Submit a BOT whose outputs go into the store; its number."""
        script = f'sleep 0.2; head -c {OUTPUT_BYTES} /dev/zero | tr "\\\\0" x > big; echo $1 >> big'
        with self.first.session() as session:
            made = session.submit(
                ["sh", "-c", script, "sh", "{}"], range(jobs), outputs=["big"],
                policy=f'{NO_COPIES} Deadline = 30; JobRequirements = Host.Name != "bare";',
            )  # fmt: skip
        return made.id

    def damaged(self, bot: int, jobs: int) -> list[int]:
        """Jobs whose output is not what the program wrote, as it is read by TLS."""
        key = {"Authorization": f"Bearer {self.first.operator_key}"}
        with requests.Session() as session:
            return [
                job for job in range(jobs)
                if _digest(session, self._output(bot, job), key) != _expected(job)
            ]  # fmt: skip

    def _output(self, bot: int, job: int) -> str:
        return f"{self.front.url}/api/v1/bots/{bot}/outputs/{job}/big"

    def joined(self) -> int:
        """How many clients the database knows that are processes."""
        query = (
            "SELECT count(*) FROM client c JOIN host h ON h.id = c.host"
            " WHERE h.ad->>'Name' <> 'bare'"
        )
        return int(self.first.rows(query)[0][0])

    def is_healthy(self) -> bool:
        """Whether both servers say so, and the front leads to one."""
        own = [f"http://127.0.0.1:{server.port}" for server in self.servers]
        with suppress(requests.RequestException):
            return all(
                requests.get(f"{url}/health", timeout=5).ok for url in (*own, self.front.url)
            )
        return False

    def part(self, victim: str, number: int) -> tuple[Callable[[], None], Callable[[], object]]:
        """How to kill a part, and how to start it again; servers take turns by the number."""
        server = self.servers[number % len(self.servers)]
        parts: Mapping[str, tuple[Callable[[], None], Callable[[], object]]] = {
            "server": (server.crash, server.start),
            "store": (self.store.kill, self.store.start),
            "database": (self.database.kill, self.database.start),
            "proxy": (self.front.kill, self.front.start),
        }
        return parts[victim]


def _digest(session: requests.Session, url: str, headers: Mapping[str, str]) -> str:
    found = session.get(url, headers=headers, timeout=60)
    found.raise_for_status()
    return hashlib.sha256(found.content).hexdigest()


def _expected(job: int) -> str:
    return hashlib.sha256(b"x" * OUTPUT_BYTES + f"{job}\n".encode()).hexdigest()


@contextmanager
def topology(folder: Path) -> Iterator[Topology]:
    """Start all parts; other users may enter the folder.  Nothing of them is left afterwards.

    REQUESTS_CA_BUNDLE of this process must name `fullchain.pem` in the folder.
    """
    with ExitStack() as stack:
        database = Database(Postgres(folder / "database"))
        stack.callback(database.postgres.stop)
        database.start()
        (folder / "store").mkdir()
        store = stack.enter_context(object_store(folder / "store"))
        servers = [stack.enter_context(deployment(database.postgres.dsn)) for _ in range(2)]
        places = [f"127.0.0.1:{server.port}" for server in servers]
        front = NginxFront(folder, places, store.endpoint.removeprefix("http://"))
        front.prepare()
        stack.callback(front.kill)
        front.start()
        made = Topology(servers, database, store, front)
        for server in servers:
            server.env |= ENVIRONMENT
            server.configure(buffer_slots=128)
            files = f"{store.url('grid')}&public={front.store_url}"
            server.start("--behind-proxy", "--url", front.url, "--files", files)
            server.url = front.url  # where clients and people are sent
        eventually(made.is_healthy, what="health of all parts")
        yield made
