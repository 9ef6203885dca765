"""Programs that end within the limits around them, with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
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
    an interrupt, ends all processes of that session before it is raised.
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
    """End a session, whose leader is our child and so keeps its number until it is waited for."""
    if process.returncode is not None:
        return
    _signal(_session(process.pid), signal.SIGTERM)
    _is_empty(process, ending.grace)
    while alive := _session(process.pid):
        _signal(alive, signal.SIGKILL)
        if _is_empty(process, _AGAIN_SECONDS) or not ending.insists:
            break
    process.poll()


def _is_empty(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a session has no process left within a number of seconds."""
    end, look = time.monotonic() + seconds, _SHORTEST_LOOK
    while _session(process.pid):
        if time.monotonic() >= end:
            return False
        time.sleep(look)
        look = min(look * 1.5, _LONGEST_LOOK)
    return True


def _session(leader: int) -> list[int]:
    """Living processes of a session, also those that left the leader's process group."""
    found = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            is_ours = pid == leader or os.getsid(pid) == leader
            if is_ours and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
