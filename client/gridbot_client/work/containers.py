"""Containers of jobs: what a runtime of this machine has to do, and how its programs are called.

A runtime makes walls of its own, which it could not behind ours.  So it starts at level 0.  The
container has what strangers' work has: its own namespaces, no capability, a root that is read-only,
and of this machine's files the slot and the folders that the BOT shares.  The client holds time,
memory, processes and disk, as for any job.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from gridbot_client.protocol.software import RUNTIMES
from gridbot_client.work import processes
from gridbot_client.work.confinement import ShownFolder
from gridbot_client.work.shared import (
    ENVIRONMENT_FAILED,
    SPARE_BYTES,
    CannotProvide,
    Interrupted,
)
from gridbot_client.work.slots import ReplicaSlot

_ASK_SECONDS = 20.0
CONTAINER_FAILED = "container_failed"  # reason code
_NO_PROGRAM = 127  # exit code of podman-run(1)
_LOOK_SECONDS = 0.2
_LAST_BYTES = 2000  # of what a failed program has printed
_KEPT_VARIABLES = ("PATH", "LANG", "TMPDIR", "http_proxy", "https_proxy", "no_proxy")


def found() -> tuple[str, ...]:
    """Runtimes that are on this machine and answer."""
    return tuple(name for name in RUNTIMES if shutil.which(name) and _answers(name))


def _answers(name: str) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        command = [name, "--version"]
        return subprocess.run(command, capture_output=True, timeout=_ASK_SECONDS).returncode == 0
    return False


@dataclass(frozen=True, slots=True)
class ContainerOrder:
    """A program that runs in a container."""

    argv: Sequence[str]
    env: Mapping[str, str]
    slot: ReplicaSlot
    shown: Sequence[ShownFolder]
    has_stdin: bool
    failed_to_start: bool = False  # before this attempt

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the job; the image has a PATH and a Python of its own."""
        others = ("PATH", "GRIDBOT_PYTHON")
        return {name: value for name, value in self.env.items() if name not in others}

    @property
    def mounts(self) -> list[str]:
        """What is bound into the container, as both runtimes are told: source:target:mode."""
        work = self.slot.work
        shown = [f"{folder.source}:{folder.target}:ro" for folder in self.shown]
        return [f"{work}:{work}:rw", f"{work}/tmp:/tmp:rw", *shown]  # noqa: S108


class Runtime(Protocol):
    """A program that runs containers.  What it keeps of an image has its note in a folder."""

    @property
    def key(self) -> str:
        """Distinguishes what it keeps from what other runtimes do."""

    def load(self, packed: Path, top: Path, watch: Watch) -> int:
        """Make an image's folder of an archive, which it may take; bytes that are kept elsewhere.

        Raises CannotProvide, Interrupted and OSError.
        """

    def pull(self, image: str, top: Path, watch: Watch) -> int:
        """As `load`, from a registry."""

    def remove(self, top: Path) -> None:
        """Remove what is kept elsewhere of an image whose folder goes."""

    def command(self, top: Path, order: ContainerOrder, *, network: bool) -> list[str]:
        """Arguments that run a program in a container of an image."""

    def environment(self, order: ContainerOrder) -> dict[str, str]:
        """Variables of that command."""

    def has_begun(self, slot: ReplicaSlot, exit_code: int) -> bool:
        """False if it was the runtime that exited so, and not a slot's program."""

    def clear(self, slot: ReplicaSlot) -> None:
        """Remove what is left of a slot's container that was killed."""

    def sweep(self) -> None:
        """Remove what an earlier client left."""

    def close(self) -> None:
        """End what it keeps running."""

    def empty(self) -> None:
        """Remove all images."""


@dataclass(frozen=True, slots=True)
class Container:
    """An image with the runtime that runs it."""

    runtime: Runtime
    top: Path  # the image's folder
    network: bool

    def command(self, order: ContainerOrder) -> list[str]:
        """Arguments that run a program in it."""
        return self.runtime.command(self.top, order, network=self.network)

    def environment(self, order: ContainerOrder) -> dict[str, str]:
        """Variables of that command."""
        return self.runtime.environment(order)

    def failure(self, slot: ReplicaSlot, exit_code: int) -> str:
        """Reason code if a slot's program was not started; "" if it was, and has exited so."""
        if self.runtime.has_begun(slot, exit_code):
            return ""
        return "not_executable" if exit_code == _NO_PROGRAM else CONTAINER_FAILED

    def clear(self, slot: ReplicaSlot) -> None:
        """Remove what is left of it if it was killed."""
        self.runtime.clear(slot)


def own_variables(folder: Path) -> dict[str, str]:
    """Variables of a runtime, which sees nothing of its user's home."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, "HOME": str(folder)}


@dataclass(frozen=True, slots=True)
class Watch:
    """Bounds of a runtime's command: when it is to end, and the disk that it may take."""

    is_stopped: Callable[[], bool] = lambda: False
    seconds: float = _ASK_SECONDS
    most_bytes: int = 1 << 62

    def call(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
        """Run a command to its end; what it printed.  Raises CannotProvide, Interrupted, OSError.

        What others write meanwhile counts as the command's, for an image is not its archive's size.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        before, end = shutil.disk_usage(folder).free, time.monotonic() + self.seconds
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=said,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            why = ""
            try:
                while process.poll() is None and not why:
                    why = self._excess(before, shutil.disk_usage(folder).free, end)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_SECONDS)
            finally:
                processes.kill_group(process.pid)
                code = process.wait()
            text = _last(said)
        if why or code:
            why = why or f"exit code {code}"
            raise CannotProvide(ENVIRONMENT_FAILED, f"{text}\n{command[0]} failed: {why}\n")
        return text

    def _excess(self, before: int, free: int, end: float) -> str:
        if self.is_stopped():
            raise Interrupted
        if time.monotonic() > end:
            return f"it took more than {self.seconds:.0f} s"
        if before - free > self.most_bytes:
            return f"it took more than the {self.most_bytes >> 20} MB that this machine gives it"
        if free < min(before, SPARE_BYTES):
            return "the disk is full"
        return ""


def _last(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _LAST_BYTES))
    return said.read().decode(errors="replace").strip()
