"""What a script did and why it failed, a line each, up to a level of detail."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum


class Detail(IntEnum):
    """Levels of the log; those of ftsh."""

    FAILURES = 10
    COMMANDS = 20
    STRUCTURES = 30
    PROCESSES = 40


@dataclass(frozen=True)
class ScriptLog:
    """Appends lines to an open file, each by one write, so that several shells may share it."""

    descriptor: int
    level: int
    script: str
    has_decimal_times: bool = False

    def say(self, detail: Detail, line: int, text: str) -> None:
        """Note what happens in a line of the script, if it is of interest."""
        if detail > self.level:
            return
        now = f"{time.time():.3f}" if self.has_decimal_times else time.ctime()
        entry = f"{now} [{os.getpid()}] {self.script}:{line} {text}\n"
        # A full disk must not end a script that waits until there is space again.
        with suppress(OSError):
            os.write(self.descriptor, entry.encode(errors="surrogateescape"))
