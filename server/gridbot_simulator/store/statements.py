"""How a function becomes the answer to a named statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gridbot_server.storage import sql
from gridbot_simulator.store.tables import Tables

Rows = Sequence[tuple[Any, ...]]
Answer = Callable[..., "Rows | int | None"]  # rows; or how many were changed; or neither


class Statements:
    """The named statements of a file that are answered, each by a function over the tables.

    A function is called with the values of the statement, and returns its rows in the order of its
    columns; one that gives no rows may return how many it changed.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._there = sql.load(file)
        self.answers: dict[bytes, Answer] = {}
        self.names: dict[bytes, str] = {}

    def answers_to(self, name: str) -> Callable[[Answer], Answer]:
        """Register the function that follows; raises KeyError for a statement that is not there."""

        def register(answer: Answer) -> Answer:
            self.answers[self._there[name]] = answer
            self.names[self._there[name]] = name
            return answer

        return register

    def has_no_effect(self, *names: str) -> None:
        """Register statements that neither give rows nor change what decisions read."""
        for name in names:
            self.answers_to(name)(_nothing)

    @property
    def unanswered(self) -> set[str]:
        """The names of those that have no function."""
        return set(self._there) - set(self.names.values())


def listed(text: str) -> list[dict[str, Any]]:
    """The rows of a statement's JSON argument."""
    found: list[dict[str, Any]] = orjson.loads(text)
    return found


def numbers(text: str) -> list[int]:
    """The numbers of an array as PostgreSQL writes it."""
    return [int(number) for number in text[1:-1].split(",") if number]


def _nothing(_tables: Tables, **_values: object) -> None:
    return None
