"""What the constructor must not forget, in one SQLite file: submissions, pilots, operators' wishes.

Each submission is written down before it is made and again after; whatever a crash leaves between
the two is found at the next look by its tag (see reconcile.py).
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import string
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from gridbot.api.errors import GridbotError
from gridbot_client.storage import held
from gridbot_overlay.decide.model import Pilot, PilotState
from gridbot_overlay.decide.money import cost

_KEPT_SECONDS = 7 * 86_400.0
_BUSY_SECONDS = 20.0
# With its prefix a tag has 15 characters, as many as the oldest PBS takes: 36**6 tags are left.
_TAG_LENGTH = 6
_TAG_CHARACTERS = string.ascii_lowercase + string.digits


def _queries() -> dict[str, str]:
    text = resources.files(__package__).joinpath("store.sql").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split("-- name: ")[1:])
    return {name.strip(): body for name, _, body in blocks}


SQL = _queries()
_COLUMNS = tuple(field.name for field in fields(Pilot))
_SAVE = (
    'INSERT OR REPLACE INTO pilot ("' + '", "'.join(_COLUMNS) + '")'  # noqa: S608  # our own names
    f" VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
)


class ConstructorRunning(GridbotError):
    """Another constructor runs on the same folder."""


@dataclass(frozen=True, slots=True)
class GridRecord:
    """What an operator said of a grid."""

    drained: str = ""  # "", "finish": what runs may end, "now": it may not
    resumed_at: float = 0.0  # failures before are forgiven


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """What an operator said of a grid at the server."""

    number: int  # a later one has a greater
    grid: str
    drained: str  # as in GridRecord


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """One submission as it is written down before it is made."""

    tag: str
    grid: str
    submitted_at: float
    token: int  # its number at the server
    why: str


class PilotStore:
    """The overlay's memory.  Every method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._db.row_factory = sqlite3.Row
        self._db.create_function("cost", 2, cost, deterministic=True)

    @classmethod
    def open(cls, folder: Path) -> PilotStore:
        """Open the file in the overlay's folder, and make both when they are not there."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "overlay.db"
        path.touch(mode=0o600)
        store = cls(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None))
        store._db.execute("PRAGMA journal_mode = WAL")
        store._db.execute("PRAGMA synchronous = FULL")
        with store._transaction() as db:
            _migrate(db, path)
            if db.execute(SQL["instance"]).fetchone() is None:
                db.execute(SQL["begin"], {"instance": secrets.token_hex(3)})
        return store

    def copy(self) -> PilotStore:
        """Return a copy in memory, to try things on."""
        copied = sqlite3.connect(":memory:", isolation_level=None)
        self._db.backup(copied)
        return PilotStore(copied)

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    @property
    def prefix(self) -> str:
        """What the tags of all our pilots begin with, and nobody else's."""
        row = self._db.execute(SQL["instance"]).fetchone()
        return _prefix(row["instance"])

    def new_tag(self) -> str:
        """Return a tag that no submission ever had; short, and letters and digits only.

        It is random, so that neither a copy of this file nor one that was restored from a backup
        gives a tag again.
        """
        characters = (secrets.choice(_TAG_CHARACTERS) for _ in range(_TAG_LENGTH))
        return self.prefix + "".join(characters)

    def submitting(self, submission: SubmissionRecord, pilots: Iterable[Pilot]) -> None:
        """Write a submission down before it is made."""
        with self._transaction() as db:
            db.execute(SQL["add_submission"], asdict(submission))
            _save(db, pilots)

    def save(self, pilots: Iterable[Pilot]) -> None:
        """Write pilots down as they are known now."""
        with self._transaction() as db:
            _save(db, pilots)

    def pilots(self, grid: str, since: float) -> list[Pilot]:
        """Return a grid's live pilots and those that ended after `since`, the oldest first."""
        return [_pilot(row) for row in self._rows("pilots", grid=grid, since=since)]

    def grids_of(self, tags: Collection[str]) -> dict[str, str]:
        """Return, by tag, the grid of each of these submissions that is known."""
        rows = self._rows("grids_of", tags=json.dumps(sorted(tags)))
        return {row["tag"]: row["grid"] for row in rows}

    def grids_with_pilots(self) -> set[str]:
        """Return the grids with pilots that live, or of whose end the server has not heard."""
        return {row["grid"] for row in self._rows("grids")}

    def grid(self, name: str) -> GridRecord:
        """Return what an operator said of a grid."""
        rows = self._rows("grid", name=name)
        return GridRecord(**dict(rows[0])) if rows else GridRecord()

    def used_hours(self, grid: str) -> float:
        """Return the pilot-hours of all pilots that ever ended in the grid."""
        return float(self._rows("used_hours", grid=grid)[0][0])

    def spent(self, grid: str, since: float) -> float:
        """Return the money that pilots cost which were submitted `since` and have ended."""
        return float(self._rows("spent", grid=grid, since=since)[0][0])

    def totals(self, grid: str) -> dict[str, float]:
        """Return jobs, failures, hours and wasted_hours of the last days' pilots."""
        return dict(self._rows("totals", grid=grid)[0])

    def note(self, now: float, grids: Mapping[str, str], bots: Mapping[int, str]) -> None:
        """Remember what the look at `now` concluded of grids and of BOTs that none serves."""
        found = [("grid", name, text) for name, text in grids.items()]
        found += [("bot", str(number), text) for number, text in bots.items()]
        with self._transaction() as db:
            db.execute(SQL["no_notes"])
            for kind, subject, text in found:
                values = {"kind": kind, "subject": subject, "text": text, "looked_at": now}
                db.execute(SQL["add_note"], values)

    def notes(self, kind: str) -> dict[str, tuple[str, float]]:
        """Return what the last look concluded, and when, by "grid" or "bot"."""
        rows = self._rows("notes", kind=kind)
        return {row["subject"]: (row["text"], row["looked_at"]) for row in rows}

    def drain(self, grid: str, how: str) -> None:
        """Remember that a grid gets no more pilots; `how` as in GridRecord."""
        self._do("drain", name=grid, drained=how)

    def resume(self, grid: str, now: float) -> None:
        """Remember that a grid is to be used again, and forgive what went wrong there."""
        self._do("resume", name=grid, now=now)

    @property
    def heard(self) -> int:
        """The number of the last order that was followed."""
        return int(self._db.execute(SQL["heard"]).fetchone()[0])

    def follow(self, order: DrainOrder, now: float) -> None:
        """Do what an operator said at the server, once."""
        with self._transaction() as db:
            if order.drained:
                db.execute(SQL["drain"], {"name": order.grid, "drained": order.drained})
            else:
                db.execute(SQL["resume"], {"name": order.grid, "now": now})
            db.execute(SQL["hear"], {"number": order.number})

    def idle_tokens(self) -> list[tuple[str, int]]:
        """Return (tag, token) of submissions whose pilots have all ended."""
        return [(row["tag"], row["token"]) for row in self._rows("idle_tokens")]

    def tokens_of(self, grid: str) -> list[tuple[str, int]]:
        """Return (tag, token) of all keys that pilots of the grid may still have."""
        return [(row["tag"], row["token"]) for row in self._rows("tokens_of_grid", grid=grid)]

    def revoked(self, tag: str) -> None:
        """Remember that a submission's key is revoked."""
        self._do("revoked", tag=tag)

    def forget(self, now: float) -> None:
        """Drop pilots that ended a week ago; the hours and the money that they used stay known."""
        with self._transaction() as db:
            for name in ("keep_hours", "keep_money", "forget_pilots", "forget_submissions"):
                values = {} if name == "forget_submissions" else {"before": now - _KEPT_SECONDS}
                db.execute(SQL[name], values)

    def _rows(self, query: str, /, **values: object) -> list[sqlite3.Row]:
        return self._db.execute(SQL[query], values).fetchall()

    def _do(self, query: str, /, **values: object) -> None:
        with self._transaction() as db:
            db.execute(SQL[query], values)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the overlay's folder; ConstructorRunning when another constructor runs on it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    busy = ConstructorRunning(f"another constructor runs on {folder}")
    with held(folder / "lock", lambda: busy):
        yield


def is_held(folder: Path) -> bool:
    """Tell whether a constructor runs on the overlay's folder."""
    try:
        with only_one(folder):
            return False
    except ConstructorRunning:
        return True


def _prefix(instance: str) -> str:
    return f"gb{instance}n"


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file to the schema that we know, whatever release it is of; only ever forward."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    known = [name for name in SQL if name.startswith("migration ")]
    if version > len(known):
        raise GridbotError(
            f"{path} is of a newer release (schema {version}, this one knows {len(known)}):"
            " upgrade gridbot here, or name another folder with --data"
        )
    for name in known[version:]:
        _run_all(db, SQL[name])
    db.execute(f"PRAGMA user_version = {len(known)}")


def _run_all(db: sqlite3.Connection, script: str) -> None:
    """Run several statements within the transaction; executescript would end it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def _save(db: sqlite3.Connection, pilots: Iterable[Pilot]) -> None:
    db.executemany(_SAVE, map(_row, pilots))


def _row(pilot: Pilot) -> dict[str, Any]:
    return {**asdict(pilot), "owners": json.dumps(pilot.owners), "state": str(pilot.state)}


def _pilot(row: sqlite3.Row) -> Pilot:
    values = dict(row)
    return Pilot(
        **{
            **values,
            "owners": tuple(json.loads(values["owners"])),
            "state": PilotState(values["state"]),
            "has_joined": bool(values["has_joined"]),
            "has_held": bool(values["has_held"]),
            "is_settled": bool(values["is_settled"]),
            "is_logged": bool(values["is_logged"]),
        }
    )
