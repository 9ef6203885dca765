"""HTCondor and GRAM5 for a while, each in a throw-away tree with a network of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.system.batch_systems import call

from scripts.grid_systems import gram, tree
from scripts.grid_systems.cli import CACHE, SYSTEMS
from scripts.grid_systems.inside import USER

from .networks import Door, opened
from .place import RunFailed

_CHECKOUT = Path(__file__).resolve().parents[2]
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Tree:
    """One system that runs; `keeper` is the first process in its namespaces."""

    keeper: int

    @property
    def network(self) -> Path:
        """Its network."""
        return Path(f"/proc/{self.keeper}/ns/net")

    @property
    def home(self) -> str:
        """Its user's folder, where the system's own files are."""
        return f"/home/{USER}"

    @property
    def through(self) -> list[str]:
        """The command that takes a shell line of its user."""
        return [*self._entrance, "runuser", "-u", USER, "--", "sh", "-c"]

    def run(self, *command: str) -> None:
        """Run a program there, as root."""
        call(*self._entrance, *command)

    @property
    def _entrance(self) -> list[str]:
        spaces = ("--mount", "--pid", "--ipc", "--uts", "--net")
        return ["nsenter", f"--target={self.keeper}", *spaces, "--wdns=/"]

    def path(self, within: Path) -> Path:
        """Give the name that we have for one of its files."""
        return Path(f"/proc/{self.keeper}/root{within}")


@contextmanager
def running(system: str, server_port: int) -> Iterator[Tree]:
    """Run a system whose nodes find the server at its usual address."""
    root = tree.ready(CACHE / system, SYSTEMS[system], "")
    holder = subprocess.Popen(
        tree.entering(root, _CHECKOUT, "scripts.overlay_trial.hold", system),
        env=tree.ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # ^C is no reason to go before the pilots do
    )
    assert holder.stdout
    try:
        if holder.stdout.readline() != "ready\n":
            raise RunFailed(f"{system} does not start in its tree")
        made = Tree(psutil.Process(holder.pid).children()[0].pid)
        server = (_LOOPBACK, server_port)
        with opened(Door(outside=made.network, at=server, behind=server)):
            yield made
    finally:
        holder.communicate()  # its stdin ends


@contextmanager
def gatekeeper(made: Tree, folder: Path) -> Iterator[dict[str, object]]:
    """Let us reach the gatekeeper of a tree and its job managers; give the grid's options."""
    first, last = gram.MANAGERS_PORTS
    ports = (gram.PORT, *range(first, last + 1))
    doors = (
        Door(outside=None, at=(_LOOPBACK, port), within=made.network, behind=(_LOOPBACK, port))
        for port in ports
    )
    with opened(*doors):
        yield {
            "contact": f"localhost:{gram.PORT}/jobmanager-fork",
            "environment": {
                "X509_CERT_DIR": str(made.path(gram.CERTIFICATES)),
                "X509_USER_PROXY": str(_proxy(made, folder)),
                "GLOBUS_HOSTNAME": "localhost",
            },
        }


def _proxy(made: Tree, folder: Path) -> Path:
    """Copy the user's proxy certificate: the library takes none of other people's."""
    [there] = made.path(Path("/tmp")).glob("x509up_u*")
    mine = folder / "proxy"
    with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(there.read_bytes())
    return mine


def toml(value: object) -> str:
    """Write texts, lists and tables of texts as TOML does in one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {toml(item)}' for key, item in value.items())}}}"
    return json.dumps(value)
