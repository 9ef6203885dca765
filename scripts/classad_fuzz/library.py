"""The process in which HTCondor's library runs: started, asked, and replaced when it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .cases import Texts

ORACLE = Path(__file__).with_name("oracle.py")
LEVELS = 3  # of lists and ads in each other that are compared


class Library:
    """HTCondor's library in one of its modes, which belong to a whole process.

    `answers` gives a crash of the library as a value of type "crash", and goes on.
    """

    def __init__(self, mode: str) -> None:
        self._environment = {
            **os.environ,
            "TZ": "UTC",
            "LC_ALL": "C",
            "CONDOR_CONFIG": "ONLY_ENV",
            "_CONDOR_STRICT_CLASSAD_EVALUATION": str(mode == "strict").lower(),
        }
        self._process = self._start()
        self.restarts = 0

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def send(self, batch: Sequence[Texts]) -> None:
        """Hand over a batch; `answers` must be read before the next one."""
        line = json.dumps(batch).encode() + b"\n"
        try:
            self._write(line)
        except BrokenPipeError:  # it died after its last answer
            self.restart()
            self._write(line)

    def answers(self, batch: Sequence[Texts]) -> Iterator[dict[str, Any]]:
        """Yield the values of the batch that was sent last."""
        position, retried = 0, -1
        while position < len(batch):
            line = self._line()
            if line is not None:
                yield json.loads(line)
                position += 1
                continue
            self.restart()
            # What a case damaged may only kill the process in a later one: ask that one again.
            if retried == position:
                yield {"type": "crash"}
                position += 1
            else:
                retried = position
            if position < len(batch):
                self.send(batch[position:])

    def answer(self, texts: Texts) -> dict[str, Any]:
        """Return the value of one case."""
        self.send([texts])
        return next(self.answers([texts]))

    def restart(self) -> None:
        """Go on with a fresh process."""
        self.close()
        self.restarts += 1
        self._process = self._start()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _line(self) -> bytes | None:
        """Return the next answer; None if the process died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return line if line.endswith(b"\n") else None

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, str(ORACLE), str(LEVELS)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
