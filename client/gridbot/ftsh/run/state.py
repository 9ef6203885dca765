"""The state of a running script, and how commands leave it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gridbot.ftsh.run.log import Detail, ScriptLog
from gridbot.ftsh.run.settings import ShellSettings
from gridbot.ftsh.tree import ScriptFunction
from gridbot.reliable import ProcessEnding

MOST_CALLS = 1000  # within each other, as in ftsh
MOST_BRANCHES = 1000  # of a forall: each is a thread, and a program


class CommandFailure(Exception):
    """A command has failed: so does all around it, up to a try."""


class Returned(Exception):
    """A function returns a value: one or more words."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.words = words


class Exited(BaseException):
    """The script, or its branch of a forall, ends with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class ShellState:
    """What commands change.  A branch of a forall has its own copy, which is lost with it."""

    settings: ShellSettings
    log: ScriptLog
    functions: Mapping[str, ScriptFunction]
    arguments: list[str]  # the name first
    environment: dict[str, str]
    folder: str
    variables: dict[str, str] = field(default_factory=dict)
    streams: tuple[int, int, int] = (0, 1, 2)
    calls: int = 0
    is_branch: bool = False

    @property
    def ending(self) -> ProcessEnding:
        """How programs are ended."""
        return ProcessEnding(self.settings.grace, self.settings.insists)

    def branch(self) -> ShellState:
        """A copy, in which nothing changes what is here."""
        return replace(
            self,
            arguments=list(self.arguments),
            environment=dict(self.environment),
            variables=dict(self.variables),
            is_branch=True,
        )

    def value(self, name: str) -> str:
        """What a variable holds, without the ends of its last lines; empty if there is none.

        A variable of the script comes before one of the environment.
        """
        if name.isdecimal():
            place = int(name)
            return self.arguments[place] if place < len(self.arguments) else ""
        if name in ("*", "@"):
            return " ".join(self.arguments[1:])
        if name == "#":
            return str(len(self.arguments) - 1)
        if name == "$":
            return str(os.getpid())
        found = self.variables.get(name)
        return self.environment.get(name, "") if found is None else found.rstrip("\r\n")

    def path(self, name: str) -> str:
        """A path as the script means it, from its present folder."""
        return os.path.join(self.folder, name)

    def say(self, detail: Detail, line: int, text: str) -> None:
        """Note something in the log."""
        self.log.say(detail, line, text)

    def fail(self, line: int, why: str) -> CommandFailure:
        """Note a failure, and return the error to raise."""
        self.say(Detail.FAILURES, line, why)
        return CommandFailure(f"line {line}: {why}")
