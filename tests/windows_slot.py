"""A slot directory of a stock client on Windows, with the shim running in it under Wine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId, Scalar
from gridbot_server.boinc.application import shim
from gridbot_server.boinc.application.shim import windows
from gridbot_server.boinc.application.shim.ending import Ending, read_ending

ID = ReplicaId(7, 3, 1)
DEADLINE = 120.0  # of what takes a second where nothing else runs
_SOURCE = Path(__file__).parent / "fakes" / "windows_program.c"
# Neither a debugger's window nor menus of the desktop.
_NOT_NEEDED = "winedbg.exe=d;winemenubuilder.exe=d;mscoree=d;mshtml=d"
# On the build machine what needs them fails where they are not.
needs_compiler = pytest.mark.skipif(
    shutil.which(windows.COMPILER) is None and "CI" not in os.environ,
    reason=f"no {windows.COMPILER} here: apt-get install {windows.PACKAGE}",
)
needs_wine = pytest.mark.skipif(
    not (shutil.which(windows.COMPILER) and shutil.which("wine")) and "CI" not in os.environ,
    reason=f"no Wine or no {windows.COMPILER} here: apt-get install wine wine64 {windows.PACKAGE}",
)


@dataclass(frozen=True, slots=True)
class Wine:
    """A Windows of its own, and a program for it that does what its first argument says."""

    environment: dict[str, str]
    program: bytes

    def start(self, path: Path, *words: str, **options: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["wine", str(path), *words], env=self.environment, **options)  # type: ignore[call-overload, no-any-return]


@contextmanager
def wine() -> Iterator[Wine]:
    # Its server makes a socket below; pytest's own folders are too deep, and stay.
    with tempfile.TemporaryDirectory(prefix="gridbot-wine-") as name:
        folder = Path(name)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "WINEPREFIX": f"{name}/prefix",
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": _NOT_NEEDED,
        }
        subprocess.run(
            [windows.COMPILER, "-municode", "-Os", "-s", "-o", folder / "program.exe", _SOURCE],
            check=True, timeout=DEADLINE,
        )  # fmt: skip
        made = Wine(environment, (folder / "program.exe").read_bytes())
        subprocess.run(["wineboot", "--init"], env=environment, check=True, timeout=3 * DEADLINE)
        try:
            yield made
        finally:
            subprocess.run(["wineserver", "--kill"], env=environment, check=False, timeout=DEADLINE)
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(["wineserver", "--wait"], env=environment, timeout=DEADLINE)


def manifest(*words: str, **fields: object) -> Manifest:
    """A BOT whose command is the program with these arguments, as they are."""
    command = ["prog", *(word.replace("{", "{{").replace("}", "}}") for word in words)]
    inputs = (FileRef("prog.exe", "0" * 64, 1, executable=True), *fields.pop("inputs", ()))  # type: ignore[misc]
    return Manifest("lab", tuple(command), inputs=inputs, **fields)  # type: ignore[arg-type]


class WindowsSlot:
    """A slot directory as a stock client makes it, and the shim running in it."""

    def __init__(self, path: Path, wine: Wine) -> None:
        self.path = path
        self.wine = wine
        self.starts = 0
        path.mkdir()

    def start(
        self,
        manifest: Manifest,
        args: dict[str, Scalar] | None = None,
        own: tuple[str, ...] = (),
        words: list[str] | None = None,
    ) -> subprocess.Popen[bytes]:
        # A client's files have names without an ending.  One that runs must not be written to.
        self.starts += 1
        main = self.path.parent / f"main_{self.starts}"
        main.write_bytes(windows.render(manifest))
        (self.path / "gb_0").write_bytes(self.wine.program)
        if words is None:
            words = shim.command_line(manifest, ID, args or {}, own).split()
        return self.wine.start(
            main,
            *words,
            cwd=self.path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @contextmanager
    def started(self, *words: object) -> Iterator[subprocess.Popen[bytes]]:
        """The shim as it runs; what still runs at the end is killed."""
        with self.start(*words) as process:  # type: ignore[arg-type]
            try:
                yield process
            finally:
                process.kill()

    def run(self, manifest: Manifest, *more: object, **named: object) -> int:
        with self.start(manifest, *more, **named) as process:  # type: ignore[arg-type]
            try:
                return process.wait(DEADLINE)
            finally:
                process.kill()

    @property
    def log(self) -> str:
        path = self.path / "stderr.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def ending(self) -> Ending:
        found = read_ending(self.log)
        assert found is not None, self.log
        return found

    @property
    def output(self) -> bytes | None:
        path = self.path / "gb_out"
        return path.read_bytes() if path.exists() else None


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.05)


def running(mark: str) -> list[psutil.Process]:
    """Processes of programs for Windows that have a word on their command line."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and mark in process.cmdline():
                found.append(process)
    return found
