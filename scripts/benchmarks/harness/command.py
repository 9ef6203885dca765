"""What every measurement is: a function that returns rows, made a command of `scripts/bench`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

from .installation import BenchFailed
from .table import show, show_lines
from .windows import Row

MILLION = 1_000_000
Measure = Callable[..., list[Row]]
LongMeasure = Callable[..., Iterator[list[Row]]]
AnyMeasure = TypeVar("AnyMeasure", Measure, LongMeasure)


def measurement(
    columns: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Measure | LongMeasure], click.Command]:
    """Make a command, named as the function, that prints the rows and has the option `--json`.

    A row is a line with these columns, or without any a column of its own. BenchFailed ends the
    command with its message. A long measurement yields what it has so far again and again: the
    last is printed, also when the measurement fails or is interrupted.
    """

    def decorate(measure: Measure | LongMeasure) -> click.Command:
        name = measure.__name__

        @wraps(measure)
        def command(as_json: bool, **options: Any) -> None:
            rows: list[Row] | None = None
            try:
                found = measure(**options)
                for so_far in [found] if isinstance(found, list) else found:
                    rows = so_far
            except BenchFailed as error:
                sys.exit(str(error))
            finally:
                if rows is not None and columns:
                    show_lines(name, rows, as_json, columns)
                elif rows is not None:
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


def quick_option(text: str = "Only show that it works.") -> Callable[[AnyMeasure], AnyMeasure]:
    """Give a measurement the option `--quick`."""
    return click.option("--quick", is_flag=True, help=text)


def jobs_option(default: int = MILLION) -> Callable[[Measure], Measure]:
    """Give a measurement the option `--jobs`."""
    return click.option("--jobs", type=click.IntRange(1000), default=default,
                        help="Jobs in the queue.")  # fmt: skip
