"""What all batch systems are told alike: names of jobs, scripts, owners, options.  Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gridbot_overlay.decide.model import Grid, PilotOrder
from gridbot_overlay.submitters import GridError

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,63})(?:\+([0-9]{1,9}))?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_NO_OWNER_CHARACTER = re.compile(r"[^A-Za-z0-9_.@-]")


def parts(count: int, largest: int) -> Iterator[tuple[int, int]]:
    """Split a submission where arrays are limited: (first index, how many) of each part."""
    for first in range(0, count, max(1, largest)):
        yield first, min(max(1, largest), count - first)


def in_parts(count: int, largest: int, submit: Callable[[int, int], list[str]]) -> Iterator[str]:
    """Submit part after part, and yield the native ids.

    Once one was accepted, the refusal of a later one is no lasting error: the whole is not
    refused, and what is there is found by its tag.
    """
    accepted = 0
    for first, some in parts(count, largest):
        try:
            native_ids = submit(first, some)
        except GridError as error:
            if not accepted:
                raise
            raise GridError(f"only {accepted} of {count} pilots were accepted: {error}") from error
        accepted += len(native_ids)
        yield from native_ids


def job_name(tag: str, first: int) -> str:
    """Say what the system shall call a part of a submission, so that it is found again."""
    if not _TAG.fullmatch(tag):
        raise GridError(f"{tag!r} cannot be the name of a job everywhere", is_lasting=True)
    return f"{tag}+{first}" if first else tag


def read_name(name: str, prefix: str) -> tuple[str, int] | None:
    """Give the tag and the first index of a part; None when its tag has not that prefix."""
    found = _NAME.fullmatch(name)
    if found is None or not found[1].startswith(prefix):
        return None
    return found[1], int(found[2] or 0)


def script(order: PilotOrder, index: str, native_id: str, *prologue: str) -> str:
    """Render the job script, which tells the pilot who it is, then does the order's own lines.

    `index` and `native_id` are what the node's shell shall compute them from.
    """
    known = (
        "#!/bin/sh",
        f"export GRIDBOT_PILOT_TAG={shlex.quote(order.tag)}",
        f"export GRIDBOT_PILOT_INDEX={index}",
        f"export GRIDBOT_NATIVE_ID={native_id}",
        *prologue,
    )
    return "\n".join([*known, order.script.rstrip("\n")]) + "\n"


def owners(order: PilotOrder) -> str:
    """Name the people whom pilots serve, in characters that every accounting takes."""
    names = (_NO_OWNER_CHARACTER.sub("_", owner) for owner in order.owners)
    return "+".join(names) or "nobody"


def nodes(names: Sequence[str]) -> list[str]:
    """Give those names that can be hosts' names: some come from what runs on a node."""
    return [name for name in names if _NODE.fullmatch(name)]


def words(directives: tuple[str, ...]) -> list[str]:
    """Split verbatim options as a shell does: "-q long" becomes two."""
    try:
        return [word for directive in directives for word in shlex.split(directive)]
    except ValueError as error:
        raise GridError(f"directives {directives!r}: {error}", is_lasting=True) from error


def clock(seconds: int) -> str:
    """Write a duration as hours, minutes and seconds."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def options(grid: Grid, defaults: Mapping[str, Any], *, has_nodes: bool = False) -> dict[str, Any]:
    """Lay the grid's own options over the kind's defaults, which also say their types.

    Pilots of several nodes are refused unless the kind has them.
    """
    if grid.shape.nodes > 1 and not has_nodes:
        text = f"grid {grid.name}: pilots of {grid.kind} have one node; nodes is {grid.shape.nodes}"
        raise GridError(text, is_lasting=True)
    if grid.shape.nodes > 1 and grid.shape.gpus:
        text = f"grid {grid.name}: pilots of several nodes have no GPUs; gpus is {grid.shape.gpus}"
        raise GridError(text, is_lasting=True)
    for name, value in grid.options.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults))
            raise GridError(
                f"grid {grid.name}: {grid.kind} has no option {name!r}; there are {known}",
                is_lasting=True,
            )
        if not isinstance(value, type(defaults[name])):
            wanted = type(defaults[name]).__name__
            raise GridError(f"grid {grid.name}: option {name} is no {wanted}", is_lasting=True)
    return {**defaults, **grid.options}
