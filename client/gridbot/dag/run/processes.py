"""Programs that run beside the DAG on this machine: scripts, and jobs of the local universe."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

# Gets an exit code, or minus a signal's number; and whether we have killed it.
Ended = Callable[[int, bool], None]
CANNOT_START = 1  # what DAGMan says of a script that cannot be started


@dataclass(frozen=True)
class LocalProgram:
    """What is started, where, and where what it prints goes; an empty name is nowhere."""

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    appends: bool = False


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    is_killed: bool = False


class LocalPrograms:
    """Starts programs, each in a session of its own; says when they end, from other threads."""

    def __init__(self) -> None:
        self._running: dict[object, _Running] = {}
        self._lock = threading.Lock()

    def start(self, key: object, program: LocalProgram, ended: Ended, cannot: int) -> None:
        """Start a program; if that fails, it ends with the code `cannot`."""
        try:
            running = _Running(_started(program))
        except OSError:
            ended(cannot, False)
            return
        with self._lock:
            self._running[key] = running
        threading.Thread(target=self._await, args=(key, running, ended), daemon=True).start()

    def _await(self, key: object, running: _Running, ended: Ended) -> None:
        code = running.process.wait()
        ended(code, running.is_killed)
        with self._lock:
            if self._running.get(key) is running:  # and not the next that has this key
                del self._running[key]

    def kill(self, key: object) -> bool:
        """End a program and all that it started; its end is told as any other.

        False if there is none.
        """
        with self._lock:
            running = self._running.get(key)
        if running is None:
            return False
        if running.process.poll() is None:
            running.is_killed = True
            with suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
        return True

    def kill_all(self) -> None:
        """End them all."""
        with self._lock:
            keys = list(self._running)
        for key in keys:
            self.kill(key)


def _started(program: LocalProgram) -> subprocess.Popen[bytes]:
    mode = "ab" if program.appends else "wb"
    with ExitStack() as files:
        given = files.enter_context((program.folder / (program.stdin or os.devnull)).open("rb"))
        out, err = (
            files.enter_context((program.folder / (name or os.devnull)).open(mode))
            for name in (program.stdout, program.stderr)
        )
        return subprocess.Popen(
            list(program.argv),
            cwd=program.folder,
            env=dict(program.environment),
            stdin=given,
            stdout=out,
            stderr=out if program.stdout and program.stdout == program.stderr else err,
            start_new_session=True,
        )
