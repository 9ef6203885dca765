"""The state of a master, in one SQLite file: its tasks, and what it has counted and found."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from gridbot.api.errors import BadInput


def _queries() -> dict[str, str]:
    text = resources.files(__package__).joinpath("state.sql").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split("-- name: ")[1:])
    return {name.strip(): body for name, _, body in blocks}


SQL = _queries()
_VERSION = 1


class ListedTask(NamedTuple):
    """A task, and its number in the list."""

    id: int
    content: Any


class WorkList:
    """Tasks in the order of their keys, least first; equal keys in the order of their coming.

    Changes are made within `transaction`: all of them, or none.  One process may have it open.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        try:
            # Nobody else reads or writes it; the lock ends with the process, however that ends.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            with self.transaction():
                (version,) = self._db.execute("PRAGMA user_version").fetchone()
                if not version:
                    for statement in SQL["schema"].split(";\n"):
                        self._db.execute(statement)
        except sqlite3.OperationalError as error:
            self._db.close()
            raise BadInput(f"{path}: {error}; does another master use it?") from None
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise BadInput(f"{path}: {error}") from None
        if version not in (0, _VERSION):
            self._db.close()
            raise BadInput(f"{path}: version {version}; this GridBot reads {_VERSION}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, or nothing of it if that raises."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add(self, content: object, key: float) -> None:
        """List a task.  Raises BadInput for what JSON does not hold."""
        self._run("add", key=key, content=json_text(content))

    def best(self, limit: int) -> list[ListedTask]:
        """The first tasks of the list."""
        rows = self._run("best", limit=limit)
        return [ListedTask(row["id"], json.loads(row["content"])) for row in rows]

    def least_key(self) -> float | None:
        """Key of the first task of the list; None if it is empty."""
        row = self._run("least_key").fetchone()
        return None if row is None else row["key"]

    def send(self, task: int, job: int, item: Mapping[str, str]) -> None:
        """Make a listed task the job with this number, appended as `item`."""
        self._run("sent", id=task, job=job, item=json.dumps(item))

    def items_from(self, job: int) -> list[dict[str, str]]:
        """Items of the jobs from that number on, in order."""
        return [json.loads(row["item"]) for row in self._run("jobs_from", job=job)]

    def of_job(self, job: int) -> ListedTask | None:
        """The task of a job; None if that has ended already."""
        row = self._run("of_job", job=job).fetchone()
        if row is None:
            return None
        return ListedTask(row["id"], json.loads(row["content"]))

    def list_again(self, task: int) -> None:
        """Let a task whose job has ended be made another job."""
        self._run("listed_again", id=task)

    def remove(self, task: int) -> None:
        """Let a task be over."""
        self._run("remove", id=task)

    def remove_worse(self, key: float) -> int:
        """Remove listed tasks with a greater key, and let such jobs be unwanted; return how many.

        The number is of those that were listed.
        """
        self._run("unwant_worse", key=key)
        return self._run("remove_worse", key=key).rowcount

    def unwanted(self) -> list[int]:
        """Numbers of jobs that are to be cancelled, if no host has them."""
        return [row["job"] for row in self._run("unwanted")]

    def asked(self) -> None:
        """Write down that the server was asked to cancel those."""
        self._run("asked")

    def counts(self) -> tuple[int, int]:
        """How many tasks are listed, and how many are jobs."""
        row = self._run("counts").fetchone()
        return row["listed"], row["sent"]

    def facts(self) -> dict[str, Any]:
        """What was kept under names beside the tasks."""
        return {row["name"]: json.loads(row["value"]) for row in self._run("facts")}

    def keep(self, facts: Mapping[str, object]) -> None:
        """Keep JSON values under names."""
        values: Sequence[Mapping[str, str]] = [
            {"name": name, "value": json_text(value)} for name, value in facts.items()
        ]
        self._db.executemany(SQL["set_fact"], values)

    def _run(self, name: str, **values: object) -> sqlite3.Cursor:
        return self._db.execute(SQL[name], values)


def json_text(value: object) -> str:
    """A value as JSON.  Raises BadInput."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a master keeps and sends JSON alone: {error}") from None
