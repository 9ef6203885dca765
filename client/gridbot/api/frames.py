"""Results as a data frame of pandas: a row per job, or per record of one of its outputs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gridbot.api.errors import GridbotError
from gridbot.api.results import Real, Result
from gridbot.printing import counted, is_number

if TYPE_CHECKING:
    import pandas

_STDOUT = "stdout"
_ABOUT = ("job", "state", "seconds", "host", "exit_code", "reason", "version")


def frame_of(
    results: Iterable[Result], arguments: Sequence[str], output: str | None
) -> pandas.DataFrame:
    """Rows of a BOT's results; see `Bot.frame`.  Raises GridbotError without pandas."""
    try:
        import pandas
    except ImportError:
        raise GridbotError("a frame needs pandas: pip install pandas") from None
    taken = list(arguments)
    about = {name: _free(name, taken) for name in _ABOUT}
    found = dict[str, str]()  # columns of the records
    rows = list[dict[str, Any]]()
    for result in results:
        records, fault = _records(result, output)
        told = (
            result.seq, result.state, result.wall_seconds, result.host, result.exit_code,
            result.reason or fault, result.version,
        )  # fmt: skip
        job = {name: _plain(value) for name, value in result.args.items()}
        job |= zip(about.values(), told, strict=True)
        for record in records:
            for name in record:
                if name not in found:
                    found[name] = _free(name, taken)
            rows.append({**job, **{found[name]: value for name, value in record.items()}})
    made = pandas.DataFrame(rows, columns=taken)
    return made.astype({about["exit_code"]: "Int64"})  # whole numbers, of which some lack


def _free(name: str, taken: list[str]) -> str:
    """A name that no column has yet, which is then taken."""
    while name in taken:
        name += "_"
    taken.append(name)
    return name


def _records(result: Result, output: str | None) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Records of an output, and what is wrong with it; without `output` its standard output."""
    if output is None:
        return [{_STDOUT: result.stdout} if _STDOUT in result.outputs else {}], ""
    if output not in result.outputs:
        return [{}], f"no output {output}"
    try:
        text = result.outputs[output].read().decode()
        found = _csv(text) if output.endswith(".csv") else _json(text, output)
    except ValueError as error:
        return [{}], f"{output}: {error}"
    return found or [{}], ""


def _json(text: str, name: str) -> Sequence[Mapping[str, Any]]:
    value = json.loads(text)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    return [value if isinstance(value, dict) else {name: value}]


def _csv(text: str) -> Sequence[Mapping[str, Any]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise ValueError("no line that names the columns")
        return [_record(header, row, reader.line_num) for row in reader if row]
    except csv.Error as error:
        raise ValueError(str(error)) from None


def _record(header: Sequence[str], row: Sequence[str], line: int) -> Mapping[str, Any]:
    if len(row) != len(header):
        fields, columns = counted(len(row), "field"), counted(len(header), "column")
        raise ValueError(f"line {line}: {fields}, but the first line names {columns}")
    return dict(zip(header, map(_number, row), strict=True))


def _number(text: str) -> int | float | str:
    if not is_number(text):
        return text
    try:
        return int(text)
    except ValueError:
        return float(text)


def _plain(value: object) -> object:
    """An argument as pandas knows it."""
    return float(value) if isinstance(value, Real) else value
