"""A process and all that it started, signalled at once."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress

import psutil


def signal_tree(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process and all below it; some may have ended meanwhile."""
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a child of ours and all below it, and reap it."""
    if process.poll() is None:
        signal_tree(process.pid)
    process.wait()
