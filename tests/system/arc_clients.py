"""Stock clients of ARC as one person with a proxy certificate, and a gatekeeper for them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.arc_certificates import make_certificates
from tests.system.batch_systems import call, need
from tests.system.deployment import GRIDBOT, Deployment, eventually, free_port, patience

PACKAGES = "nordugrid-arc-client nordugrid-arc-plugins-arcrest nordugrid-arc-test-utils"
_PROGRAMS = "arcsub arcstat arcget arckill arcclean arcproxy arcctl"
_ID = re.compile(r"https://\S+/rest/1\.0/jobs/[0-9a-f]+")


@dataclass(frozen=True)
class ArcUser:
    """Somebody's shell: the commands of ARC in a home of their own."""

    home: Path
    authorities: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.home),
            "X509_CERT_DIR": str(self.authorities),
            "X509_USER_PROXY": str(self.home / "proxy.pem"),
        }

    def run(self, *command: str, code: int = 0) -> str:
        """What a command prints on both streams."""
        done = subprocess.run(
            command, cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patience(120.0),
        )  # fmt: skip
        assert done.returncode == code, (command, done.returncode, done.stdout)
        return done.stdout

    def submit(self, url: str, xrsl: str, *options: str) -> str:
        """Submit a job, and return its URL."""
        said = self.run("arcsub", "-C", url, "-T", "arcrest", *options, "-e", xrsl)
        found = _ID.search(said)
        assert found, said
        return found[0]

    def states(self) -> dict[str, str]:
        """The state of each job, as arcstat calls it."""
        said = self.run("arcstat", "-a")
        found = re.findall(r"Job: (\S+)\n(?: .*\n)*? State: (\w+)", said)
        return dict(found)


class Gatekeeper:
    """`gridbot gatekeeper` before a server, as its operator; it may be killed."""

    def __init__(self, running: Deployment, folder: Path) -> None:
        self._running, self.folder, self.port = running, folder, free_port()
        self.url = f"https://localhost:{self.port}/arex"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            *GRIDBOT, "gatekeeper", "--map", str(self.folder / "owners.map"),
            "--data", str(self.folder / "gatekeeper"), "--bind", f"127.0.0.1:{self.port}",
            "--certificate", str(self.folder / "host-localhost-cert.pem"),
            "--certificate-key", str(self.folder / "host-localhost-key.pem"),
            "--authorities", str(self.folder / "authorities"), "--server", self._running.url,
        ]  # fmt: skip
        with (self.folder / "gatekeeper.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=self._running.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually(self._listens, what="the gatekeeper's port")

    def _listens(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self.folder / "gatekeeper.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it; its exit code."""
        assert self._process
        self._process.send_signal(number)
        return self._process.wait(60.0)

    def kill_and_start(self) -> None:
        self.kill()
        self.start()


@contextmanager
def gatekeeper(running: Deployment, folder: Path) -> Iterator[tuple[Gatekeeper, ArcUser]]:
    """Start a gatekeeper that knows one user, whose jobs are the operator's."""
    need(_PROGRAMS, PACKAGES)
    home = folder / "home"
    home.mkdir()
    user = ArcUser(home, make_certificates(folder))
    own = {
        "X509_USER_CERT": folder / "client-u-cert.pem",
        "X509_USER_KEY": folder / "client-u-key.pem",
    }
    call("arcproxy", env={**user.env, **{name: str(path) for name, path in own.items()}})
    subject = "/DC=org/DC=nordugrid/DC=ARC/O=TestCA/CN=u"
    key = running.settings.operator_key_path
    (folder / "owners.map").write_text(f'"{subject}" {key}\n')
    made = Gatekeeper(running, folder)
    made.start()
    try:
        yield made, user
    finally:
        made.kill()
