"""Writes results to a directory and a CSV table, as JSON, or to the terminal."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import click

from gridbot.api.bot import Bot
from gridbot.api.connection import log_away
from gridbot.api.errors import BadInput, GridbotError, ServerAway
from gridbot.api.results import OutputFile, Result
from gridbot.api.units import size
from gridbot.printing import csv_cell, first_line, json_document
from gridbot_client.protocol.messages import ProtocolError, file_name

CURSOR = ".gridbot-results.json"
SAVE_SECONDS = 1.0
CELL_CHARACTERS = 1000

_BEFORE = ("seq",)
_AFTER = (
    "state", "reason", "exit_code", "host", "cpu_seconds", "wall_seconds", "version", "stdout",
)  # fmt: skip


@dataclass(frozen=True)
class Cursor:
    """Position in the results of a BOT.  A retry begins a new round and a new sequence."""

    server: str
    bot: int
    round: int
    table: str
    after: int = 0
    table_bytes: int = 0


def collect(
    bot: Bot,
    to: Path | None,
    table: Path | None,
    follow: bool = False,
    told: Callable[[ServerAway], None] = log_away,
) -> int:
    """Save outputs as `to`/SEQ/NAME and one CSV row per job; return the number of new jobs.

    With `to` it continues where the last call stopped.  Raises BadInput when the directory holds
    another BOT's results, GridbotError when a file cannot be written.
    """
    try:
        path = table or (to or Path()) / "results.csv"
        cursor = _cursor(bot, to, path)  # for an unknown BOT no directory is made
        if to:
            to.mkdir(parents=True, exist_ok=True)
        with path.open("r+" if cursor.table_bytes else "w", encoding="utf-8", newline="") as file:
            file.truncate(cursor.table_bytes)
            file.seek(0, os.SEEK_END)
            return _collect(bot, to, file, cursor, bot.results(follow, cursor.after, told))
    except OSError as error:
        raise GridbotError(f"{error.filename or to or table}: {error.strerror}") from error


def _collect(
    bot: Bot, to: Path | None, file: IO[str], cursor: Cursor, results: Iterator[Result]
) -> int:
    writer = csv.writer(file, lineterminator="\n")
    columns = bot.columns()
    if not cursor.table_bytes:
        writer.writerow(map(csv_cell, (*_BEFORE, *columns, *_AFTER)))
    count, after, saved_at = 0, cursor.after, time.monotonic()
    try:
        for result in results:
            stdout = save_outputs(result, to) if to else _preview(result)
            writer.writerow(_cells(result, columns, stdout))
            count, after = count + 1, result.n
            if time.monotonic() - saved_at > SAVE_SECONDS:
                _save(to, cursor, after, file)
                saved_at = time.monotonic()
    finally:
        _save(to, cursor, after, file)
    return count


def save_outputs(result: Result, to: Path) -> str:
    """Write the outputs of one job under `to`/SEQ; return the first line of its stdout.

    Raises GridbotError for a name that would leave the directory.
    """
    line = ""
    for output in result.outputs.values():
        try:
            path = to / str(int(result.seq)) / file_name(output.name, "output")
        except ProtocolError as error:
            raise GridbotError(f"job {result.seq}: {error}") from None
        if not _is_there(output, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            output.save(path)
        if output.name == "stdout":
            with path.open("rb") as file:
                line = first_line(file.read(4096).decode("utf-8", "replace"), CELL_CHARACTERS)
    return line


def print_results(bot: Bot, follow: bool, told: Callable[[ServerAway], None]) -> None:
    """One line per finished job, in columns that tabs separate."""
    for result in bot.results(follow=follow, told=told):
        click.echo("\t".join(_line(result)))


def lines_of_group(results: Iterable[Result]) -> Iterator[str]:
    """A line for each finished job of a group's BOTs: its number there and its BOT go first."""
    for result in results:
        yield "\t".join((str(result.n), str(result.bot), *_line(result)))


def json_lines_of(results: Iterable[Result]) -> Iterator[str]:
    """A JSON document for each finished job."""
    for result in results:
        yield json.dumps(_document(result))


def _line(result: Result) -> tuple[str, ...]:
    args = " ".join(f"{name}={value}" for name, value in result.args.items())
    about = _preview(result) if result.state == "done" else result.reason
    return str(result.seq), first_line(args, 100), result.state, first_line(about, 200)


def results_document(bot: Bot, follow: bool) -> Iterator[str]:
    """The results as one JSON document, in parts."""
    rows = map(_document, bot.results(follow=follow))
    return json_document(bot.id, "results", rows)


def _document(result: Result) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(result).items() if name != "outputs"},
        "args": {
            name: str(value) if isinstance(value, float) else value
            for name, value in result.args.items()
        },
        "outputs": {name: _output_document(output) for name, output in result.outputs.items()},
        "stdout": _preview(result),
    }


def _output_document(output: OutputFile) -> dict[str, Any]:
    document: dict[str, Any] = {"sha256": output.sha256, "size": output.size}
    if output.place:
        document["place"] = output.place
    return {**document, "lost": True} if output.is_lost else document


def _cells(result: Result, columns: Sequence[str], stdout: str) -> list[str]:
    exit_code = "" if result.exit_code is None else result.exit_code
    about = (result.state, result.reason, exit_code, result.host)
    cpu, wall = f"{result.cpu_seconds:.3f}", f"{result.wall_seconds:.3f}"
    args = (result.args.get(name, "") for name in columns)
    cells = (result.seq, *args, *about, cpu, wall, result.version, stdout)
    return [csv_cell(str(cell)) for cell in cells]


def _preview(result: Result) -> str:
    """First line of a job's stdout if it came with the result; makes no request."""
    output = result.outputs.get("stdout")
    if output is None:
        return ""
    if not output.is_here:
        where = " lost" if output.is_lost else f" {output.place}" if output.place else ""
        return f"({size(output.size)}{where})"
    return first_line(output.read().decode("utf-8", "replace"), CELL_CHARACTERS)


def _is_there(output: OutputFile, path: Path) -> bool:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return digest.hexdigest() == output.sha256


def _cursor(bot: Bot, to: Path | None, table: Path) -> Cursor:
    """Saved position if the directory holds this BOT in this round, else the beginning."""
    fresh = Cursor(bot.connection.url, bot.id, bot.show().round, str(table.absolute()))
    if to is None or not (to / CURSOR).exists():
        return fresh
    try:
        saved = Cursor(**json.loads((to / CURSOR).read_text()))
    except (ValueError, TypeError):
        return fresh
    if (saved.server, saved.bot) != (fresh.server, fresh.bot):
        raise BadInput(
            f"{to} holds results of bot {saved.bot} at {saved.server}; choose another directory"
        )
    # A table that is shorter than it was has been edited or deleted.
    with suppress(FileNotFoundError):
        if (saved.round, saved.table) == (fresh.round, fresh.table):
            return saved if table.stat().st_size >= saved.table_bytes else fresh
    return fresh


def _save(to: Path | None, cursor: Cursor, after: int, file: IO[str]) -> None:
    file.flush()
    if to is None:
        return
    table_bytes = os.fstat(file.fileno()).st_size
    document = {**asdict(cursor), "after": after, "table_bytes": table_bytes}
    partial = to / f"{CURSOR}.part"
    partial.write_text(json.dumps(document))
    partial.replace(to / CURSOR)
