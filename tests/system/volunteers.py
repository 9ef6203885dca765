"""Machines of people who type commands, each with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PATIENCE = 180.0
_PROGRAMS = Path(sys.executable).parent  # where `gridbot` is
_OF_OTHERS = ("GRIDBOT_SERVER", "GRIDBOT_KEY", "GRIDBOT_SIGNING_KEY")


@dataclass
class Volunteer:
    """A machine of someone who types commands."""

    environment: dict[str, str]

    def call(self, verb: str, *options: str, code: int = 0) -> str:
        """Give a command of `gridbot client`; return what it says."""
        return self._ended([sys.executable, "-m", "gridbot", "client", verb, *options], code)

    def type(self, line: str, code: int = 0) -> str:
        """Type a line in the machine's shell; return what it says."""
        return self._ended(["sh", "-c", line], code)

    def bad(self) -> dict[str, str]:
        """What the doctor finds wrong."""
        ended = self._run([sys.executable, "-m", "gridbot", "client", "doctor", "--json"])
        found = json.loads(ended.stdout)
        bad = {item["subject"]: f"{item['text']}; {item['cure']}" for item in found
               if not item["is_ok"]}  # fmt: skip
        assert ended.returncode == (1 if bad else 0)
        return bad

    def _ended(self, command: list[str], code: int) -> str:
        ended = self._run(command)
        said = ended.stdout + ended.stderr
        assert ended.returncode == code, said
        return said

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=_PATIENCE
        )


@contextmanager
def machine(home: Path) -> Iterator[Volunteer]:
    """A machine with a fresh home, on which no client is left in the end."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in _OF_OTHERS}
    made = Volunteer(
        {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"),
         "GRIDBOT_DATA": str(home), "GRIDBOT_HOST_ID": str(home),
         "PATH": f"{_PROGRAMS}:{os.environ['PATH']}"}
    )  # fmt: skip
    yield made
    if (home / "client").exists():
        made.call("stop")
