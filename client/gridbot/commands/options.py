"""Options that several verbs share, and how they print."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gridbot.api.errors import BadInput, GridbotError, ServerAway
from gridbot.api.items import CsvItems, Items, LineItems, parse_range
from gridbot.api.session import connect
from gridbot_client.protocol.messages import MAX_BIGINT

R = TypeVar("R")
# Does something to what has this number; gives the JSON document and the line about it.
Act = Callable[[int], tuple[Mapping[str, Any], str]]


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NUMBERS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
_MOST_NUMBERS = 100_000  # that one text may stand for


class Numbers(click.ParamType[range]):
    """A number, or the numbers from one to another, as in 7 and 3-5."""

    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """Read it; what is none is wrong usage."""
        if isinstance(value, range):
            return value
        match = _NUMBERS.fullmatch(str(value))
        if not match:
            self.fail(f"{value!r} is not a valid whole number, nor two such as 3-5", param, ctx)
        first, last = int(match[1]), int(match[2] or match[1])
        if not self._least <= first <= last <= first + _MOST_NUMBERS:
            self.fail(f"{value!r}: numbers begin with {self._least}, and at most {_MOST_NUMBERS}"
                      " go from the lesser to the greater", param, ctx)  # fmt: skip
        return range(first, last + 1)


def _each(
    _context: click.Context, _option: click.Parameter, values: tuple[range, ...]
) -> tuple[int, ...]:
    """All the numbers, each once."""
    return tuple(dict.fromkeys(number for numbers in values for number in numbers))


BOT = click.argument("number", metavar="BOT", type=click.IntRange(1, MAX_BIGINT))


def _numbers(metavar: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    return click.argument(
        "numbers", metavar=metavar, nargs=-1, required=True, type=Numbers(1), callback=_each
    )


BOTS, KEYS = _numbers("BOT..."), _numbers("ID...")


def one_bot(numbers: Sequence[int], option: str) -> None:
    """Raises UsageError if several BOTs are named beside an option that is about one."""
    if len(numbers) > 1:
        raise click.UsageError(f"{option} is about one BOT; give only one BOT with it")


def jobs_option(verb: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Option --job, which names some jobs of one BOT."""
    return click.option(
        "--job", "jobs", type=Numbers(0), multiple=True, callback=_each, metavar="N",
        help=f"{verb} job N of one BOT, counted from 0, or 3-5 for these.  Repeatable.",
    )  # fmt: skip


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def server_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add --server and --key-file, the arguments of `connect`, to a command."""
    key_file = click.option(
        "--key-file",
        type=FILE,
        help="File that holds your key.  [default: the key in GRIDBOT_KEY, or of gridbot login]",
    )
    server = click.option(
        "--server",
        metavar="URL",
        help="URL of the server.  [default: GRIDBOT_SERVER, or that of gridbot login]",
    )
    return server(key_file(command))


def with_session(command: Callable[..., R]) -> Callable[..., R]:
    """Add --server and --key-file to a command, and pass it the session that they select."""

    @server_options
    @functools.wraps(command)
    def call(server: str | None, key_file: Path | None, **options: Any) -> R:
        with connect(server, key_file) as session:
            return command(session, **options)

    return call


def print_each(plural: str, numbers: Sequence[int], act: Act, as_json: bool) -> None:
    """Act on each number, and print each line, or one JSON document.

    That is the document of the only number, or all of them under `plural`.  An error about one
    does not keep the others from it; the first is raised at the end.
    """
    documents, errors = [], []
    for number in dict.fromkeys(numbers):
        try:
            document, line = act(number)
        except GridbotError as error:
            errors.append(error)
            continue
        documents.append(document)
        if not as_json:
            click.echo(line)
    if as_json and documents:
        print_json(documents[0] if len(numbers) == 1 else {plural: documents})
    for other in errors[1:]:
        say(f"gridbot: {other}")
    if errors:
        raise errors[0]


def print_json(document: Any) -> None:
    """Print a document to stdout, indented."""
    click.echo(json.dumps(document, indent=2))


def say(line: str) -> None:
    """Print a line for people to stderr, so that stdout stays parseable."""
    click.echo(line, err=True)


def say_away(error: ServerAway) -> None:
    """Say that the server is away and that the command goes on."""
    say(f"{error}; waiting for the server")


def table_of(fields: dict[str, Any], base: Path) -> Items | None:
    """Source of the items, removed from `fields`; None if there is none."""
    kinds: dict[str, Callable[[str], Items]] = {
        "items": lambda text: CsvItems.at(base / text),
        "each_line": lambda text: LineItems(base / text),
        "range": parse_range,
    }
    given = [name for name in kinds if name in fields]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} exclude each other; give only one of them")
    return kinds[given[0]](fields.pop(given[0])) if given else None
