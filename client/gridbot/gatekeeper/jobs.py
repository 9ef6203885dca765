"""The jobs that were accepted, with their BOTs and ends, in a file; survives crashes.

A job is on the disk before its client hears of it.  Its id is the idempotency key of its BOT, so
the step between both may be repeated: before it the job is SUBMITTING, after it the BOT is known.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gridbot.api.errors import Refused
from gridbot.gatekeeper.descriptions import JobDescription
from gridbot.gatekeeper.reading import reread
from gridbot.gatekeeper.states import ENDED, ArcState, JobEnd

_WAIT_SECONDS = 30.0  # for another thread that writes
_NOTED_SECONDS = 60.0  # how often the time in service is written, or after each share of a round
_SCHEMA = """
CREATE TABLE IF NOT EXISTS job (
    id text PRIMARY KEY,
    subject text NOT NULL,  -- of the certificate whose job it is
    text text NOT NULL,  -- its description
    account text,  -- file of the key that submits it; with the next two once it is SUBMITTING
    owner text,  -- whose BOT it is
    project text,  -- fingerprint of that BOT's project
    state text NOT NULL DEFAULT 'ACCEPTED',
    is_killed integer NOT NULL DEFAULT 0,
    received integer NOT NULL DEFAULT 0,  -- how many files have come
    bot integer,
    created real NOT NULL,
    ended real,
    created_age real NOT NULL,  -- seconds in service by then
    ended_age real,
    reason text NOT NULL DEFAULT '',
    exit_code integer,
    cpu_seconds integer NOT NULL DEFAULT 0,
    wall_seconds integer NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS job_open ON job (created) WHERE ended IS NULL;
CREATE INDEX IF NOT EXISTS job_ended ON job (ended_age) WHERE ended_age IS NOT NULL;
CREATE INDEX IF NOT EXISTS job_subject ON job (subject, created);
CREATE TABLE IF NOT EXISTS service (seconds real NOT NULL);
INSERT INTO service SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM service);
"""
# All but the text, of which 10,000 jobs may have 64 KiB each.
_LISTED = (
    "id, subject, account, owner, project, state, is_killed, received, bot, created, ended,"
    " created_age, reason, exit_code, cpu_seconds, wall_seconds"
)


class JobsUnreadable(Exception):
    """The file of the jobs cannot be read or written now; this says nothing of any job."""


@dataclass(frozen=True, slots=True)
class BotOwner:
    """Whose a BOT is, where, and the file of the key that made it."""

    account: Path
    owner: str
    project: str  # fingerprint


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job as it is listed; times are seconds since 1970."""

    id: str
    subject: str
    bot_owner: BotOwner | None  # of its BOT, also if that may be there; None if there is none
    state: ArcState
    is_killed: bool
    received: int  # how many files have come, each time counted
    bot: int | None
    created: float
    ended: float | None
    created_age: float  # of the gatekeeper: how long it had been in service
    end: JobEnd

    @property
    def shown(self) -> ArcState:
        """The state that clients see."""
        return ArcState.KILLING if self.is_killed and self.state not in ENDED else self.state


@dataclass(frozen=True, slots=True)
class AcceptedJob(ListedJob):
    """A job with its description."""

    text: str

    @property
    def description(self) -> JobDescription:
        """What it asks for."""
        return _described(self.text)


@lru_cache(128)  # each file of a job that comes asks for it
def _described(text: str) -> JobDescription:
    return reread(text)


class AcceptedJobs:
    """The jobs in a file; each call is one transaction, synced before it returns.

    Each may raise JobsUnreadable.  Threads may share it.
    """

    def __init__(self, path: Path, now: Callable[[], float], ticks: Callable[[], float]) -> None:
        """`now` dates jobs, and may be set; `ticks` gives seconds of a clock that nobody sets."""
        self._path, self._now, self._ticks = path, now, ticks
        with self._open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
            self._noted = float(database.execute("SELECT seconds FROM service").fetchone()[0])
        self._born = ticks() - self._noted
        path.chmod(0o600)

    def age(self) -> float:
        """Seconds for which the gatekeeper has been in service, in all its runs."""
        return self._ticks() - self._born

    def note_age(self) -> None:
        """Let the next run know the age, roughly; for one thread."""
        age = self.age()
        if age - self._noted >= _NOTED_SECONDS:
            with self._open() as database:
                database.execute("UPDATE service SET seconds = ?", (age,))
            self._noted = age

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)
            database.row_factory = sqlite3.Row
            database.execute("PRAGMA synchronous = FULL")
            try:
                yield database
            finally:
                database.close()
        except sqlite3.Error as error:
            raise JobsUnreadable(f"{self._path}: {error}") from error

    def add(self, subject: str, texts: Sequence[str], most: int) -> list[str]:
        """Accept jobs, all or none, and return their ids.

        Raises Refused if their subject would then have more than `most`.
        """
        ids = [secrets.token_hex(16) for _ in texts]
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            query = "SELECT count(*) FROM job WHERE subject = ?"
            there = database.execute(query, (subject,)).fetchone()[0]
            if there + len(texts) > most:
                raise Refused(
                    f"{there} jobs of {subject} are here, and {len(texts)} more asked for; at most"
                    f" {most} are kept: fetch and clean some"
                )
            database.executemany(
                "INSERT INTO job (id, subject, text, created, created_age) VALUES (?, ?, ?, ?, ?)",
                [(id, subject, text, self._now(), self.age())
                 for id, text in zip(ids, texts, strict=True)],
            )  # fmt: skip
            database.execute("COMMIT")
        return ids

    def of(self, subject: str) -> list[ListedJob]:
        """All jobs of a subject, oldest first."""
        return self._list("subject = ? ORDER BY created", subject)

    def one(self, subject: str, id: str) -> AcceptedJob | None:
        """A job of a subject; None if there is none, also if it is another's."""
        with self._open() as database:
            query = f"SELECT {_LISTED}, text FROM job WHERE subject = ? AND id = ?"  # noqa: S608
            row = database.execute(query, (subject, id)).fetchone()
        return AcceptedJob(*_values(row), row["text"]) if row else None

    def unended(self) -> list[ListedJob]:
        """Those that have not ended, oldest first."""
        return self._list("ended IS NULL ORDER BY created")

    def ended_before(self, age: float, most: int) -> list[ListedJob]:
        """Those that ended before an age, at most so many."""
        return self._list("ended_age < ? LIMIT ?", age, most)

    def ids(self) -> set[str]:
        """Of all jobs."""
        with self._open() as database:
            return {row["id"] for row in database.execute("SELECT id FROM job")}

    @contextmanager
    def awaiting(self, id: str) -> Iterator[None]:
        """Hold a job that awaits its files as it is, while one is put into its place; counts it.

        All changes of jobs wait meanwhile.  Raises Refused if the job awaits no files any more.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            query = "SELECT state FROM job WHERE id = ?"
            found = database.execute(query, (id,)).fetchone()
            if found is None or found["state"] != ArcState.ACCEPTED:
                raise Refused("the job takes no more files")
            yield
            database.execute("UPDATE job SET received = received + 1 WHERE id = ?", (id,))
            database.execute("COMMIT")

    def move(self, id: str, state: ArcState) -> None:
        """Note that a job that has not ended is in a state."""
        self._change("state = ?", id, state)

    def submitting(self, id: str, bot_owner: BotOwner) -> None:
        """Note who is about to make a job's BOT."""
        self._change(
            "state = 'SUBMITTING', account = ?, owner = ?, project = ?",
            id, str(bot_owner.account), bot_owner.owner, bot_owner.project,
        )  # fmt: skip

    def unsubmitted(self, id: str) -> None:
        """Note that a job that was SUBMITTING has no BOT, and may be anybody's."""
        self._change("state = 'ACCEPTED', account = NULL, owner = NULL, project = NULL", id)

    def submitted(self, id: str, bot: int) -> None:
        """Note the BOT that a job has become."""
        self._change("bot = ?, state = 'QUEUING'", id, bot)

    def kill(self, id: str) -> None:
        """Note that a job is to end."""
        self._change("is_killed = 1", id)

    def end(self, id: str, end: JobEnd) -> None:
        """Note how a job ended; the first end stays."""
        self._change(
            "state = ?, reason = ?, exit_code = ?, cpu_seconds = ?, wall_seconds = ?, ended = ?,"
            " ended_age = ?",
            id, end.state, end.reason, end.exit_code, end.cpu_seconds, end.wall_seconds,
            self._now(), self.age(),
        )  # fmt: skip

    def remove(self, id: str) -> None:
        """Forget a job that has ended."""
        with self._open() as database:
            database.execute("DELETE FROM job WHERE id = ? AND ended IS NOT NULL", (id,))

    def _change(self, what: str, id: str, *values: object) -> None:
        with self._open() as database:
            database.execute(
                f"UPDATE job SET {what} WHERE id = ? AND ended IS NULL",  # noqa: S608 (our texts)
                (*values, id),
            )

    def _list(self, which: str, *values: object) -> list[ListedJob]:
        with self._open() as database:
            query = f"SELECT {_LISTED} FROM job WHERE {which}"  # noqa: S608
            return [ListedJob(*_values(row)) for row in database.execute(query, values)]


def _values(row: sqlite3.Row) -> tuple[
    str, str, BotOwner | None, ArcState, bool, int, int | None, float, float | None, float, JobEnd
]:  # fmt: skip
    state, account = ArcState(row["state"]), row["account"]
    bot_owner = BotOwner(Path(account), row["owner"], row["project"]) if account else None
    numbers = row["exit_code"], row["cpu_seconds"], row["wall_seconds"]
    return (
        row["id"], row["subject"], bot_owner, state, bool(row["is_killed"]),
        row["received"], row["bot"], row["created"], row["ended"], row["created_age"],
        JobEnd(state, row["reason"], *numbers),
    )  # fmt: skip
