"""Runs a scientist's own comparison behind walls: the program of `--validator command:./compare`.

It sees the system's programs, itself, and the two answers as directories that it cannot change; it
has no network.  The answers' directories are its last arguments.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from gridbot_client.walls import levels, nobody
from gridbot_client.walls.cells import NAMESPACES, NONE, Cell, KernelLimits
from gridbot_client.walls.handle import WalledTask, Warden
from gridbot_client.walls.levels import Sandbox
from gridbot_server.validators.compare import Answer
from gridbot_server.validators.difference import Difference, excerpt

SECONDS = 60.0  # time limit of one comparison
MEMORY_BYTES = 1 << 30  # of all its processes
DISK_BYTES = 256 << 20  # that it may write
PROCESSES = 64
_LIMITS = KernelLimits(
    processes=PROCESSES, data_bytes=MEMORY_BYTES, file_bytes=DISK_BYTES, open_files=256,
    shared_bytes=16 << 20,
)  # fmt: skip
_LOOK_SECONDS = 0.2
_EQUAL, _DIFFERENT = 0, 1  # exit codes
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108


class NoVerdict(Exception):
    """A comparison that gave no verdict; says why."""


class ConfinedCommand(NamedTuple):
    """A program to compare with."""

    program: Path  # its content
    name: str  # under which it runs
    arguments: Sequence[str]


class Confined:
    """Runs such programs below a folder of the server; from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._warden = Warden()
        self._sandbox: Sandbox | None = None

    def close(self) -> None:
        """End all of them."""
        self._warden.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def difference(self, command: ConfinedCommand, one: Answer, other: Answer) -> Difference | None:
        """Return what the program says; None if that the answers agree.

        Raises NoVerdict, also if this machine offers no walls, and OSError.
        """
        sandbox = self._proven()
        if sandbox.level == NONE:
            raise NoVerdict(f"this server's machine offers no walls ({sandbox.obstacle})")
        slot = Path(tempfile.mkdtemp(dir=self._folder / "slots"))
        answers = Path(tempfile.mkdtemp(dir=self._folder / "answers"))
        try:
            _lay_out(answers / "one", one)
            _lay_out(answers / "other", other)
            (slot / "work" / "tmp").mkdir(parents=True)
            program = slot / "work" / command.name
            shutil.copyfile(command.program, program)
            program.chmod(0o755)
            return self._run(slot, program, command.arguments, answers, sandbox.level)
        finally:
            shutil.rmtree(slot, ignore_errors=True)
            shutil.rmtree(answers, ignore_errors=True)

    def _proven(self) -> Sandbox:
        with self._lock:
            if self._sandbox is None:
                shutil.rmtree(self._folder, ignore_errors=True)  # what a crash left
                slots = self._folder / "slots"
                slots.mkdir(parents=True, mode=0o700)
                (self._folder / "answers").mkdir(mode=0o700)
                self._sandbox = levels.prove(
                    self._warden, slots / "probe", NAMESPACES, hidden=(os.path.realpath(slots),),
                    reads=(), writes=(),
                )  # fmt: skip
            return self._sandbox

    def _run(
        self, slot: Path, program: Path, arguments: Sequence[str], answers: Path, level: int
    ) -> Difference | None:
        work = os.path.realpath(slot / "work")
        directories = tuple(os.path.realpath(answers / name) for name in ("one", "other"))
        cell = Cell(
            argv=(os.path.realpath(program), *arguments, *directories),
            env={**_ENVIRONMENT, "HOME": work}, folder=os.path.realpath(slot), work=work,
            level=level, limits=_LIMITS, reads=directories,
        )  # fmt: skip
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            nobody.give(cell, (slot / "work",))
            task = self._warden.start(cell, stdout.fileno(), stderr.fileno())
            excess = _watch(task, slot / "work")
            code, _ = task.finish()
            said = [excerpt(_first_line(file.fileno())) for file in (stdout, stderr)]
        if excess:
            raise NoVerdict(f"{program.name} took {excess}")
        if code == _EQUAL:
            return None
        if code == _DIFFERENT:
            return Difference("the outputs", "this", "that", said[0] or f"{program.name} says so")
        raise NoVerdict(f"{program.name} ended with exit code {code}: {said[1] or said[0]}")


def _lay_out(folder: Path, answer: Answer) -> None:
    """Copy an answer's files: the task must not reach those of the file store."""
    folder.mkdir()
    for name, file in answer.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with file.open() as content, path.open("xb") as copy:
            shutil.copyfileobj(content, copy)
        path.chmod(0o444)
    for directory, _, _ in os.walk(folder):
        os.chmod(directory, 0o755)  # noqa: S103 - for a task that is nobody; it lies below 0700


def _watch(task: WalledTask, work: Path) -> str:
    """Wait for its end; return what it took too much of, empty if nothing."""
    end = time.monotonic() + SECONDS
    while not task.ended_within(_LOOK_SECONDS):
        if time.monotonic() > end:
            return f"more than {SECONDS:.0f} s"
        if _memory(task.pid) > MEMORY_BYTES:
            return f"more than {MEMORY_BYTES >> 20} MiB of memory"
        if _disk(work) > DISK_BYTES:
            return f"more than {DISK_BYTES >> 20} MiB of disk space"
    return ""


def _memory(pid: int) -> int:
    total = 0
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total


def _disk(work: Path) -> int:
    total = 0
    for directory, _, names in os.walk(work):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total


def _first_line(descriptor: int) -> bytes:
    return os.pread(descriptor, 1000, 0).strip().partition(b"\n")[0]
