"""Reads overlay.toml: which grids there are, and what the operator allows in each."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from datetime import time as clock_time
from pathlib import Path
from typing import Any, TypeVar

from gridbot.api.errors import BadInput
from gridbot_client.host.gpus import MOST as MOST_GPUS
from gridbot_overlay.decide.model import Grid, GridLimits, PilotShape
from gridbot_overlay.decide.money import PERIODS

T = TypeVar("T")

FILE_NAME = "overlay.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST = 10**9
MOST_NODES = 256  # of one pilot: its client speaks with each


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlaySettings:
    """The whole configuration; `server` and `key_file` None: found as by other commands."""

    server: str | None = None
    key_file: Path | None = None
    grids: Mapping[str, Grid] = field(default_factory=dict)

    def grid(self, name: str) -> Grid:
        """Return one grid.  Raises BadInput naming those that there are."""
        if name not in self.grids:
            raise BadInput(f"unknown grid {name!r}{_meant(name, self.grids)}")
        return self.grids[name]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a value must be."""

    words: str
    accepts: Callable[[Any], bool]
    make: Callable[[Any], Any] = lambda value: value


def _is_number(value: object, *kinds: type) -> bool:
    return type(value) in kinds  # True is an int, but no number


def _whole(least: int, most: int = _MOST) -> _Kind:
    bound = "" if most == _MOST else f" and at most {most}"
    return _Kind(
        f"a whole number of at least {least}{bound}",
        lambda value: _is_number(value, int) and least <= value <= most,
    )


_TEXT = _Kind("a string in one line", lambda value: isinstance(value, str) and "\n" not in value)
_WHOLE_PATH = _Kind(
    "a whole path, from / on",
    lambda value: isinstance(value, str) and value.startswith("/") and value.isprintable(),
)
_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_TEXTS = _Kind(
    "a list of strings",
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    tuple,
)
_AMOUNT = _Kind(
    "a number above 0",
    lambda value: _is_number(value, int, float) and 0 < value <= _MOST,
    float,
)

_SERVER = {"url": _TEXT, "key_file": _TEXT}
_SHAPE = {
    "nodes": _whole(1, most=MOST_NODES),
    "cpus": _whole(1),
    "memory_mb": _whole(1),
    "gpus": _whole(0, most=MOST_GPUS),
    "walltime_seconds": _whole(60),
    "idle_seconds": _whole(1),
}
_LIMITS = {
    "max_queued": _whole(0),
    "max_running": _whole(0),
    "submits_per_minute": _whole(1),
    "budget_pilot_hours": _AMOUNT,
    "max_queue_seconds": _whole(60),
    "budget": _AMOUNT,
    "budget_period": _Kind(
        " or ".join(f'"{name}"' for name in PERIODS),
        lambda value: isinstance(value, str) and value in PERIODS,
    ),
}
_GRID = {
    "kind": _TEXT,
    "price": _AMOUNT,
    "price_per_core_hour": _AMOUNT,
    "is_dedicated": _FLAG,
    "scratch": _TEXT,
    "shared_cache": _WHOLE_PATH,
    "setup": _TEXTS,
    "python": _TEXT,
    "owners": _TEXTS,
    "directives": _TEXTS,
}
_TABLES = ("shape", "limits", "options")  # of a grid, beside its own keys


_HEADER = re.compile(r"\s*(\[[^\[\]]+\])\s*(?:#.*)?$")


def read_settings(path: Path, kinds: Iterable[str]) -> OverlaySettings:
    """Read the file; no file means no grid.  Raises BadInput naming the key and the value."""
    try:
        return settings_of(path.read_text(encoding="utf-8"), path, kinds)
    except FileNotFoundError:
        return OverlaySettings()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: {error}") from None


def settings_of(text: str, path: Path, kinds: Iterable[str]) -> OverlaySettings:
    """Read what the file at `path` holds, or will hold.  Raises BadInput."""
    try:
        return _settings(tomllib.loads(text), path.parent, sorted(kinds))
    except (BadInput, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path}: {error}") from None


def grid_of(name: str, table: Mapping[str, Any], kinds: Iterable[str]) -> Grid:
    """Make a grid of its table.  Raises BadInput."""
    where = f"grids.{name}"
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{where}: a grid's name may have only letters, digits and . _ -, at most 64"
        )
    own = {key: value for key, value in table.items() if key not in _TABLES}
    values = _checked(own, _GRID, where, more=_TABLES)
    if "kind" not in values:
        raise BadInput(f'{where}: kind is missing; write kind = "slurm" or another kind')
    if values["kind"] not in (known := sorted(kinds)):
        raise BadInput(
            f"{where}.kind: unknown kind {values['kind']!r}{_meant(values['kind'], known)}"
        )
    options = _table(table, "options", where)
    shape = _made(PilotShape, _table(table, "shape", where), _SHAPE, f"{where}.shape")
    limits = _made(GridLimits, _table(table, "limits", where), _LIMITS, f"{where}.limits")
    price = _price(values, shape, where)
    if limits.budget is not None and not price:
        raise BadInput(f"{where}.limits.budget needs a price of pilots: write {where}.price = 0.1")
    return Grid(name=name, shape=shape, limits=limits, options=options, price=price, **values)


def _price(values: dict[str, Any], shape: PilotShape, where: str) -> float:
    """Take the price out of a grid's values, and return that of one pilot for an hour."""
    price, of_core = values.pop("price", None), values.pop("price_per_core_hour", None)
    if price is not None and of_core is not None:
        raise BadInput(f"{where}: price and price_per_core_hour say the same: leave one out")
    if of_core is not None:
        return float(of_core * shape.all_cpus)
    return float(price or 0.0)


def grid_text(name: str, table: Mapping[str, Any]) -> str:
    """Write a grid's table as TOML, to be appended to the file."""
    own = {key: value for key, value in table.items() if key not in _TABLES}
    lines = [f"[grids.{_key(name)}]", *_lines(own)]
    for part in _TABLES:
        if inner := table.get(part):
            lines += ["", f"[grids.{_key(name)}.{part}]", *_lines(inner)]
    return "\n".join(lines) + "\n"


def without_grid(text: str, name: str) -> str:
    """The file's text without the tables of one grid; all else, comments too, stays as it is.

    Raises BadInput where the grid is written in another way than as tables of its own.
    """
    kept, is_kept = [], True
    for line in text.splitlines(keepends=True):
        if header := _HEADER.match(line):
            with suppress(tomllib.TOMLDecodeError):  # then it is a line of a value
                is_kept = tomllib.loads(header[1]).get("grids", {}).get(name) is None
        if is_kept:
            kept.append(line)
    expected = tomllib.loads(text)
    del expected["grids"][name]
    left = "".join(kept)
    if {"grids": {}, **tomllib.loads(left)} != expected:
        raise BadInput(f"grid {name!r} is not written as [grids.{_key(name)}]: remove it by hand")
    return left


def _settings(document: Mapping[str, Any], folder: Path, kinds: Iterable[str]) -> OverlaySettings:
    _known(document, ("server", "grids"), "", "known keys:")
    server = _checked(_table(document, "server", ""), _SERVER, "server")
    key_file = server.get("key_file")
    grids = _table(document, "grids", "")
    return OverlaySettings(
        server=server.get("url"),
        key_file=folder / Path(key_file).expanduser() if key_file else None,
        grids={name: grid_of(name, _table(grids, name, "grids"), kinds) for name in grids},
    )


def _table(document: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        full = f"{where}.{name}".strip(".")
        raise BadInput(f"{full} must be a table, [{full}], not {table!r}")
    return table


def _checked(
    table: Mapping[str, Any], kinds: Mapping[str, _Kind], where: str, more: Iterable[str] = ()
) -> dict[str, Any]:
    _known(table, (*kinds, *more), where, "known keys:")
    for key, value in table.items():
        if not kinds[key].accepts(value):
            raise BadInput(f"{where}.{key} must be {kinds[key].words}, not {value!r}")
    return {key: kinds[key].make(value) for key, value in table.items()}


def _made(
    make: Callable[..., T], table: Mapping[str, Any], kinds: Mapping[str, _Kind], where: str
) -> T:
    return make(**_checked(table, kinds, where))


def _known(table: Iterable[str], keys: Iterable[str], where: str, words: str) -> None:
    for key in table:
        if key not in (allowed := list(keys)):
            place = f"[{where}]: " if where else ""
            raise BadInput(f"{place}unknown key {key!r}{_meant(key, allowed, words)}")


def _meant(name: str, known: Iterable[str], words: str = "known:") -> str:
    names = list(known)
    if meant := difflib.get_close_matches(name, names, n=1):
        return f"; did you mean {meant[0]}?"
    return f"; {words} {', '.join(names) or 'none'}"


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: object) -> str:
    """Write a value; TOML's texts are JSON's, but for DEL and for escapes of halves of pairs."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_quoted(key)} = {_value(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return _quoted(value)


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return json.dumps(name) if "." in name else name
