"""ReplicaSlot: the directory of one replica with its assignment, run record and report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gridbot_client.boot import boot_id, since_boot
from gridbot_client.filesystem import sync_directory
from gridbot_client.protocol.messages import (
    Assignment,
    ProtocolError,
    ReplicaId,
    Report,
    SignedManifest,
    WorkReply,
    WorkRequest,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from gridbot_client.storage import read_json, write_atomically
from gridbot_client.work import trees

_MOST_SPARE = 256  # folders of slots
_WORK = "work"


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time that a later process can compare with its own."""

    boot: str
    clock: float  # seconds since boot, sleep included
    wall: float

    @classmethod
    def now(cls) -> Moment:
        """Current moment."""
        return cls(boot_id(), since_boot(), time.time())

    def to_json(self) -> bytes:
        """A JSON object of its fields."""
        fields = {"boot": self.boot, "clock": self.clock, "wall": self.wall}
        return json.dumps(fields).encode()

    def elapsed(self, now: Moment) -> float:
        """Seconds from this moment to `now`; within one boot independent of clock changes."""
        if self.boot == now.boot:
            return now.clock - self.clock
        return max(0.0, now.wall - self.wall)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Number of starts of a replica, and the leader of its process group."""

    starts: int = 0
    pid: int = 0
    created: float = 0.0  # start time of that process: pids are used again
    place: str = ""  # folder in which it runs; empty: the slot's own


class ReplicaSlot:
    """The directory of one replica; removed once its report is acknowledged."""

    def __init__(self, path: Path, id: ReplicaId) -> None:
        self.path = path
        self.id = id
        self.work = path / _WORK
        self.stdout = path / "stdout"
        self.stderr = path / "stderr"
        self._assignment = path / "assignment.json"
        self._run = path / "run.json"
        self._report = path / "report.json"

    def save_assignment(self, assignment: Assignment, manifest: SignedManifest) -> None:
        """Save the assignment.  Not synced to disk, because the server sends lost ones again."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        reply = WorkReply(0, 0.0, assignments=(assignment,), manifests=_one(assignment, manifest))
        received = Moment.now().to_json()
        content = b'{"received":%b,"reply":%b}' % (received, encode_reply(reply))
        write_atomically(self._assignment, content, durable=False)

    def assignment(self) -> tuple[Assignment, SignedManifest] | None:
        """Saved assignment; None if the files are corrupt, then the server sends it again.

        After a crash of the machine there may be those of a replica that had the folder before.
        """
        try:
            reply = decode_reply(json.dumps((read_json(self._assignment) or {})["reply"]).encode())
            (assignment,) = reply.assignments
            manifest = reply.manifests[assignment.manifest]
        except (OSError, ProtocolError, ValueError, KeyError):
            return None
        return (assignment, manifest) if assignment.id == self.id else None

    def age_seconds(self) -> float:
        """Seconds since the assignment was received."""
        raw = read_json(self._assignment) or {}
        try:
            return Moment(**raw["received"]).elapsed(Moment.now())
        except (KeyError, TypeError):
            return 0.0

    def run_record(self) -> RunRecord:
        """Saved run record."""
        try:
            return RunRecord(**(read_json(self._run) or {}))
        except TypeError:
            return RunRecord()

    def save_run(self, record: RunRecord) -> None:
        """Save a start before the process exists, so that a start that kills the client counts."""
        write_atomically(self._run, json.dumps(asdict(record)).encode(), durable=False)

    def place(self) -> ReplicaSlot:
        """Where its program runs: folders that other replicas may have had, or its own."""
        found = self.run_record().place
        return ReplicaSlot(Path(found), self.id) if found else self

    def forget_runs(self) -> None:
        """Delete the run record after an orderly stop, which is not the replica's fault."""
        self._run.unlink(missing_ok=True)

    @property
    def is_finished(self) -> bool:
        """True if there is a report."""
        return self._report.exists()

    @property
    def was_started(self) -> bool:
        """True if a process was started and not stopped orderly."""
        return self._run.exists()

    def started_at(self) -> float | None:
        """When its process was started, in seconds since 1970; None if it was not."""
        try:
            return self._run.stat().st_mtime
        except FileNotFoundError:
            return None

    def sync(self) -> None:
        """Sync the assignment to disk, and the slot's name."""
        with self._assignment.open("rb") as file:
            os.fsync(file.fileno())
        sync_directory(self.path.parent)

    def save_report(self, report: Report, *, durable: bool) -> None:
        """Save the report until the server acknowledges it; synced to disk if it is `durable`."""
        body = encode_request(WorkRequest("", 0, {}, 0, (), (report,)))
        write_atomically(self._report, body, durable=durable)

    def report(self) -> Report | None:
        """Saved report; None if there is none or it is corrupt, then the replica runs again."""
        try:
            (report,) = decode_request(self._report.read_bytes()).reports
        except (OSError, ProtocolError, ValueError):
            return None
        return report if report.id == self.id else None

    def forget_report(self) -> None:
        """Delete the report; then the replica has not ended.  Raises OSError."""
        self._report.unlink(missing_ok=True)

    def reset(self) -> None:
        """Remove files of an earlier start, so that the next one has a clean slot."""
        self.stdout.unlink(missing_ok=True)
        self.stderr.unlink(missing_ok=True)
        temporary = self.work / "tmp"
        if not (trees.is_pristine(self.work, ["tmp"]) and trees.is_pristine(temporary, [])):
            trees.remove(self.work)
            self.work.mkdir()
            temporary.mkdir()

    def remove(self) -> None:
        """Remove the slot, its assignment first, so that half a slot is not taken for a whole."""
        self._assignment.unlink(missing_ok=True)
        trees.remove(self.path)

    def vacate(self) -> None:
        """Remove all that is in the slot but its folders.

        Raises OSError, also where the task put something else, such as a link, in their place.
        """
        self._assignment.unlink(missing_ok=True)
        for name in os.listdir(self.path):
            if name != self.work.name:
                os.unlink(self.path / name)
        if os.path.lexists(self.work):
            trees.clear(self.work, ("tmp",))


class SpareFolders:
    """Folders of slots that have served, for others.

    A file system with a journal may wait for the disk whenever a folder goes, and each slot has
    three.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        for found in path.iterdir():  # a crash of the machine may have brought something back
            if os.listdir(found) != [_WORK]:
                trees.remove(found)
        self._found = sorted(path.iterdir())
        self._made = max((int(found.name) for found in self._found), default=0)

    def furnish(self, slot: ReplicaSlot) -> None:
        """Give folders to a new slot, if there are any."""
        if self._found and not slot.path.exists():
            self._found.pop().rename(slot.path)

    def take_back(self, slot: ReplicaSlot) -> None:
        """End a slot; keep its folders, unless its task left them in disorder."""
        if len(self._found) >= _MOST_SPARE:
            slot.remove()
            return
        self._made += 1
        folder = self._path / str(self._made)
        try:
            slot.vacate()
            slot.path.rename(folder)
        except OSError:
            slot.remove()
        else:
            self._found.append(folder)


def slot_of(slots: Path, id: ReplicaId) -> ReplicaSlot:
    """ReplicaSlot of a replica; it need not exist."""
    return ReplicaSlot(slots / str(id), id)


def slots_in(slots: Path) -> Iterator[ReplicaSlot]:
    """Yield all slots, oldest assignment first."""
    found: list[tuple[float, ReplicaSlot]] = []
    for path in slots.iterdir():
        with suppress(ValueError, TypeError, FileNotFoundError):  # spare, or gone meanwhile
            slot = ReplicaSlot(path, ReplicaId(*(int(part) for part in path.name.split("-"))))
            found.append((path.stat().st_mtime, slot))
    yield from (slot for _, slot in sorted(found, key=lambda item: item[0]))


def _one(assignment: Assignment, manifest: SignedManifest) -> Mapping[str, SignedManifest]:
    return {assignment.manifest: manifest}
