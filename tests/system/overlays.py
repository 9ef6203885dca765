"""Overlays of a deployment: their constructor is a process of its own, as an operator runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.overlay_wheels import lay_wheels
from tests.system.batch_systems import Slurm
from tests.system.deployment import GRIDBOT, Deployment, eventually
from tests.system.ssh_daemon import LoginNode

from gridbot_overlay.act.store import PilotStore
from gridbot_overlay.decide.model import Pilot

FAKES = Path(__file__).parent.parent / "fakes" / "bin"
# What nodes have: a Python without anything of ours.
PYTHON = getattr(sys, "_base_executable", sys.executable)
_SAID_CHARACTERS = 4000
# Their host's name, for all nodes of a test share one machine.
_SETUP = 'export GRIDBOT_HOST_ID="$SLURMD_NODENAME"'


@dataclass
class Overlay:
    """One overlay's folder and, while it runs, its constructor.

    `interval` is that of its rounds, and `idle` the longest time of its pilots without work; None
    is what an operator gets who says nothing.
    """

    server: Deployment
    folder: Path
    interval: str | None = "1s"
    idle: str | None = "3s"
    _constructor: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def add(self, kind: str, name: str, *options: str) -> None:
        """Configure a grid."""
        scratch = ("--scratch", str(self.folder / "scratch"))
        common = ["--python", PYTHON, "--data", str(self.folder), *scratch]
        common += ["--idle", self.idle] if self.idle else []
        # Jobs wait for files in the server's folder.
        allowed = ("--setup", f"export GRIDBOT_ALLOW_WRITE={self.server.folder}")
        self.server.run("overlay", "add", kind, name, *common, *allowed, *options)

    def add_slurm(self, name: str, cluster: Slurm, *options: str) -> None:
        """Configure a cluster; each of its nodes is a host of its own."""
        self.add("slurm", name, *_on_slurm(cluster), *options)

    def add_slurm_by_ssh(self, name: str, cluster: Slurm, login: LoginNode, *options: str) -> None:
        """Configure a cluster as it is seen from a login node."""
        own = [f"{key}={json.dumps(value)}" for key, value in login.options.items()]
        given = [word for pair in own for word in ("--option", pair)]
        self.add("ssh", name, *given, *_on_slurm(cluster), *options)

    def lose_replies(self, faults: Sequence[str]) -> None:
        """Lose the replies to the next submissions to Slurm; see tests/fakes/bin/lossy_sbatch."""
        lossy = self.folder / "lossy"
        lossy.mkdir(parents=True, exist_ok=True)
        (lossy / "sbatch").symlink_to(FAKES / "lossy_sbatch")
        (lossy / "faults").write_text("".join(f"{fault}\n" for fault in faults))

    def start(self) -> None:
        """Start the constructor, or one that takes over from another that was killed."""
        command = ["overlay", "run", "--data", str(self.folder)]
        command += ["--interval", self.interval] if self.interval else []
        path = f"{self.folder / 'lossy'}:{os.environ['PATH']}"
        lay_wheels(self.folder)
        with self.log.open("ab") as log:
            self._constructor = subprocess.Popen(
                [*GRIDBOT, *command],
                env={**self.server.env, "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether the constructor lives."""
        return self._constructor is not None and self._constructor.poll() is None

    @property
    def log(self) -> Path:
        """What the constructor said."""
        return self.folder / "constructor.log"

    def said(self) -> str:
        """The last of what the constructor said."""
        return self.log.read_text()[-_SAID_CHARACTERS:]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the constructor by a signal; its exit code."""
        assert self._constructor
        self._constructor.send_signal(number)
        return self._constructor.wait(90.0)

    def status(self, grid: str) -> dict[str, Any]:
        """What `overlay status --json` says of a grid."""
        return self.statuses()[grid]

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What `overlay status --json` says of each grid."""
        shown = self.server.run("overlay", "status", "--json", "--data", str(self.folder))
        return {item["name"]: item for item in json.loads(shown)["grids"]}

    def pilots(self, grid: str) -> list[Pilot]:
        """All pilots that the constructor ever sent to a grid, as it knows them now."""
        store = PilotStore.open(self.folder)
        try:
            return store.pilots(grid, 0.0)
        finally:
            store.close()

    @property
    def prefix(self) -> str:
        """What the tags of its pilots begin with."""
        store = PilotStore.open(self.folder)
        try:
            return store.prefix
        finally:
            store.close()

    def processes(self) -> list[psutil.Process]:
        """What its pilots run on this machine, whatever their batch systems know of it."""
        prefix = self.prefix
        return [process for process in psutil.process_iter() if _is_pilots(process, prefix)]

    def wait_left(self, seconds: float = 60.0) -> None:
        """Wait until no pilot lives, in the constructor's books and on the machine."""
        grids = [item["name"] for item in self._grids()]

        def is_empty() -> bool:
            lives = any(pilot.is_live for grid in grids for pilot in self.pilots(grid))
            return not lives and not self.processes()

        eventually(is_empty, seconds, "the end of all pilots")

    def _grids(self) -> list[dict[str, Any]]:
        listed = self.server.run("overlay", "list", "--json", "--data", str(self.folder))
        found: list[dict[str, Any]] = json.loads(listed)["grids"]
        return found

    def remove(self) -> None:
        """End the constructor and whatever its pilots left running."""
        if self.is_running:
            self.end()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _on_slurm(cluster: Slurm) -> tuple[str, ...]:
    pairs = (f"{name} = {json.dumps(value)}" for name, value in cluster.env.items())
    environment = f"environment={{{', '.join(pairs)}}}"
    return ("--option", environment, "--setup", _SETUP, "--memory", "900")


def _is_pilots(process: psutil.Process, prefix: str) -> bool:
    try:
        return process.environ().get("GRIDBOT_PILOT_TAG", "").startswith(prefix)
    except (psutil.Error, OSError):
        return False  # it ended meanwhile, or is not to be looked at


@contextmanager
def overlay(
    server: Deployment, name: str = "overlay", *, with_defaults: bool = False
) -> Iterator[Overlay]:
    """Make an overlay of a deployment; nothing of its pilots is left running afterwards.

    Its rounds and the idle time of its pilots are short, unless it is to be `with_defaults`.
    """
    made = Overlay(server, server.folder / name)
    if with_defaults:
        made.interval = made.idle = None
    try:
        yield made
    finally:
        made.remove()
