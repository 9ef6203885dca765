"""Where the jobs of a BOT come from: a range, the lines of a file, a CSV table, or Python values.

A file is read twice, to learn its columns' types and to send it, and never held in memory.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from gridbot.api.errors import BadInput
from gridbot_client.protocol.messages import MAX_BIGINT, PLACEHOLDER_TYPES, Scalar

ITEM = "i"  # the placeholder of a range and of lines

_INT = re.compile(r"0|-?[1-9][0-9]{0,18}")
_REAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Items(Protocol):
    """A table of jobs.  `rows` starts anew at each call and counts as its source does."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The placeholders that each row fills."""

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Each row with the number that `where` understands.  May raise BadInput."""

    def where(self, number: int) -> str:
        """How to name a row to the person who wrote it."""


@dataclass(frozen=True)
class RangeItems:
    """Whole numbers, as Python's range gives them."""

    range: range
    columns: tuple[str, ...] = (ITEM,)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Each number, counted from 1."""
        return ((number, {ITEM: value}) for number, value in enumerate(self.range, 1))

    def where(self, number: int) -> str:
        """Its value."""
        return f"item {self.range[number - 1]} of the range"


@dataclass(frozen=True)
class ValueItems:
    """Values that Python holds already: mappings, or scalars that fill `{i}`."""

    values: tuple[Mapping[str, Scalar], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the first item; the others must have the same."""
        return tuple(self.values[0]) if self.values else ()

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Each item, counted from 0 as Python does."""
        names = set(self.columns)
        for number, value in enumerate(self.values):
            if set(value) != names:
                raise BadInput(
                    f"{self.where(number)} has {_listed(value)}, but the first has {_listed(names)}"
                )
            yield number, value

    def where(self, number: int) -> str:
        """Its index."""
        return f"items[{number}]"


@dataclass(frozen=True)
class LineItems:
    """The lines of a text file; blank ones are skipped, nothing else is changed."""

    path: Path
    columns: tuple[str, ...] = (ITEM,)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Each line that is not blank, with its number in the file."""
        with _opened(self.path, newline="\n") as file:
            for number, line in enumerate(_decoded(file, self.path), 1):
                text = line.removesuffix("\n").removesuffix("\r")
                if text.strip():
                    yield number, {ITEM: text}

    def where(self, number: int) -> str:
        """File and line."""
        return f"{self.path}, line {number}"


@dataclass(frozen=True)
class CsvItems:
    """A CSV table; its header names the placeholders."""

    path: Path
    columns: tuple[str, ...]

    @classmethod
    def at(cls, path: Path) -> CsvItems:
        """Read the header.  Raises BadInput when it is missing or names a column twice."""
        with _opened(path, newline="") as file:
            header = next(cls(path, ())._records(file), (1, []))[1]
        columns = tuple(name.strip() for name in header)
        if not columns:
            raise BadInput(f"{path}: is empty; its first line must name the columns")
        for place, name in enumerate(columns):
            if not name:
                raise BadInput(f"{path}, line 1: column {place + 1} has no name")
            if name in columns[:place]:
                raise BadInput(f"{path}, line 1: two columns are named {name!r}")
        return cls(path, columns)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Each record with the line it ends on."""
        with _opened(self.path, newline="") as file:
            records = self._records(file)
            next(records, None)
            for line, fields in records:
                if len(fields) != len(self.columns):
                    raise BadInput(
                        f"{self.where(line)}: {_count(len(fields), 'field')},"
                        f" but the header names {_count(len(self.columns), 'column')}"
                    )
                yield line, dict(zip(self.columns, fields, strict=True))

    def where(self, number: int) -> str:
        """File and line."""
        return f"{self.path}, line {number}"

    def _records(self, file: IO[str]) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(_decoded(file, self.path), strict=True)
        try:
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
        except csv.Error as error:
            raise BadInput(f"{self.where(reader.line_num)}: {error}") from None


def parse_range(text: str) -> RangeItems:
    """Read A:B or A:B:STEP, which counts as Python's range does: A is in, B is not."""
    try:
        bounds = [int(part) for part in text.split(":")]
        if len(bounds) not in (2, 3):
            raise ValueError
        numbers = range(*bounds)
    except ValueError:
        raise BadInput(
            f"{text!r} is not a range; write A:B or A:B:STEP with whole numbers, such as 0:100"
        ) from None
    if not numbers:
        raise BadInput(f"the range {text} holds no number; B itself is not in it")
    if max(abs(numbers[0]), abs(numbers[-1])) > MAX_BIGINT:
        raise BadInput(f"the range {text} leaves the 64-bit numbers")
    return RangeItems(numbers)


def items_of(source: Items | range | Path | Iterable[object] | None) -> Items:
    """The table that a Python value means; None is one job without arguments."""
    if source is None:
        return ValueItems(({},))
    if isinstance(source, RangeItems | ValueItems | LineItems | CsvItems):
        return source
    if isinstance(source, range):
        return parse_range(f"{source.start}:{source.stop}:{source.step}")
    if isinstance(source, Path):
        return CsvItems.at(source) if source.suffix == ".csv" else LineItems(source)
    if isinstance(source, str) or not isinstance(source, Iterable):
        raise BadInput("items must be a range, a Path or a list; write Path(…) for a file")
    return ValueItems(tuple(_mapping(value) for value in source))


@dataclass(frozen=True)
class Survey:
    """What one pass over the items learned."""

    count: int
    types: Mapping[str, str]  # column -> int, real or text


def survey(items: Items) -> Survey:
    """Count the rows and find the narrowest type that holds each column."""
    if isinstance(items, RangeItems):  # nothing to look at, and perhaps millions of them
        return Survey(len(items.range), {ITEM: "int"})
    widest = dict.fromkeys(items.columns, 0)
    count = 0
    for number, row in items.rows():
        count += 1
        for column, value in row.items():
            try:
                widest[column] = max(widest[column], _width(value))
            except BadInput as error:
                raise BadInput(f"{items.where(number)}, column {column}: {error}") from None
    if not count:
        raise BadInput(f"{getattr(items, 'path', 'items')}: holds no item, so there is no job")
    return Survey(count, {name: PLACEHOLDER_TYPES[width] for name, width in widest.items()})


def carried(row: Mapping[str, Scalar], types: Mapping[str, str]) -> dict[str, Scalar]:
    """The values as they travel: an int as a number, anything else as its exact text.

    A real stays text, because 0.10 or 1e400 would not survive a float.
    """
    return {
        name: int(value) if types[name] == "int" else _text(value) for name, value in row.items()
    }


def is_number(text: str) -> bool:
    """Whether the text is a decimal number, whole or not."""
    return _REAL.fullmatch(text) is not None


def _width(value: object) -> int:
    """The place in PLACEHOLDER_TYPES of the narrowest type that holds `value` unchanged."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{value!r} is neither a text nor a number")
    text = _text(value)
    if "\0" in text:
        raise BadInput("holds a NUL character, which no argument can carry")
    if _INT.fullmatch(text) and abs(int(text)) <= MAX_BIGINT:
        return 0
    # A number too large for a double may be a valid argument, but it is not a real.
    if _REAL.fullmatch(text) and math.isfinite(float(text)):
        return 1
    if isinstance(value, float):
        raise BadInput(f"{value} is not a finite number")
    return 2


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else repr(value)


def _mapping(value: object) -> Mapping[str, Scalar]:
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items()}
    return {ITEM: value}  # type: ignore[dict-item]  # `survey` refuses what is no scalar


def _opened(path: Path, newline: str) -> IO[str]:
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: must be a file, because it is read twice")
    try:
        return path.open(encoding="utf-8-sig", newline=newline)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _decoded(file: IO[str], path: Path) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text ({error.reason})") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
