"""Follows the lines of a submit description and yields its jobs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.job import SubmitJob, job_of
from gridbot.dag.submit.macros import Macros, value_of
from gridbot.dag.submit.queue import read_queue

_ASSIGNMENT = re.compile(r"((?:\+|[Mm][Yy]\.)?[A-Za-z_][A-Za-z0-9_.]*)\s*=(.*)", re.DOTALL)
_QUEUE = re.compile(r"queue\b(.*)", re.IGNORECASE | re.DOTALL)
_INCLUDE = re.compile(r"include\b\s*(command|ifexist)?\s*:\s*(.*)", re.IGNORECASE)
_HERE = re.compile(r"(.*?)@=(\w+)\s*")
_VERSION = (25, 0, 0)  # the HTCondor that conditions on a version see
_DEPTH = 10  # of files that include files
_MOST_JOBS = 1_000_000


@dataclass(frozen=True)
class SubmitSetting:
    """Where and for what a description is read.

    `before` are macros that are set before the first line, `after` those that win over the file's.
    Without `needs_queue` a text without the statement makes one job.
    """

    directory: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    cluster: int = 1
    needs_queue: bool = True


def read_jobs(text: str, setting: SubmitSetting) -> list[SubmitJob]:
    """The jobs of a description, in order.  Raises SubmitError."""
    reader = _Reader(setting)
    reader.follow(text, 0)
    if not reader.has_queue:
        if setting.needs_queue:
            raise SubmitError("the description has no queue statement")
        reader.queue("")
    return reader.jobs


class _Reader:
    def __init__(self, setting: SubmitSetting) -> None:
        self._setting = setting
        self._macros = Macros(setting.environment)
        for name, value in setting.before.items():
            self._macros.set(name, value)
        self.jobs: list[SubmitJob] = []
        self.has_queue = False
        # For each `if` that is open: whether its lines count, and whether a branch was taken.
        self._branches: list[tuple[bool, bool]] = []

    def follow(self, text: str, depth: int) -> None:
        """Do what the lines say."""
        if depth > _DEPTH:
            raise SubmitError(f"include: files include each other more than {_DEPTH} deep")
        open_before = len(self._branches)
        for number, line in _lines(text):
            try:
                self._line(line, depth)
            except SubmitError as error:
                raise SubmitError(f"line {number}: {error}") from None
        if len(self._branches) != open_before:
            raise SubmitError("an if has no endif")

    def _line(self, line: str, depth: int) -> None:
        word = line.split(None, 1)[0].casefold()
        rest = line[len(word) :].strip()
        if word in ("if", "elif", "else", "endif"):
            self._branch(word, rest)
        elif not all(counts for counts, _ in self._branches):
            return
        elif found := _INCLUDE.fullmatch(line):
            self._include((found[1] or "").lower(), found[2].strip(), depth)
        elif found := _ASSIGNMENT.fullmatch(line):
            self._macros.set(found[1], found[2].strip())
        elif found := _QUEUE.fullmatch(line):
            self.queue(found[1])
        else:
            raise SubmitError(f"{line[:80]!r} is neither NAME = value nor queue")

    def queue(self, text: str) -> None:
        """Make the jobs of one statement."""
        self.has_queue = True
        setting, macros = self._setting, self._macros.copy()
        for name, value in setting.after.items():
            macros.set(name, value)
        for name in ("Cluster", "ClusterId"):
            macros.set(name, str(setting.cluster))
        queue = read_queue(text, macros, setting.directory, setting.environment)
        for index, step, row in queue.rows():
            if len(self.jobs) >= _MOST_JOBS:
                raise SubmitError(f"queue: more than {_MOST_JOBS} jobs")
            one = macros.copy()
            process = len(self.jobs)
            numbers: dict[str, object] = {"Process": process, "ProcId": process, "Step": step}
            numbers |= {"Row": index, "ItemIndex": index}
            for name, number in {**numbers, **row}.items():
                one.set(name, str(number))
            self.jobs.append(job_of(one, setting.directory))

    def _branch(self, word: str, condition: str) -> None:
        if word == "if":
            enclosing = all(counts for counts, _ in self._branches)
            holds = enclosing and self._holds(condition)
            self._branches.append((holds, holds or not enclosing))
            return
        if not self._branches:
            raise SubmitError(f"{word} without if")
        _, taken = self._branches.pop()
        if word == "endif":
            return
        holds = not taken and (word == "else" or self._holds(condition))
        self._branches.append((holds, taken or holds))

    def _holds(self, condition: str) -> bool:
        text = self._macros.expand(condition).strip()
        if text.startswith("!"):
            return not self._holds(text[1:])
        words = text.split()
        if words and words[0].casefold() == "defined":
            return self._is_defined(condition.strip().split(None, 1)[1:])
        if words and words[0].casefold() == "version":
            return _compared("".join(words[1:]))
        value = value_of(text)
        if isinstance(value, bool | int | float) and re.fullmatch(r"\w+(\.\d+)?", text):
            return bool(value)
        if text.casefold() in ("yes", "t"):
            return True
        if text.casefold() in ("no", "f"):
            return False
        raise SubmitError(f"if {condition}: only true, false, a number, defined and version count")

    def _is_defined(self, names: list[str]) -> bool:
        name = self._macros.expand(names[0]).strip() if names else ""
        return bool(name) and self._macros.raw(name) is not None

    def _include(self, how: str, what: str, depth: int) -> None:
        what = self._macros.expand(what).strip()
        if how == "command" or what.endswith("|"):
            self.follow(self._printed(what.removesuffix("|").strip()), depth + 1)
            return
        path = self._setting.directory / what
        if how == "ifexist" and not path.exists():
            return
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
            raise SubmitError(f"include: {what}: {why}") from None
        self.follow(text, depth + 1)

    def _printed(self, command: str) -> str:
        try:
            return subprocess.run(
                command.split(), cwd=self._setting.directory, env=dict(self._setting.environment),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60.0, check=True,
            ).stdout  # fmt: skip
        except (OSError, subprocess.SubprocessError, IndexError) as error:
            raise SubmitError(f"include command: {command}: {error}") from None


def _compared(text: str) -> bool:
    """Whether a condition on the version holds, such as >=8.1.6."""
    found = re.fullmatch(r"(==|!=|<=|>=|<|>)(\d+(?:\.\d+)*)", text)
    if found is None:
        raise SubmitError(f"version {text!r}: write version >= 8.1.6")
    asked = tuple(int(part) for part in found[2].split("."))
    ours = _VERSION[: len(asked)]
    return {
        "==": ours == asked, "!=": ours != asked, "<=": ours <= asked,
        ">=": ours >= asked, "<": ours < asked, ">": ours > asked,
    }[found[1]]  # fmt: skip


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something: joined where they go on, with lists and texts that they open."""
    rows: Iterable[tuple[int, str]] = enumerate(text.split("\n"), 1)
    rows = iter(rows)
    for number, row in rows:
        line = row.strip()
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\"):
            _, more = next(rows, (0, ""))
            piece = more.strip()
            line = line[:-1] + ("\\" if piece.startswith("#") else piece)
            if not more:
                line = line.rstrip("\\")
        if (here := _HERE.fullmatch(line)) and "=" not in here[1]:
            line = f"{here[1].strip()} = {_until(f'@{here[2]}', rows)}"
        elif _QUEUE.fullmatch(line) and "(" in line and ")" not in line[line.rindex("(") :]:
            line = f"{line}\n{_until(')', rows)}\n)"
        yield number, line


def _until(end: str, rows: Iterator[tuple[int, str]]) -> str:
    kept = list[str]()
    for _, row in rows:
        if row.strip() == end:
            return "\n".join(kept)
        if end == ")" and row.rstrip().endswith(")"):
            kept.append(row.rstrip()[:-1])
            return "\n".join(kept)
        kept.append(row)
    raise SubmitError(f"the text that ends with {end} is not closed")
