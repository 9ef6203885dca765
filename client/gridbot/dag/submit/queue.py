"""The `queue` statement: how many jobs, and with which items."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gridbot.dag.submit.errors import SubmitError
from gridbot.dag.submit.macros import Macros

_FOREACH = re.compile(
    r"(?P<head>.*?)\b(?P<how>in|from|matching)\b\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)
_SLICE = re.compile(r"\[\s*(-?\d*)\s*(?::\s*(-?\d*)\s*(?::\s*(-?\d*)\s*)?)?\]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_COMMAND_SECONDS = 60.0


@dataclass(frozen=True)
class Queue:
    """Each item makes `count` jobs."""

    count: int
    variables: tuple[str, ...]
    items: tuple[str, ...] | None  # None: no items, count jobs

    def rows(self) -> Iterator[tuple[int, int, Mapping[str, str]]]:
        """Yield index of the item, step in it, and values of the variables, for each job."""
        for index, item in enumerate(("",) if self.items is None else self.items):
            row = {} if self.items is None else split_item(item, self.variables)
            for step in range(self.count):
                yield index, step, row


def read_queue(text: str, macros: Macros, directory: Path, environment: Mapping[str, str]) -> Queue:
    """Read what stands behind `queue`.  Raises SubmitError."""
    text = macros.expand(text).strip()
    found = _FOREACH.fullmatch(text)
    if found is None or not _is_foreach(found["head"]):
        return Queue(_count(text, macros), (), None)
    count, names = _head(found["head"], macros)
    rest, how = found["rest"].strip(), found["how"].lower()
    chosen = slice(None)
    if sliced := _SLICE.match(rest):
        chosen, rest = _slice(sliced), rest[sliced.end() :].strip()
    if how == "in":
        items = _listed(rest)
    elif how == "matching":
        items = _matching(rest, directory)
    else:
        items = _from(rest, directory, environment)
    return Queue(count, names or ("Item",), tuple(items[chosen]))


def split_item(item: str, variables: tuple[str, ...]) -> dict[str, str]:
    """Values of the variables: commas or blanks part, and the last takes the rest."""
    if len(variables) == 1:
        return {variables[0]: item.strip()}
    row, rest = {}, item.strip()
    if "\x1f" in rest:
        pieces = [piece.strip() for piece in rest.split("\x1f")]
        return dict(zip(variables, [*pieces, *[""] * len(variables)], strict=False))
    for name in variables[:-1]:
        word = re.match(r"[^, \t]*", rest)[0]  # type: ignore[index]  # matches any text
        row[name] = word
        rest = rest[len(word) + 1 :].lstrip(" \t")
    return row | {variables[-1]: rest}


def _is_foreach(head: str) -> bool:
    """Whether a number and names stand there, and not an expression with a word like `in`."""
    return all(_VARIABLE.fullmatch(word) for word in _names(head)[1])


def _names(head: str) -> tuple[str, list[str]]:
    """The number of a head, as text, and the names behind it."""
    words = head.strip()
    found = re.match(r"(?P<count>\(.*\)|[^A-Za-z_]*)\s*(?P<names>.*)", words, re.DOTALL)
    assert found is not None  # all of it may be empty
    return found["count"].strip(), [word for word in re.split(r"[,\s]+", found["names"]) if word]


def _head(head: str, macros: Macros) -> tuple[int, tuple[str, ...]]:
    count, names = _names(head)
    return _count(count, macros), tuple(names)


def _count(text: str, macros: Macros) -> int:
    count = macros.number(text, "queue") if text else 1
    if count < 0:
        raise SubmitError(f"queue {text}: there are no {count} jobs")
    return count


def _slice(found: re.Match[str]) -> slice:
    numbers = [int(text) if text else None for text in found.groups()]
    if ":" not in found[0]:
        first = numbers[0] or 0
        return slice(first, None if first == -1 else first + 1)
    if numbers[2] == 0:
        raise SubmitError(f"queue: the slice {found[0]} has a step of 0")
    return slice(*numbers)


def _bracketed(text: str) -> str | None:
    if text.startswith("("):
        if not text.endswith(")"):
            raise SubmitError("queue: the list is not closed by )")
        return text[1:-1]
    return None


def _listed(text: str) -> list[str]:
    inner = _bracketed(text)
    return [word for word in re.split(r"[,\s]+", text if inner is None else inner) if word]


def _matching(text: str, directory: Path) -> list[str]:
    kind = "any"
    first, _, rest = text.partition(" ")
    if first.lower() in ("files", "dirs", "any"):
        kind, text = first.lower(), rest
    found = []
    for pattern in _listed(text.strip()):
        for name in sorted(glob.glob(pattern, root_dir=directory)):
            is_folder = os.path.isdir(directory / name)
            if name not in found and kind != ("files" if is_folder else "dirs"):
                found.append(f"{name}/" if is_folder and not name.endswith("/") else name)
    return found


def _from(text: str, directory: Path, environment: Mapping[str, str]) -> list[str]:
    inner = _bracketed(text)
    if inner is not None:
        lines = inner.split("\n")
        return [line.strip() for line in lines if line.strip() and line.strip()[0] != "#"]
    if text.endswith("|"):
        lines = _printed(text[:-1].strip(), directory, environment).split("\n")
    else:
        try:
            lines = (directory / text).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
            raise SubmitError(f"queue from {text}: {why}") from None
    return [line.strip() for line in lines if line.strip()]


def _printed(command: str, directory: Path, environment: Mapping[str, str]) -> str:
    """What a command prints; its words are split at blanks, and no shell is involved."""
    try:
        done = subprocess.run(
            command.split(),
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired, IndexError) as error:
        raise SubmitError(f"queue from {command} |: {error}") from None
    if done.returncode:
        raise SubmitError(f"queue from {command} |: it exited with {done.returncode}")
    return done.stdout
