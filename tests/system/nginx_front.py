"""nginx with TLS in front of servers and an object store, by the file that is handed out."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests
from tests.process_tree import kill_tree
from tests.system.batch_systems import need
from tests.system.deployment import eventually, free_port

DEPLOY = Path(__file__).resolve().parents[2] / "server" / "deploy"
SEARCH = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
_SERVER = re.compile(r"^ *server 10\.0\.0\.1[12]:8765 (.*;)\n", re.M)


@dataclass
class NginxFront:
    """nginx in a folder, which a test may kill and start again.

    Servers and store have a port of their own there, where a site has names.
    """

    folder: Path
    servers: Sequence[str]
    store: str = "127.0.0.1:1"
    tls: int = field(default_factory=free_port)
    plain: int = field(default_factory=free_port)
    store_tls: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients find the servers."""
        return f"https://localhost:{self.tls}"

    @property
    def store_url(self) -> str:
        """Where clients find the store."""
        return f"https://localhost:{self.store_tls}"

    @property
    def bundle(self) -> Path:
        """The certificate that clients must trust."""
        return self.folder / "fullchain.pem"

    @property
    def file(self) -> Path:
        return self.folder / "nginx.conf"

    def prepare(self) -> None:
        """Write a certificate for this machine, and the file with what differs here."""
        need("nginx", "nginx")
        need("openssl", "openssl")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost",
             "-keyout", self.folder / "privkey.pem", "-out", self.bundle],
            check=True, capture_output=True,
        )  # fmt: skip
        text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
        for old, new in self._changes():
            assert old in text, f"{old} is not in nginx.conf any more"
            text = text.replace(old, new, 1 if old == "listen 443 ssl" else -1)
        count = len(_SERVER.findall(text))
        places = [*self.servers, *[""] * (2 - len(self.servers))] * (count // 2)
        found = iter(places)
        text = _SERVER.sub(lambda line: _named(next(found), line[1]), text)
        self.file.write_text(text)

    def _changes(self) -> list[tuple[str, str]]:
        """What stands in the file, and what here stands in its place, in this order."""
        return [
            ("user www-data;", "daemon off; user root;"),
            ("worker_rlimit_nofile 65536;", ""),
            ("worker_connections 16384", "worker_connections 512"),
            ("/run/nginx.pid", f"{self.folder}/pid"),
            ("/var/log/nginx/gridbot.log", f"{self.folder}/access.log"),
            ("/var/log/nginx/gridbot-error.log", f"{self.folder}/error.log"),
            ("listen 443 ssl", f"listen 127.0.0.1:{self.tls} ssl"),
            ("listen 443 ssl", f"listen 127.0.0.1:{self.store_tls} ssl"),
            ("listen 80", f"listen 127.0.0.1:{self.plain}"),
            ("grid.example.org", "localhost"),
            ("files.example.org", "localhost"),
            ("10.0.0.13:8333", self.store),
            ("/etc/ssl/gridbot", str(self.folder)),
        ]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = ["nginx", "-p", str(self.folder), "-c", str(self.file)]
        with (self.folder / "nginx.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=SEARCH, stdout=log, stderr=log, start_new_session=True
            )
        eventually(self.redirects, what="nginx")

    def redirects(self) -> str:
        """Where the plain port leads; "" while it does not answer."""
        url = f"http://localhost:{self.plain}/health"
        with suppress(requests.ConnectionError):
            found = requests.get(url, allow_redirects=False, timeout=5)
            assert found.status_code == 308
            return found.headers["Location"]
        return ""

    def kill(self) -> None:
        """End all its processes at once."""
        if self.process is not None:
            kill_tree(self.process)
            self.process = None


def _named(server: str, options: str) -> str:
    return f"        server {server} {options}\n" if server else ""


@contextmanager
def nginx_front(folder: Path, servers: Sequence[str]) -> Iterator[NginxFront]:
    """nginx with TLS before the servers, given as address:port."""
    front = NginxFront(folder, servers)
    front.prepare()
    front.start()
    try:
        yield front
    finally:
        front.kill()
