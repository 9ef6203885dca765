"""Programs that end within the limits around them, with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from gridbot.reliable.scope import Scope, present

Stream = int | IO[bytes] | None

_SHORTEST_LOOK = 0.001
_LONGEST_LOOK = 0.05
_AGAIN_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessEnding:
    """How a program is ended: asked by SIGTERM, and killed `grace` seconds later.

    If it `insists`, it is killed again until none of its processes is left: one may fork while the
    others are being killed.  Otherwise once; a process that the kernel cannot end is left behind.
    """

    grace: float = 30.0
    insists: bool = True


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    check: bool = True,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    ending: ProcessEnding = ProcessEnding(),
) -> int:
    """Run a program and return its exit code, or minus the number of the signal that ended it.

    It runs in a session of its own.  Whatever ends the wait, a limit of time, a cancellation or
    an interrupt, ends all processes of that session, and those that descend from them, before it is
    raised.  A daemon that left both is not found.
    Raises CalledProcessError for a code other than 0 if `check`; OSError if it cannot be started.
    """
    scope = present()
    scope.check()
    process = subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
    try:
        _wait(process, scope)
    except BaseException:
        _end(process, ending)
        raise
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(argv))
    return process.returncode


def _wait(process: subprocess.Popen[bytes], scope: Scope) -> None:
    look = _SHORTEST_LOOK
    while process.poll() is None:
        scope.pause(look)
        look = min(look * 1.5, _LONGEST_LOOK)


def _end(process: subprocess.Popen[bytes], ending: ProcessEnding) -> None:
    if process.returncode is not None:
        return
    family = _Family(process.pid)
    family.signal(signal.SIGTERM)
    family.is_gone(ending.grace)
    while family.living():
        family.signal(signal.SIGKILL)
        if family.is_gone(_AGAIN_SECONDS) or not ending.insists:
            break
    process.poll()


class _Family:
    """A program with all that it started: its session, and descendants in sessions of their own.

    The leader is our child, and so keeps its number until it is waited for.  Others are remembered,
    because the descent of one whose parent has ended is not to be seen.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._known = set[psutil.Process]()

    def living(self) -> Collection[psutil.Process]:
        """Those that have not ended."""
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError, psutil.Error):
                if pid == self._leader or os.getsid(pid) == self._leader:
                    self._known.add(psutil.Process(pid))
        for process in [*self._known]:
            with suppress(psutil.Error):
                self._known.update(process.children(recursive=True))
        self._known = {process for process in self._known if _is_alive(process)}
        return self._known

    def signal(self, number: signal.Signals) -> None:
        """Send them a signal."""
        for process in self.living():
            with suppress(psutil.Error):
                process.send_signal(number)

    def is_gone(self, seconds: float) -> bool:
        """Whether all of them have ended within a number of seconds."""
        end, look = time.monotonic() + seconds, _SHORTEST_LOOK
        while self.living():
            if time.monotonic() >= end:
                return False
            time.sleep(look)
            look = min(look * 1.5, _LONGEST_LOOK)
        return True


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
