"""ReplicaSlot: the directory of one replica with its assignment, run record and report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

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

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time that a later process can compare with its own."""

    boot: str
    clock: float  # seconds since boot, sleep included
    wall: float

    @classmethod
    def now(cls) -> Moment:
        """Current moment."""
        return cls(_boot(), since_boot(), time.time())

    def elapsed(self, now: Moment) -> float:
        """Seconds from this moment to `now`; within one boot independent of clock changes."""
        if self.boot == now.boot:
            return now.clock - self.clock
        return max(0.0, now.wall - self.wall)


def since_boot() -> float:
    """Seconds since boot, on a monotonic clock that includes sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Number of starts of a replica, and the leader of its process group."""

    starts: int = 0
    pid: int = 0
    created: float = 0.0  # start time of that process: pids are used again


class ReplicaSlot:
    """The directory of one replica; removed once its report is acknowledged."""

    def __init__(self, path: Path, id: ReplicaId) -> None:
        self.path = path
        self.id = id
        self.work = path / "work"
        self.stdout = path / "stdout"
        self.stderr = path / "stderr"
        self._assignment = path / "assignment.json"
        self._received = path / "received.json"
        self._run = path / "run.json"
        self._report = path / "report.json"

    def save_assignment(self, assignment: Assignment, manifest: SignedManifest) -> None:
        """Save the assignment.  Not synced to disk, because the server sends lost ones again."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        received = json.dumps(asdict(Moment.now())).encode()
        write_atomically(self._received, received, durable=False)
        reply = WorkReply(0, 0.0, assignments=(assignment,), manifests=_one(assignment, manifest))
        write_atomically(self._assignment, encode_reply(reply), durable=False)

    def assignment(self) -> tuple[Assignment, SignedManifest] | None:
        """Saved assignment; None if the files are corrupt, then the server sends it again."""
        try:
            reply = decode_reply(self._assignment.read_bytes())
            (assignment,) = reply.assignments
            return assignment, reply.manifests[assignment.manifest]
        except (OSError, ProtocolError, ValueError, KeyError):
            return None

    def age_seconds(self) -> float:
        """Seconds since the assignment was received."""
        raw = read_json(self._received) or {}
        try:
            return Moment(**raw).elapsed(Moment.now())
        except TypeError:
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

    def save_report(self, report: Report) -> None:
        """Save the report durably, until the server acknowledges it."""
        write_atomically(self._report, encode_request(WorkRequest("", 0, {}, 0, (), (report,))))

    def report(self) -> Report | None:
        """Saved report; None if there is none or it is corrupt, then the replica runs again."""
        try:
            (report,) = decode_request(self._report.read_bytes()).reports
        except (OSError, ProtocolError, ValueError):
            return None
        return report

    def reset(self) -> None:
        """Remove files of an earlier start, so that the next one has a clean slot."""
        trees.remove(self.work)
        self.stdout.unlink(missing_ok=True)
        self.stderr.unlink(missing_ok=True)
        self.work.mkdir()
        (self.work / "tmp").mkdir()

    def remove(self) -> None:
        """Remove the slot, its assignment first, so that half a slot is not taken for a whole."""
        self._assignment.unlink(missing_ok=True)
        trees.remove(self.path)


def slot_of(slots: Path, id: ReplicaId) -> ReplicaSlot:
    """ReplicaSlot of a replica; it need not exist."""
    return ReplicaSlot(slots / str(id), id)


def slots_in(slots: Path) -> Iterator[ReplicaSlot]:
    """Yield all slots, oldest assignment first."""
    for path in sorted(slots.iterdir(), key=lambda path: path.stat().st_mtime):
        with suppress(ValueError, TypeError):
            yield ReplicaSlot(path, ReplicaId(*(int(part) for part in path.name.split("-"))))


def _one(assignment: Assignment, manifest: SignedManifest) -> Mapping[str, SignedManifest]:
    return {assignment.manifest: manifest}


def _boot() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
