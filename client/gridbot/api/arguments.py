"""Arguments of a submission from Python, where a type checker may not have looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gridbot.api.errors import BadInput
from gridbot.api.programs import PlatformProgram

if TYPE_CHECKING:
    from gridbot.api.submission import Submission

_LISTS = ("inputs", "job_inputs", "outputs", "platforms")
_LEAST = {"cpus": 1, "gpus": 0, "quorum": 1, "attempts": 1, "max_replicas": 1}


def tidied(submission: Submission) -> Submission:
    """The submission with lone texts as lists, and variables as texts.

    Raises BadInput for what is of another kind, under the name that it has here.
    """
    for name, least in _LEAST.items():
        value = getattr(submission, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadInput(f"{name}: {value!r} is no whole number of {least} or more")
    lists: dict[str, Any] = {name: _list(getattr(submission, name)) for name in _LISTS}
    _check_programs(submission.programs)
    return replace(submission, env=_variables(submission.env), **lists)


def _check_programs(programs: object) -> None:
    if not isinstance(programs, Mapping):
        raise BadInput(f"programs: {programs!r} is no mapping of platforms to PlatformProgram")
    for where, program in programs.items():
        if not isinstance(where, str) or not isinstance(program, PlatformProgram):
            raise BadInput(f"programs: {where!r} is {program!r}; pass a PlatformProgram")


def _list(value: object) -> object:
    """A list; a text alone is one of one, and not its characters."""
    return (value,) if isinstance(value, str | PurePath) else value


def _variables(env: object) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise BadInput(f"env: {env!r} is no mapping; write {{'NAME': 'value'}}")
    for name, value in env.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float | PurePath):
            raise BadInput(f"env: {name} is {value!r}; pass a text or a number")
    return {str(name): str(value) for name, value in env.items()}
