"""Sources of jobs: a range, the lines of a file, a CSV table, or Python values.

A file is read twice, for its columns' types and for the jobs, and never held in memory.
"""

from __future__ import annotations

import csv
import math
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from gridbot.api.errors import BadInput
from gridbot.api.tables import index_names, rows_in
from gridbot.printing import is_number
from gridbot_client.protocol.messages import MAX_BIGINT, PLACEHOLDER_TYPES, Scalar

ITEM = "i"  # the placeholder of a range and of lines

_INT = re.compile(r"0|-?[1-9][0-9]{0,18}")


class Items(Protocol):
    """A table of jobs.  Each call of `rows` starts at the first row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the placeholders that each row has values for."""

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Yield (number, row); `number` is the argument of `where`.  May raise BadInput."""

    def where(self, number: int) -> str:
        """Place of a row for error messages, such as file and line."""


@dataclass(frozen=True)
class RangeItems:
    """Whole numbers, as Python's range gives them."""

    range: range
    columns: tuple[str, ...] = (ITEM,)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Yield each number of the range, counted from 1."""
        return ((number, {ITEM: value}) for number, value in enumerate(self.range, 1))

    def where(self, number: int) -> str:
        """Value of the row."""
        return f"item {self.range[number - 1]} of the range"


@dataclass(frozen=True)
class ValueItems:
    """Python values: mappings, or scalars for the placeholder `{i}`."""

    values: tuple[Mapping[str, Scalar], ...]
    index: tuple[str, ...] = ()  # of a data frame: names that are no columns

    @property
    def columns(self) -> tuple[str, ...]:
        """Names in the first item; all items must have the same names."""
        return tuple(self.values[0]) if self.values else ()

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Yield each item, counted from 0 like Python indexes."""
        names = set(self.columns)
        for number, value in enumerate(self.values):
            if set(value) != names:
                raise BadInput(
                    f"{self.where(number)} has the names {_listed(value)},"
                    f" items[0] has {_listed(names)}; all items need the same names"
                )
            yield number, value

    def where(self, number: int) -> str:
        """Index of the item."""
        return f"items[{number}]"


@dataclass(frozen=True)
class LineItems:
    """Lines of a text file; blank lines are skipped, others are unchanged."""

    path: Path
    columns: tuple[str, ...] = (ITEM,)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Yield each line that is not blank, with its line number."""
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
            raise BadInput(f"{path}: empty file; its first line must name the columns")
        for place, name in enumerate(columns):
            if not name:
                raise BadInput(f"{path}, line 1: column {place + 1} has no name")
            if name in columns[:place]:
                raise BadInput(f"{path}, line 1: two columns are named {name!r}; rename one")
        return cls(path, columns)

    def rows(self) -> Iterator[tuple[int, Mapping[str, Scalar]]]:
        """Yield each record, with the number of its last line."""
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
    """Parse A:B or A:B:STEP; as in Python's range, A is included and B is not."""
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
        raise BadInput(f"the range {text} is empty; A:B does not include B")
    if max(abs(numbers[0]), abs(numbers[-1])) > MAX_BIGINT:
        raise BadInput(f"the range {text} exceeds 64-bit integers")
    return RangeItems(numbers)


def items_of(source: Items | range | Path | Iterable[object] | None) -> Items:
    """Table of jobs for a Python value; None is one job without values.

    A data frame of pandas gives its rows.  Raises BadInput.
    """
    if source is None:
        return ValueItems(({},))
    if isinstance(source, RangeItems | ValueItems | LineItems | CsvItems):
        return source
    if isinstance(source, range):
        return parse_range(f"{source.start}:{source.stop}:{source.step}")
    if isinstance(source, Path):
        return CsvItems.at(source) if source.suffix == ".csv" else LineItems(source)
    return ValueItems(tuple(rows_in(source, ITEM)), index_names(source))


@dataclass(frozen=True)
class Survey:
    """Number of items and types of their columns."""

    count: int
    types: Mapping[str, str]  # column -> int, real or text


def survey(items: Items) -> Survey:
    """Count the rows and find the narrowest type of each column.  Raises BadInput."""
    if isinstance(items, RangeItems):  # known without reading millions of rows
        return Survey(len(items.range), {ITEM: "int"})
    widest = dict.fromkeys(items.columns, 0)
    count = 0
    for number, row in items.rows():
        count += 1
        for column, value in row.items():
            try:
                widest[column] = _width(value, widest[column])
            except BadInput as error:
                raise BadInput(f"{items.where(number)}, column {column}: {error}") from None
    if not count:
        raise BadInput(f"{getattr(items, 'path', 'items')}: no items, so the BOT would have no job")
    return Survey(count, {name: PLACEHOLDER_TYPES[width] for name, width in widest.items()})


def carried(row: Mapping[str, Scalar], types: Mapping[str, str]) -> dict[str, Scalar]:
    """Values as they are sent: an int as a number, anything else as its exact text.

    A real is sent as text, because a float would change 0.10 or 1e400.
    """
    return {
        name: int(value) if types[name] == "int" else _text(value) for name, value in row.items()
    }


def untyped(row: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Values as jobs of growing BOTs carry them, whose later values nobody knows: all are texts.

    A whole number stays one in the results, anything else is its exact text.  Raises BadInput.
    """
    return {
        name: int(value) if _width(value, 0) == 0 and not isinstance(value, str) else _text(value)
        for name, value in row.items()
    }


def _width(value: object, least: int) -> int:
    """Index in PLACEHOLDER_TYPES, from `least` on, of the narrowest type that holds the value."""
    if type(value) is not str and (
        isinstance(value, bool) or not isinstance(value, str | int | float)
    ):
        kind = type(value).__qualname__
        raise BadInput(
            f"{reprlib.repr(value)}, a {kind}, is neither a string nor a number; pass str() of it,"
            " or what your program reads"
        )
    text = _text(value)
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise BadInput(f"{reprlib.repr(value)} is no text that UTF-8 can write")
    if "\0" in text:
        raise BadInput("NUL character; a program's argument cannot hold one")
    if least == 0 and _INT.fullmatch(text) and abs(int(text)) <= MAX_BIGINT:
        return 0
    # A number beyond a double's range is a valid argument, but no real.
    if least <= 1 and is_number(text) and math.isfinite(float(text)):
        return 1
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(
            f"{value} is not a finite number; drop the row, fill it, or pass it as a text"
        )
    return 2


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else repr(value)


def _opened(path: Path, newline: str) -> IO[str]:
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: not a regular file; pipes and directories cannot be read twice")
    try:
        return path.open(encoding="utf-8-sig", newline=newline)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _decoded(file: IO[str], path: Path) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text ({error.reason})") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
