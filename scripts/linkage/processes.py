"""The server and the clients of the demo: started, silenced, and stopped whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_STOP_SECONDS = 30.0
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(Exception):
    """The demo cannot go on; the message says what happened, `log` is what to read."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


class Processes:
    """Processes by name, each with its log; leaving the block stops them, the last one first."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._silent: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # A second ^C must not leave half of them behind.
        usual = {number: signal.signal(number, signal.SIG_IGN) for number in _INTERRUPTIONS}
        for process in reversed(self._running.values()):
            _stop(process)
        for number, handler in usual.items():
            signal.signal(number, handler)

    def start(self, name: str, command: Sequence[str], **variables: str) -> None:
        """Start a process in its own session, so that ^C reaches us alone."""
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        """Return where the output of a process goes."""
        return self._logs / f"{name}.log"

    def check(self) -> None:
        """Raise DemoFailed if a process ended that nobody silenced."""
        for name, process in self._running.items():
            if name not in self._silent and process.poll() is not None:
                code = process.returncode
                raise DemoFailed(f"{name} ended with exit code {code}", self.log(name))

    def silence(self, name: str, number: signal.Signals, within_seconds: float = 20.0) -> None:
        """Send SIGKILL or SIGSTOP to a client at a moment when it runs a replica."""
        client = psutil.Process(self._running[name].pid)
        give_up_at = time.monotonic() + within_seconds
        while not client.children():
            self.check()
            if time.monotonic() > give_up_at:
                raise DemoFailed(f"{name} ran nothing for {within_seconds:g} s", self.log(name))
            time.sleep(0.005)
        self._silent.add(name)
        client.send_signal(number)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, after thawing it; force it when it does not."""
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
