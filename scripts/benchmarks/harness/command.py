"""What every measurement is: a function that returns rows, made a command of `scripts/bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from .installation import BenchFailed
from .table import show, show_lines
from .windows import Row

MILLION = 1_000_000
Measure = Callable[..., list[Row]]


def measurement(
    columns: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Measure], click.Command]:
    """Make a command, named as the function, that prints the rows and has the option `--json`.

    A row is a line with these columns, or without any a column of its own. BenchFailed ends the
    command with its message.
    """

    def decorate(measure: Measure) -> click.Command:
        name = measure.__name__

        @wraps(measure)
        def command(as_json: bool, **options: Any) -> None:
            try:
                rows = measure(**options)
            except BenchFailed as error:
                sys.exit(str(error))
            if columns:
                show_lines(name, rows, as_json, columns)
            else:
                show(name, rows, as_json)

        made = click.command(name)(command)
        made.params.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document.")
        )
        return made

    return decorate


def several(name: str, default: Sequence[int], text: str) -> Callable[[Measure], Measure]:
    """Give a measurement an option that may be repeated."""
    return click.option(name, type=click.IntRange(1), multiple=True, default=default,
                        show_default=True, help=f"{text}; may be repeated.")  # fmt: skip


def quick_option(text: str = "Only show that it works.") -> Callable[[Measure], Measure]:
    """Give a measurement the option `--quick`."""
    return click.option("--quick", is_flag=True, help=text)


def jobs_option(default: int = MILLION) -> Callable[[Measure], Measure]:
    """Give a measurement the option `--jobs`."""
    return click.option("--jobs", type=click.IntRange(1000), default=default,
                        help="Jobs in the queue.")  # fmt: skip
