"""Kills a piece of a program at each system call that changes a file, and what a crash leaves.

A crash of the process leaves all that it wrote.  A power cut leaves what was synced, and perhaps
more: so it is tried with nothing else, with all names but with zeros for contents, and with zeros
for large contents alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

SOURCE = Path(__file__).with_suffix(".cpp")
# In memory: an inode number is never used again there, and nothing waits for a disk.
MEMORY = Path("/dev/shm")
KILLED, FAILED = -1, -2
_PAGE_BYTES = 4096


class Crash(StrEnum):
    """What is left when a piece is killed."""

    KILL = "kill"  # of the process: all that it wrote
    POWER_CUT = "power cut"  # what was synced
    TORN = "power cut, torn"  # all names, and zeros where a content was not synced
    LARGE_TORN = "power cut, large files torn"  # the same, but what fits a page is whole


class Disk:
    """A folder, and beside it what was synced of it (`kill_points.cpp` says how)."""

    def __init__(self, place: Path) -> None:
        self.root, self.kept = place / "root", place / "kept"

    def sync(self) -> None:
        """Take all that is there now for synced."""
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir()
        for path in (self.root, *self.root.rglob("*")):
            found = path.lstat()
            if not path.is_dir():
                shutil.copyfile(path, self._file(found.st_ino))
                continue
            lines = [
                f"{'d' if below.is_dir() else 'f'} {about.st_ino} {about.st_mode & 0o7777}"
                f" {below.name}\n"
                for below in path.iterdir()
                for about in [below.lstat()]
            ]
            self._names(found.st_ino).write_text("".join(lines))

    def crash(self, how: Crash) -> None:
        """Leave what a crash leaves."""
        if how is Crash.POWER_CUT:
            left = self.root.with_name("left")
            self._restore(left, self.root.lstat().st_ino, self.root.lstat().st_mode & 0o7777)
            shutil.rmtree(self.root)
            left.rename(self.root)
        elif how is not Crash.KILL:
            least = _PAGE_BYTES if how is Crash.LARGE_TORN else 0
            for path in self.root.rglob("*"):
                if not path.is_dir() and path.lstat().st_size > least:
                    self._tear(path)
        if how is not Crash.KILL:
            self.sync()

    def _restore(self, path: Path, inode: int, mode: int) -> None:
        path.mkdir()
        names = self._names(inode)
        for line in names.read_text().splitlines() if names.exists() else ():
            kind, below, bits, name = line.split(" ", 3)
            if kind == "d":
                self._restore(path / name, int(below), int(bits))
                continue
            content = self._file(int(below))
            (path / name).write_bytes(content.read_bytes() if content.exists() else b"")
            (path / name).chmod(int(bits))
        path.chmod(mode)

    def _tear(self, path: Path) -> None:
        found, content = path.lstat(), self._file(path.lstat().st_ino)
        synced = content.read_bytes() if content.exists() else b""
        path.chmod(found.st_mode | 0o200)
        path.write_bytes(synced[: found.st_size].ljust(found.st_size, b"\0"))
        path.chmod(found.st_mode)

    def _file(self, inode: int) -> Path:
        return self.kept / f"f{inode}"

    def _names(self, inode: int) -> Path:
        return self.kept / f"d{inode}"


class Trial(Protocol):
    """One run of a piece: what there is before, and what must hold after."""

    @property
    def piece(self) -> str:
        """Which of the pieces."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it gets."""

    def look(self, how: Crash) -> None:
        """Check what a crash has left, before the piece is started again."""

    def end(self) -> None:
        """Check what is there once the piece has ended."""


class Bench(Protocol):
    """Makes trials."""

    def __call__(self, disk: Disk, outside: Path) -> Trial:
        """Furnish a disk, with a folder that no crash reaches."""


@dataclass(frozen=True)
class Killer:
    """A process in which pieces run and are killed."""

    process: subprocess.Popen[str]

    def run(self, disk: Disk, trial: Trial, at: int) -> int:
        """Run a piece, killed before its call number `at`; return how many it made, or KILLED."""
        order = {
            "piece": trial.piece,
            "arguments": trial.arguments,
            "watched": str(disk.root),
            "kept": str(disk.kept),
            "at": at,
        }
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        assert code != FAILED, f"{trial.piece} failed, killed at {at}: see standard error"
        return code


@contextmanager
def killer(library: Path, modules: Path) -> Iterator[Killer]:
    """A killer with the compiled library, and with somebody's modules for copies."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.system.kill_pieces", library],
        env={**os.environ, "LD_PRELOAD": str(library), "GRIDBOT_DATA_MODULES": str(modules)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Killer(process)
        finally:
            process.kill()


def compiled(folder: Path) -> Path:
    """Compile the library that is preloaded."""
    library = folder / "kill_points.so"
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-O1", "-std=c++17", "-o", library, SOURCE],
        check=True, timeout=120,
    )  # fmt: skip
    return library


def kill_everywhere(
    kill: Killer, bench: Bench, place: Path, *,
    turns: Sequence[Sequence[Crash]] = (tuple(Crash),), step: int = 1,
) -> int:  # fmt: skip
    """Kill a piece at each of its calls, or at one of `step`; return the number of those.

    The crashes are those of the turns, one turn for each call.
    """
    calls = _undisturbed(kill, bench, place)
    killed = 0
    for at, crashes in zip(range(1, calls + 1, step), cycle(turns), strict=False):
        ends = [_killed(kill, bench, place, at, how) for how in crashes]
        killed += any(ends)
    return killed


def _undisturbed(kill: Killer, bench: Bench, place: Path) -> int:
    disk, trial = _furnished(bench, place)
    calls = kill.run(disk, trial, 0)
    trial.end()
    return calls


def _killed(kill: Killer, bench: Bench, place: Path, at: int, how: Crash) -> bool:
    """One crash, and what follows; whether it was killed: a thread may have made fewer calls."""
    disk, trial = _furnished(bench, place)
    try:
        is_killed = kill.run(disk, trial, at) == KILLED
        disk.crash(how)
        trial.look(how)
        assert kill.run(disk, trial, 0) != KILLED
        trial.end()
        disk.crash(Crash.POWER_CUT)  # what it has promised, it has kept for good
        trial.look(Crash.POWER_CUT)
    except AssertionError as error:
        error.add_note(f"{how} at call {at} of {trial.piece}")
        raise
    return is_killed


def _furnished(bench: Bench, place: Path) -> tuple[Disk, Trial]:
    shutil.rmtree(place, ignore_errors=True)
    disk, outside = Disk(place), place / "outside"
    disk.root.mkdir(parents=True)
    outside.mkdir()
    trial = bench(disk, outside)
    disk.sync()
    return disk, trial
