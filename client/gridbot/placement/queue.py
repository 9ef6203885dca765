"""What is to be copied, how it stands, and which space is reserved; survives crashes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput
from gridbot.placement.ads import TransferRequest
from gridbot.placement.durable import sync_names
from gridbot.placement.places import DataPlace, ProtocolPair, pair_for

QUEUED, RUNNING, DONE, FAILED, REMOVED = "queued", "running", "done", "failed", "removed"
ENDED = (DONE, FAILED, REMOVED)
STATES = (QUEUED, RUNNING, *ENDED)
_WAIT_SECONDS = 30.0  # for another process that writes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS placement (
    id integer PRIMARY KEY AUTOINCREMENT,
    request text NOT NULL,
    state text NOT NULL DEFAULT 'queued',
    attempts integer NOT NULL DEFAULT 0,  -- that have failed
    error text NOT NULL DEFAULT '',
    not_before real NOT NULL DEFAULT 0,
    created real NOT NULL,
    ended real,
    bytes integer,
    sha256 text
);
CREATE INDEX IF NOT EXISTS placement_open ON placement (state, id) WHERE ended IS NULL;
CREATE TABLE IF NOT EXISTS reservation (
    id integer PRIMARY KEY AUTOINCREMENT,
    endpoint text NOT NULL,
    megabytes integer NOT NULL,
    until real NOT NULL,
    name text NOT NULL DEFAULT ''
);
"""


@dataclass(frozen=True)
class Placement:
    """One transfer and its state."""

    id: int
    request: TransferRequest
    state: str
    attempts: int
    error: str
    not_before: float
    bytes: int | None
    sha256: str | None

    @property
    def pair(self) -> ProtocolPair:
        """Protocols of the next attempt, or of the one that runs."""
        given = ProtocolPair(self.request.source.scheme, self.request.destination.scheme)
        return pair_for(self.attempts + 1, given, self.request.alternates)

    @property
    def last_pair(self) -> ProtocolPair:
        """Protocols of the attempt to which the error belongs."""
        given = ProtocolPair(self.request.source.scheme, self.request.destination.scheme)
        return pair_for(max(1, self.attempts), given, self.request.alternates)

    @property
    def endpoints(self) -> tuple[str, str]:
        """What the next attempt uses."""
        return _endpoints(self.request, self.pair)


@dataclass(frozen=True)
class SpaceReservation:
    """Space that is kept until a time, in seconds since 1970."""

    id: int
    endpoint: str
    megabytes: int
    until: float
    name: str


class PlacementQueue:
    """The queue in a file; each call is one transaction, synced before it returns.

    Several processes may add to it and look; one runs it (`serving.py`).
    """

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._open() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
        path.chmod(0o600)  # URLs may bear passwords
        sync_names(path.absolute())

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self.path, timeout=_WAIT_SECONDS)
            database.row_factory = sqlite3.Row
            database.execute("PRAGMA synchronous = FULL")
            try:
                with database:
                    yield database
            finally:
                database.close()
        except sqlite3.DatabaseError as error:
            raise BadInput(f"{self.path}: {error}") from None

    def add(self, request: TransferRequest) -> int:
        """Add a transfer and return its number."""
        with self._open() as database:
            added = database.execute(
                "INSERT INTO placement (request, created) VALUES (?, ?)",
                (json.dumps(asdict(request)), self._now()),
            )
            return int(added.lastrowid or 0)

    def all(self, states: Sequence[str] = STATES) -> list[Placement]:
        """Those in some states, in the order of their numbers."""
        with self._open() as database:
            rows = database.execute(
                "SELECT * FROM placement WHERE state IN (SELECT value FROM json_each(?))"
                " ORDER BY id",
                (json.dumps(states),),
            )
            return [_placement(row) for row in rows]

    def one(self, number: int) -> Placement:
        """The one with this number.  Raises BadInput."""
        with self._open() as database:
            row = database.execute("SELECT * FROM placement WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise BadInput(f"there is no placement {number} in {self.path}")
        return _placement(row)

    def start(self, at_once: int, per_endpoint: int) -> list[Placement]:
        """Mark as running what may begin now, oldest first, and return it.

        A destination has one copy at a time: two would write the same part.
        """
        with self._open() as database:
            running = [
                _placement(row)
                for row in database.execute("SELECT * FROM placement WHERE state = 'running'")
            ]
            load: dict[str, int] = {}
            for each in running:
                _count(load, each.endpoints)
            taken = {each.request.destination.rest for each in running}
            started: list[Placement] = []
            for row in database.execute(
                "SELECT * FROM placement WHERE state = 'queued' AND not_before <= ? ORDER BY id",
                (self._now(),),
            ):
                if len(running) + len(started) >= at_once:
                    break
                found = _placement(row)
                is_full = any(load.get(name, 0) >= per_endpoint for name in set(found.endpoints))
                if is_full or found.request.destination.rest in taken:
                    continue
                taken.add(found.request.destination.rest)
                _count(load, found.endpoints)
                started.append(found)
            for each in started:
                database.execute("UPDATE placement SET state = 'running' WHERE id = ?", (each.id,))
            return started

    def succeeded(self, number: int, size: int | None, sha256: str | None) -> None:
        """Note that one is done; what was removed meanwhile stays so."""
        self._end(number, DONE, "", size, sha256)

    def failed(self, number: int, error: str, most: int, pause: float) -> None:
        """Note a failed attempt: it is tried again after a pause, unless it was the last."""
        with self._open() as database:
            database.execute(
                "UPDATE placement SET attempts = attempts + 1, error = :error,"
                " state = CASE WHEN attempts + 1 >= :most THEN 'failed' ELSE 'queued' END,"
                " ended = CASE WHEN attempts + 1 >= :most THEN :now END,"
                " not_before = :now + :pause WHERE id = :id AND state = 'running'",
                {"error": error, "most": most, "now": self._now(), "pause": pause, "id": number},
            )

    def interrupted(self, number: int) -> None:
        """Queue one again whose attempt was no fault of its own."""
        with self._open() as database:
            database.execute(
                "UPDATE placement SET state = 'queued' WHERE id = ? AND state = 'running'",
                (number,),
            )

    def remove(self, number: int) -> Placement:
        """End one that has not ended; the attempt that runs is ended by who runs it."""
        self._end(number, REMOVED, "removed", None, None, ("queued", "running"))
        return self.one(number)

    def _end(
        self, number: int, state: str, error: str, size: int | None, sha256: str | None,
        states: tuple[str, ...] = ("running",),
    ) -> None:  # fmt: skip
        with self._open() as database:
            database.execute(
                "UPDATE placement SET state = ?, error = ?, ended = ?, bytes = ?, sha256 = ?"
                " WHERE id = ? AND state IN (SELECT value FROM json_each(?))",
                (state, error, self._now(), size, sha256, number, json.dumps(states)),
            )

    def reserve(
        self, endpoint: str, megabytes: int, seconds: float, free: int, name: str = ""
    ) -> int:
        """Keep space for a time, and return the reservation's number.

        `free` MB are there; what others keep counts.  Raises BadInput if it is not enough, or if
        the name is in use.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM reservation WHERE until <= ?", (self._now(),))
            if (
                name
                and database.execute("SELECT 1 FROM reservation WHERE name = ?", (name,)).fetchone()
            ):
                raise BadInput(f"there is a reservation with the id {name}")
            (kept,) = database.execute(
                "SELECT coalesce(sum(megabytes), 0) FROM reservation WHERE endpoint = ?",
                (endpoint,),
            ).fetchone()
            if megabytes > free - kept:
                raise BadInput(
                    f"{endpoint}: {megabytes} MB cannot be reserved: {free} MB are free,"
                    f" {kept} MB of them reserved"
                )
            added = database.execute(
                "INSERT INTO reservation (endpoint, megabytes, until, name) VALUES (?, ?, ?, ?)",
                (endpoint, megabytes, self._now() + seconds, name),
            )
            return int(added.lastrowid or 0)

    def release(self, number: int) -> None:
        """Give a reservation up.  Raises BadInput if there is none, or not any more."""
        with self._open() as database:
            gone = database.execute(
                "DELETE FROM reservation WHERE id = ? AND until > ?", (number, self._now())
            )
            if not gone.rowcount:
                raise BadInput(f"there is no reservation {number}, or it has expired")

    def reservation_named(self, name: str) -> int:
        """Number of the reservation to which its user gave this name.  Raises BadInput."""
        for each in self.reservations():
            if name and each.name == name:
                return each.id
        raise BadInput(f"there is no reservation with the id {name}, or it has expired")

    def reservations(self) -> list[SpaceReservation]:
        """Reservations that have not expired."""
        with self._open() as database:
            rows = database.execute(
                "SELECT * FROM reservation WHERE until > ? ORDER BY id", (self._now(),)
            )
            return [SpaceReservation(**dict(row)) for row in rows]


def _count(load: dict[str, int], endpoints: tuple[str, str]) -> None:
    for name in set(endpoints):
        load[name] = load.get(name, 0) + 1


def _endpoints(request: TransferRequest, pair: ProtocolPair) -> tuple[str, str]:
    source, destination = request.source.by(pair.source), request.destination.by(pair.destination)
    return source.endpoint, destination.endpoint


def _placement(row: Mapping[str, Any]) -> Placement:
    said = json.loads(row["request"])
    request = TransferRequest(
        DataPlace(**said["source"]),
        DataPlace(**said["destination"]),
        tuple(ProtocolPair(**pair) for pair in said["alternates"]),
        said["sha256"],
        said["arguments"],
    )
    return Placement(
        row["id"], request, row["state"], row["attempts"], row["error"], row["not_before"],
        row["bytes"], row["sha256"],
    )  # fmt: skip
