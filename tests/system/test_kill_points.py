"""What is committed survives, and what is pushed is whole: killed at each call that changes a file.

The claims are those of the output spool, of the file store, and of copies of data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.project_server import TOKEN, ProjectServer
from tests.system.kill_points import (
    MEMORY,
    Crash,
    Disk,
    Killer,
    Trial,
    compiled,
    kill_everywhere,
    killer,
)

from gridbot.placement.queue import DONE, PlacementQueue
from gridbot_client.protocol.messages import Manifest, ReplicaId
from gridbot_client.protocol.signatures import fingerprint
from gridbot_client.storage import Folder, Identity

pytestmark = pytest.mark.skipif(
    not (shutil.which("g++") and MEMORY.is_dir()) and "CI" not in os.environ,
    reason="needs a compiler and a file system in memory: apt-get install g++",
)


@pytest.fixture(scope="module")
def kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    modules = tmp_path_factory.mktemp("modules")
    (modules / "stork.transfer.file-file").write_text(MODULE)
    (modules / "stork.transfer.file-file").chmod(0o700)
    with killer(compiled(tmp_path_factory.mktemp("library")), modules) as process:
        yield process


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder, "disk")


def _words(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _left(folder: Path) -> list[str]:
    """Names of temporary files."""
    return [path.name for path in folder.rglob("*") if path.suffix in (".new", ".part", ".whole")]


# ------------------------------------------------------------------------------ the client

# Of each job: an output that travels in the report, one that is uploaded, one in a folder.
SCRIPT = """
echo "$2" >> "$1"
read -r line < in && echo "$line $2" > small
mkdir sub
printf %050000d "$2" > large
printf %050000d "$2" > sub/deep
"""
OUTPUTS = ("small", "large", "sub/deep")


def _output(name: str, number: int) -> bytes:
    return b"input %d\n" % number if name == "small" else b"%050000d" % number


@dataclass
class ClientTrial:
    server: ProjectServer
    disk: Disk
    runs: Path  # a line for each run of a job
    jobs: Mapping[int, ReplicaId]
    seconds: float
    keeps_places: bool
    piece: str = "client"
    most_runs: dict[int, int] = field(default_factory=dict)  # else as often as it takes

    @property
    def arguments(self) -> Mapping[str, Any]:
        root = str(self.disk.root)
        return {"root": root, "seconds": self.seconds, "keeps_places": self.keeps_places}

    def look(self, how: Crash) -> None:
        """Note which outputs were committed: of others the server has heard nothing.

        Without a report on its way they might as well not have arrived yet.
        """
        request = Folder(self.disk.root).pending_request()
        on_its_way = {report.id for report in request.reports} if request else set()
        for number, id in self.jobs.items():
            heard = [name for name in OUTPUTS if self._address(id, name) in self.server.uploads]
            if self.seconds >= 1 and heard:
                self.most_runs[number] = self._count(number)
            if not self.server.reports[id] and id not in on_its_way:
                for name in heard:
                    del self.server.uploads[self._address(id, name)]

    def end(self) -> None:
        for number, id in self.jobs.items():
            most = self.most_runs.get(number)
            assert most in (None, self._count(number)), "what was committed ran again"
            self._look_at_reports(number, id)
        for folder in ("slots", "cells"):
            assert os.listdir(self.disk.root / folder) == []
        assert _left(self.disk.root) == []

    def _look_at_reports(self, number: int, id: ReplicaId) -> None:
        reports = self.server.reports[id]
        assert reports, "it was not reported"
        assert [report.reason for report in reports if report.how != "success"] == []
        wanted = {name: _output(name, number) for name in OUTPUTS}
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in wanted.items()}
        for report in reports:
            assert {output.name: output.sha256 for output in report.outputs} == hashes
        for name in ("large", "sub/deep"):
            assert self.server.uploads[self._address(id, name)] == wanted[name]

    def _count(self, number: int) -> int:
        return _words(self.runs).count(str(number))

    @staticmethod
    def _address(id: ReplicaId, name: str) -> str:
        return f"/uploads/{id.bot}/{id.seq}/{id.replica}/{name}"


@dataclass
class ClientBench:
    server: ProjectServer
    seconds: float  # that each job takes
    keeps_places: bool
    numbers: Sequence[int] = (7,)  # of each job
    bots: int = 0

    def __call__(self, disk: Disk, outside: Path) -> Trial:
        self.bots += 1
        server, folder, runs = self.server, Folder(disk.root), outside / "runs"
        folder.make()
        alice = fingerprint(server.alice.public_key().public_bytes_raw())
        folder.save_identity(
            Identity(server.url, TOKEN, 7, "alice", server.project, server.project, (alice,))
        )
        command = ("/bin/sh", "-c", SCRIPT, "job", str(runs), "{n}")
        given = (server.file("in", b"input\n"),)
        manifest = Manifest("alice", command, {"n": "int"}, inputs=given, outputs=OUTPUTS)
        ids = server.add(manifest, [{"n": str(number)} for number in self.numbers], bot=self.bots)
        jobs = dict(zip(self.numbers, ids, strict=True))
        return ClientTrial(server, disk, runs, jobs, self.seconds, self.keeps_places)


@pytest.fixture
def server() -> Iterator[ProjectServer]:
    made = ProjectServer()
    yield made
    made.close()


def test_committed_outputs_are_pushed_whole_wherever_the_client_or_its_machine_crashes(
    kill: Killer, place: Path, server: ProjectServer
) -> None:
    bench = ClientBench(server, seconds=2.0, keeps_places=True)
    points = kill_everywhere(kill, bench, place, turns=[(how,) for how in Crash])
    print(f"client: killed at {points} calls")
    assert points > 80


def test_a_job_in_the_folders_of_another_returns_nothing_of_it_wherever_its_client_crashes(
    kill: Killer, place: Path, server: ProjectServer
) -> None:
    bench = ClientBench(server, seconds=2.0, keeps_places=False, numbers=(7, 8))
    turns = (Crash.KILL,), (Crash.POWER_CUT,)
    points = kill_everywhere(kill, bench, place, turns=turns, step=3)
    print(f"client, two jobs: killed at {points} calls")
    assert points > 40


def test_what_a_short_job_loses_with_its_machine_is_never_pushed_and_made_again(
    kill: Killer, place: Path, server: ProjectServer
) -> None:
    turns = (Crash.POWER_CUT,), (Crash.LARGE_TORN,), (Crash.TORN,)
    bench = ClientBench(server, seconds=0.1, keeps_places=False)
    points = kill_everywhere(kill, bench, place, turns=turns)
    print(f"client, short job: killed at {points} calls")
    assert points > 60


# ------------------------------------------------------------------------------- the store


@dataclass
class StoreTrial:
    disk: Disk
    contents: Mapping[str, str]
    told: Path
    piece: str = "store"

    @property
    def arguments(self) -> Mapping[str, Any]:
        root, told = str(self.disk.root), str(self.told)
        return {"root": root, "contents": self.contents, "told": told}

    def look(self, how: Crash) -> None:
        files, uploads = self.disk.root / "files", self.disk.root / "uploads"
        found = {path.parent.name + path.name: path for path in files.glob("*/*")}
        # What a collector has put aside is put back when it looks the next time.
        found |= {path.name.removeprefix("going-"): path for path in uploads.glob("going-*")}
        for sha256, path in found.items():
            is_whole = hashlib.sha256(path.read_bytes()).hexdigest() == sha256
            assert is_whole, f"{path} is torn"
        told = {*_words(self.told)}
        assert told - {"note"} <= {*found}, "an acknowledged content is lost"
        note = (files / "note").read_text()
        assert note in (("new",) if "note" in told else ("old", "new"))

    def end(self) -> None:
        self.look(Crash.KILL)
        assert {*_words(self.told)} == {*self.contents, "note"}
        assert os.listdir(self.disk.root / "uploads") == []
        assert _left(self.disk.root) == []


def store_bench(disk: Disk, outside: Path) -> Trial:
    for name in ("files", "uploads"):
        (disk.root / name).mkdir()
    (disk.root / "files" / "note").write_text("old")
    contents = {}
    for number in range(3):
        content = bytes([number]) * (10_000 + 50_000 * number)
        (outside / f"{number}").write_bytes(content)
        contents[hashlib.sha256(content).hexdigest()] = str(outside / f"{number}")
    return StoreTrial(disk, contents, outside / "told")


def test_an_acknowledged_upload_is_there_wherever_the_server_or_its_machine_crashes(
    kill: Killer, place: Path
) -> None:
    turns = (Crash.KILL, Crash.POWER_CUT), (Crash.TORN, Crash.LARGE_TORN)
    points = kill_everywhere(kill, store_bench, place, turns=turns)
    print(f"file store: killed at {points} calls")
    assert points > 50


# --------------------------------------------------------------------------- the data copy

CONTENT = os.urandom(1 << 10) * 1100  # more than one chunk


@dataclass
class CopyTrial:
    disk: Disk
    source: Path
    sha256: str
    boot: Path  # a file that says which boot of the machine this is
    told: Path
    piece: str = "copy"

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {
            "source": str(self.source),
            "destination": str(self._destination),
            "sha256": self.sha256,
            "boot": str(self.boot),
            "told": str(self.told),
        }

    @property
    def _destination(self) -> Path:
        return self.disk.root / "new" / "folder" / "x"

    def look(self, how: Crash) -> None:
        if how is not Crash.KILL:
            self.boot.write_text("second")
        is_there = self._destination.exists()
        assert not is_there or self._destination.read_bytes() == CONTENT, "half a file is shown"
        assert is_there or not _words(self.told), "a file that was done is gone"

    def end(self) -> None:
        assert _words(self.told)
        self.look(Crash.KILL)
        assert os.listdir(self._destination.parent) == ["x"]


@dataclass
class CopyBench:
    demands_hash: bool

    def __call__(self, disk: Disk, outside: Path) -> Trial:
        (outside / "x").write_bytes(CONTENT)
        sha256 = hashlib.sha256(CONTENT).hexdigest() if self.demands_hash else ""
        (outside / "boot").write_text("first")
        return CopyTrial(disk, outside / "x", sha256, outside / "boot", outside / "told")


@pytest.mark.parametrize("demands_hash", [True, False])
def test_a_copy_shows_no_half_file_and_stays_once_it_is_done(
    kill: Killer, place: Path, demands_hash: bool
) -> None:
    points = kill_everywhere(kill, CopyBench(demands_hash), place)
    print(f"data copy: killed at {points} calls")
    assert points > 10


# The destinations are on another machine, which does not crash.
MODULE = """#!/bin/sh
cp "${1#file:}" "${2#file:}.part" && mv "${2#file:}.part" "${2#file:}"
"""


@dataclass
class QueueTrial:
    disk: Disk
    source: Path
    copies: list[Path]
    told: Path
    piece: str = "queue"

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {
            "root": str(self.disk.root),
            "source": str(self.source),
            "copies": [str(path) for path in self.copies],
            "told": str(self.told),
        }

    @property
    def _file(self) -> Path:
        return self.disk.root / "state" / "queue"

    def _queued(self) -> dict[str, str]:
        """State of each copy by its destination, from a copy of the queue: a look changes it."""
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            for name in ("queue", "queue-wal", "queue-journal"):
                if (found := self._file.with_name(name)).exists():
                    shutil.copyfile(found, Path(folder, name))
            there = PlacementQueue(Path(folder, "queue")).all()
        return {each.request.destination.rest: each.state for each in there}

    def look(self, how: Crash) -> None:
        queued = self._queued()
        assert {*_words(self.told)} <= {*queued}, "a copy that was queued is lost"
        for name, state in queued.items():
            assert state != DONE or Path(name).read_bytes() == self.source.read_bytes()

    def end(self) -> None:
        self.look(Crash.KILL)
        assert self._queued() == {str(path): DONE for path in self.copies}
        assert {*os.listdir(self._file.parent)} == {"queue", "queue.lock"}
        assert stat.S_IMODE(self._file.stat().st_mode) == 0o600


def queue_bench(disk: Disk, outside: Path) -> Trial:
    (outside / "x").write_bytes(b"content")
    return QueueTrial(disk, outside / "x", [outside / "copy"], outside / "told")


def test_a_copy_that_was_queued_is_done_wherever_the_queue_or_its_machine_crashes(
    kill: Killer, place: Path
) -> None:
    # Each look at the queue makes dozens of calls, all of them SQLite's.
    points = kill_everywhere(kill, queue_bench, place, turns=[(how,) for how in Crash], step=5)
    print(f"queue of copies: killed at {points} calls")
    assert points > 30
