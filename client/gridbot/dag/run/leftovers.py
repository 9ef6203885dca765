"""Programs that a killed run left behind on this machine, known by a variable of their environment.

HTCondor knows the families of processes by such variables too (its manual, USE_GID_PROCESS_TRACKING
and the ancestor variables of condor_procd).  Without /proc nothing is found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

VARIABLE = "GRIDBOT_DAG_PROGRAM"
_PROC = Path("/proc")
_PATIENCE = 10.0  # seconds for killed programs to be gone


def mark_of(run: str, node: str, what: object, attempt: int) -> str:
    """Names a script (`what` is its kind) or a local job (its number) of one attempt of a node."""
    return f"{run}/{attempt}/{what}/{node}"


def end(marks: Collection[str]) -> int:
    """Kill the programs with these marks, and all that they have started; return how many."""
    return _end(lambda mark: mark in marks)


def end_run(run: str) -> int:
    """Kill all programs of a run."""
    return _end(lambda mark: mark.startswith(f"{run}/"))


def _end(is_meant: Callable[[str], bool]) -> int:
    ended = set[int]()
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        found = [pid for pid, mark in _marked() if is_meant(mark)]
        if not found:
            break
        for pid in found:
            _kill(pid)
        ended.update(found)
        time.sleep(0.02)  # they are not gone at once, and may have started others
    return len(ended)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _marked() -> Iterator[tuple[int, str]]:
    """Processes of this user with a mark."""
    wanted = f"{VARIABLE}=".encode()
    me = os.getpid()
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        try:
            if pid == me or folder.stat().st_uid != os.getuid() or _is_dead(folder):
                continue
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it is gone, or not ours
            continue
        for variable in variables:
            if variable.startswith(wanted):
                yield pid, variable[len(wanted) :].decode(errors="replace")


def _is_dead(folder: Path) -> bool:
    """Whether only its parent has still to hear of its end."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
