"""One replica's directory: its assignment, the record of its runs, its report."""

from __future__ import annotations

import json
import os
import shutil
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

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened, so that a later process can tell how long ago."""

    boot: str
    clock: float  # seconds since boot, sleep included
    wall: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        return cls(_boot(), since_boot(), time.time())

    def elapsed(self, now: Moment) -> float:
        """Seconds from this moment to `now`; within one boot no change of the clock matters."""
        if self.boot == now.boot:
            return now.clock - self.clock
        return max(0.0, now.wall - self.wall)


def since_boot() -> float:
    """Seconds on a clock that nobody sets and that runs on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How often a replica was started, and the leader of its process group."""

    starts: int = 0
    pid: int = 0
    created: float = 0.0  # start time of that process: pids are used again


class Slot:
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
        """Keep what to run.  Not forced to the disk: the server sends what got lost again."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        received = json.dumps(asdict(Moment.now())).encode()
        write_atomically(self._received, received, durable=False)
        reply = WorkReply(0, 0.0, assignments=(assignment,), manifests=_one(assignment, manifest))
        write_atomically(self._assignment, encode_reply(reply), durable=False)

    def assignment(self) -> tuple[Assignment, SignedManifest] | None:
        """What to run, or None when the files are spoilt: then the server sends it again."""
        try:
            reply = decode_reply(self._assignment.read_bytes())
            (assignment,) = reply.assignments
            return assignment, reply.manifests[assignment.manifest]
        except (OSError, ProtocolError, ValueError, KeyError):
            return None

    def age_seconds(self) -> float:
        """How long ago the assignment came."""
        raw = read_json(self._received) or {}
        try:
            return Moment(**raw).elapsed(Moment.now())
        except TypeError:
            return 0.0

    def run_record(self) -> RunRecord:
        """How often the replica was started."""
        try:
            return RunRecord(**(read_json(self._run) or {}))
        except TypeError:
            return RunRecord()

    def save_run(self, record: RunRecord) -> None:
        """Note a start; before the process exists, lest one that kills us starts for ever."""
        write_atomically(self._run, json.dumps(asdict(record)).encode(), durable=False)

    def forget_runs(self) -> None:
        """An orderly stop is not the replica's fault, so its starts do not count."""
        self._run.unlink(missing_ok=True)

    @property
    def is_finished(self) -> bool:
        """Whether there is a report."""
        return self._report.exists()

    @property
    def was_started(self) -> bool:
        """Whether a process of it was started and not stopped in order."""
        return self._run.exists()

    def save_report(self, report: Report) -> None:
        """Keep how it ended, on the disk, until the server acknowledges it."""
        write_atomically(self._report, encode_request(WorkRequest("", 0, {}, 0, (), (report,))))

    def report(self) -> Report | None:
        """How it ended; None when it has not, or when the file is spoilt: then it runs again."""
        try:
            (report,) = decode_request(self._report.read_bytes()).reports
        except (OSError, ProtocolError, ValueError):
            return None
        return report

    def reset(self) -> None:
        """Clear what an earlier run left, so that the next one sees a clean slot."""
        _remove_tree(self.work)
        self.stdout.unlink(missing_ok=True)
        self.stderr.unlink(missing_ok=True)
        self.work.mkdir()
        (self.work / "tmp").mkdir()

    def remove(self) -> None:
        """Drop the replica.  The assignment goes first: half a slot must not be taken for one."""
        self._assignment.unlink(missing_ok=True)
        _remove_tree(self.path)


def slot_of(slots: Path, id: ReplicaId) -> Slot:
    """The slot of a replica, there or not."""
    return Slot(slots / str(id), id)


def slots_in(slots: Path) -> Iterator[Slot]:
    """All slots, oldest assignment first."""
    for path in sorted(slots.iterdir(), key=lambda path: path.stat().st_mtime):
        with suppress(ValueError, TypeError):
            yield Slot(path, ReplicaId(*(int(part) for part in path.name.split("-"))))


def _remove_tree(path: Path) -> None:
    """Remove a tree, also where a program took the rights to its own directories away."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for directory, _, _ in os.walk(path):
            os.chmod(directory, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def _one(assignment: Assignment, manifest: SignedManifest) -> Mapping[str, SignedManifest]:
    return {assignment.manifest: manifest}


def _boot() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
