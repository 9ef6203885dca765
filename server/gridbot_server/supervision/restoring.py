"""Restores: a backup takes the place of what is there.

Theory of operation
===================

A restore makes everything anew beside what is there, and then moves both: the old aside, the new in
its place.  One that was killed before that changed nothing.  The restored server has lost what came
after its backup, and its clients have not: so its epoch is another one, and numbers that were
given to BOTs, clients and hosts since are given to nobody.  What the store that was there knows to
be revoked or banned is so again, and its content is kept: replicas that were running bring answers
whose files they had sent before (`storage/store_record.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gridbot_server.settings import Settings
from gridbot_server.storage import db, sql, store_record
from gridbot_server.storage.disk import make_directory
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import fetch, fetch_value, fetch_values
from gridbot_server.supervision.archive import (
    DUMP,
    KEPT,
    MEMBER,
    ArchiveError,
    Tell,
    objects_of,
    program_of,
    unpack,
)
from gridbot_server.supervision.lock_file import StartError
from gridbot_server.supervision.postgres import Postgres
from gridbot_server.supervision.postgres_binaries import run_program

SQL = sql.load("archive.sql")

_BUILDING, _ASIDE = "restoring", "before-restore-"
# What a restore puts in the place of the old: all else is made anew by the next start.
_RESTORED = ("postgresql", "files", *KEPT)


class LostContent(NamedTuple):
    """A file that the database names and the store does not have."""

    sha256: str
    bytes: int
    owners: Sequence[str]  # who sent it, or had it as a result
    bots: Sequence[int]  # of whose results it is


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    made_at: str  # when the backup began, ISO 8601
    bots: int
    files: int
    aside: str  # folder with what was there before; "" if nothing was
    missing: Sequence[LostContent] = ()  # what the database names and the store does not have


def restore(settings: Settings, archive: Path, tell: Tell) -> Restored:
    """Put a backup in the place of a stopped server; the caller holds its lock.

    What was there is moved aside.  A database that is named by a DSN must be empty.  Raises
    ArchiveError before anything was changed.
    """
    data = settings.data
    building = data / _BUILDING
    if building.exists():
        shutil.rmtree(building)  # of a restore that was killed
    make_directory(data)
    make_directory(building)
    try:
        tell("reading")
        made_at, files = unpack(archive, building)
        chosen = _settings_of(building, settings)
        tell("database")
        with _database(chosen, building) as dsn:
            bots, is_own = _load(dsn, building / DUMP, store := chosen.open_store())
            new = building / settings.files.name
            if is_own and chosen.files_url is None:
                _keep_content(settings.files, new)
            tell("files")
            missing = _missing(dsn, objects_of(store) if chosen.files_url else _content_of(new))
        replace(chosen, data=building).save()
    except BaseException:
        shutil.rmtree(building)
        raise
    (building / DUMP).unlink()  # from here on it has begun
    if chosen.files_url:
        store_record.part(store)
    aside = _exchange(data, building)
    settings.buffer_path.unlink(missing_ok=True)
    return Restored(made_at, bots, files, str(aside) if aside else "", missing)


def _settings_of(building: Path, wanted: Settings) -> Settings:
    """The settings of the backup, but in the folder of this server, and with its database."""
    kept = building / "settings.json"
    found = Settings.load(building) if kept.exists() else wanted
    return replace(found, data=wanted.data, dsn=wanted.dsn or found.dsn)


@contextmanager
def _database(settings: Settings, building: Path) -> Iterator[str]:
    """An empty database: a new embedded one below `building`, or that of the settings."""
    if settings.dsn:
        with db.connect(settings.dsn, "gridbot-restore", autocommit=True) as conn:
            if tables := fetch_value(conn, int, SQL["tables"]):
                raise ArchiveError(
                    f"the database holds {tables} tables already: name an empty one with --dsn"
                )
        yield settings.dsn
        return
    postgres = Postgres(building)
    try:
        postgres.wait_ready(postgres.start(building / "postgresql.log"))
        yield postgres.dsn
    finally:
        postgres.stop()


def _load(dsn: str, dump: Path, store: Store) -> tuple[int, bool]:
    """Fill the database; make it another one than that of the backup.

    Returns the number of its BOTs, and whether the store that was there before was its own.
    """
    with db.connect(dsn, "gridbot-restore", autocommit=True) as conn:
        major = conn.info.server_version // 10_000
    options = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    program, name, secret = program_of("pg_restore", major, dsn)
    run_program([program, *options, f"--dbname={name}", dump], None, secret=secret)
    with db.connect(dsn, "gridbot-restore", autocommit=True) as conn:
        db.migrate(conn)  # the backup may be of an earlier release
        with conn.transaction():
            is_own = store_record.begin_anew(conn, store)
        return fetch_value(conn, int, SQL["bots"]) or 0, is_own


def _keep_content(old: Path, new: Path) -> None:
    """Let the new store hold what only the old one has; what nobody needs goes as ever."""
    for folder in sorted(old.glob("[0-9a-f][0-9a-f]")):
        make_directory(new / folder.name, 0o700)
        for path in folder.iterdir():
            copy = new / folder.name / path.name
            if MEMBER.fullmatch(f"files/{folder.name}/{path.name}") and not copy.exists():
                os.link(path, copy, follow_symlinks=False)


def _content_of(store: Path) -> list[str]:
    """The hashes of all content of a folder."""
    return [f"{path.parent.name}{path.name}" for path in store.glob("[0-9a-f][0-9a-f]/*")]


def _missing(dsn: str, there: Iterable[str]) -> list[LostContent]:
    """Find what the database names, and is not there."""
    with db.connect(dsn, "gridbot-restore", autocommit=True) as conn:
        named = set(fetch_values(conn, str, SQL["named_files"]))
        lost = sorted(named.difference(there))
        return fetch(conn, LostContent, SQL["whose_content"], {"hashes": lost}) if lost else []


def _exchange(data: Path, building: Path) -> Path | None:
    """Move the old aside and the new in its place; return where the old is, None if none was."""
    old = [data / name for name in _RESTORED if (data / name).exists()]
    aside = data / f"{_ASIDE}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    if old:
        make_directory(aside, 0o700)
    _move(old, aside)
    _move([building / name for name in _RESTORED if (building / name).exists()], data)
    shutil.rmtree(building)
    return aside if old else None


def _move(paths: Iterable[Path], folder: Path) -> None:
    for path in paths:
        path.rename(folder / path.name)


def refuse_half_restored(settings: Settings) -> None:
    """Raise StartError where a restore was killed when it had begun to move things."""
    building = settings.data / _BUILDING
    if building.exists() and not (building / DUMP).exists():
        raise StartError(
            f"a restore in {settings.data} was cut off: run gridbot server restore again; what was"
            f" there before is in {_ASIDE}*"
        )


def move(settings: Settings, target: Path) -> None:
    """Move a stopped server's folder; the caller holds its lock.  Raises ArchiveError."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ArchiveError(f"{target} is there already, and is not empty")
    make_directory(target.parent)
    if settings.data.stat().st_dev != target.parent.stat().st_dev:
        raise ArchiveError(
            f"{target} is on another file system: gridbot server backup FILE, and then"
            f" gridbot server restore FILE --data {target}"
        )
    settings.data.rename(target)
    settings.buffer_path.unlink(missing_ok=True)
