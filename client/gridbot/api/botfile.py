"""Reads BOT.toml: the options of `gridbot submit` in a file."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput

_TEXT, _NUMBER, _SIZE, _TEXTS, _FLAG = (str,), (int,), (str, int), (list,), (bool,)

# Types of each key; keys are the options' own names.
KEYS: Mapping[str, tuple[type, ...]] = {
    "command": (list, str),
    "name": _TEXT,
    "policy": _TEXT,
    "items": _TEXT,
    "each_line": _TEXT,
    "range": _TEXT,
    "input": _TEXTS,
    "output": _TEXTS,
    "platform": _TEXTS,
    "programs": (dict,),
    "priority": _NUMBER,
    "cpus": _NUMBER,
    "memory": _SIZE,
    "disk": _SIZE,
    "time": (str, int, float),
    "gpus": _NUMBER,
    "sandbox": _NUMBER,
    "network": _FLAG,
    "growing": _FLAG,
    "group": _TEXT,
    "outputs_to": _TEXT,
    "together": _NUMBER,
    "gather": (str, int, float),
    "checkpoint": _TEXTS,
    "checkpoint_exit_code": _NUMBER,
    "checkpoint_every": (str, int, float),
    "boinc_api": _FLAG,
    "exit_codes": _TEXT,
    "env": _TEXTS,
    "stdin": _TEXT,
    "requirements": _TEXT,
    "conda_pack": _TEXT,
    "image": _TEXT,
    "max_output": _SIZE,
    "quorum": _NUMBER,
    "validator": _TEXT,
    "known_answers": _TEXT,
    "attempts": _NUMBER,
    "max_replicas": _NUMBER,
    "failover_after": _NUMBER,
    "max_failures": _SIZE,
    "tail_threshold": _NUMBER,
    "idempotency_key": _TEXT,
    "key": _TEXT,  # deprecated name of idempotency_key
}
_PROGRAM_KEYS = ("command", "input")
_WORDS = {
    str: "a string", int: "a whole number", float: "a number", list: "a list of strings",
    bool: "true or false", dict: "tables such as [programs.linux-x86_64]",
}  # fmt: skip


def read_bot_file(path: Path) -> dict[str, Any]:
    """Options in the file.  Raises BadInput that names the wrong key."""
    try:
        options = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None
    for key, value in options.items():
        _check(path, key, value)
    for where, row in options.get("programs", {}).items():
        _check_program(path, where, row)
    if "command" not in options and "programs" not in options:
        raise BadInput(f'{path}: command is missing; write command = ["./prog", "{{}}"]')
    return options


def _check_program(path: Path, where: str, row: object) -> None:
    if not isinstance(row, dict):
        raise BadInput(f"{path}: programs: write [programs.{json.dumps(where)}], not {row!r}")
    for key, value in row.items():
        if key not in _PROGRAM_KEYS:
            raise BadInput(
                f"{path}: programs: {where!r}: unknown key {key!r}; there are command, input"
            )
        _check(path, key, value)


def _check(path: Path, key: str, value: object) -> None:
    if key not in KEYS:
        meant = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"; did you mean {meant[0]}?" if meant else f"; known keys: {', '.join(KEYS)}"
        raise BadInput(f"{path}: unknown key {key!r}{hint}")
    texts = not isinstance(value, list) or all(isinstance(item, str) for item in value)
    is_flag = isinstance(value, bool)  # which is a whole number, too
    if is_flag != (KEYS[key] == _FLAG) or not isinstance(value, KEYS[key]) or not texts:
        allowed = " or ".join(_WORDS[kind] for kind in KEYS[key])
        raise BadInput(f"{path}: {key} must be {allowed}, not {value!r}")
