"""Where pilots write their stderr: a folder that the submitting machine and the nodes share."""

from __future__ import annotations

from dataclasses import dataclass

from gridbot_overlay.decide.model import CheckResult
from gridbot_overlay.submitters import GridError
from gridbot_overlay.submitters.commands import Commands

TAIL_BYTES = 4096
_KEPT_DAYS = 7
# How names begin that the store gives submissions: an operator's folder may hold other files.
_TAGS = "gb" + "[0-9a-f]" * 6 + "n[0-9a-z]*"


@dataclass(frozen=True, slots=True)
class Logs:
    """One folder of one grid, wherever its commands run."""

    commands: Commands
    folder: str

    def path(self, tag: str, native_id: str) -> str:
        """Name the file of a pilot, or of many when the id holds the system's own placeholders."""
        return f"{self.folder}/{tag}.{native_id}.err"

    def prepare(self) -> None:
        """Make the folder, and drop what is old: nobody else does."""
        self._make()
        self.drop_old("err")

    def drop_old(self, kind: str) -> None:
        """Delete files NAME.`kind` of our submissions that nobody has written for a week."""
        ours = ("-maxdepth", "1", "-type", "f", "-name", f"{_TAGS}.{kind}")
        self.commands.run("find", self.folder, *ours, "-mtime", f"+{_KEPT_DAYS}", "-delete")

    def tail(self, tag: str, native_id: str) -> str:
        """Give the end of what a pilot wrote; empty when there is nothing yet."""
        code, stdout, _ = self.commands.ended(
            "tail", "-c", str(TAIL_BYTES), self.path(tag, native_id)
        )
        return stdout if code == 0 else ""

    def check(self) -> CheckResult:
        """Tell whether the folder can be had."""
        try:
            self._make()
        except GridError as error:
            return CheckResult("logs", False, str(error))
        return CheckResult("logs", True, f"{self.folder}, which the nodes must share")

    def _make(self) -> None:
        self.commands.run("mkdir", "-p", "-m", "700", self.folder)
