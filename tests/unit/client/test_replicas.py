from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.fakes.project_server import with_proofs
from tests.full_disk import longest_file

from gridbot_client.activity import ActivityLog
from gridbot_client.agent import Room, Stage
from gridbot_client.net.allowance import UNLIMITED
from gridbot_client.net.sources import SourceClient
from gridbot_client.net.transport import Transport
from gridbot_client.protocol.manifest import Resources
from gridbot_client.protocol.messages import (
    Assignment,
    Manifest,
    Output,
    ReplicaId,
    Report,
    SignedManifest,
    WorkReply,
    manifest_id,
)
from gridbot_client.protocol.signatures import fingerprint, manifest_statement
from gridbot_client.storage import Folder
from gridbot_client.work import spool
from gridbot_client.work.cache import Cache
from gridbot_client.work.confinement import Plain
from gridbot_client.work.execution import ReplicaExecutor
from gridbot_client.work.images import Images
from gridbot_client.work.manifests import Manifests
from gridbot_client.work.places import ReplicaPlaces
from gridbot_client.work.processes import Census
from gridbot_client.work.provision import Provision
from gridbot_client.work.replicas import HeldReplicas
from gridbot_client.work.run_spans import RunSpans
from gridbot_client.work.runner import Runner
from gridbot_client.work.shared import SharedFolders
from gridbot_client.work.slots import SpareFolders, slot_of, slots_in
from gridbot_client.work.trust import Pins, Trust

NOW = 1_800_000_000
OWNER = Ed25519PrivateKey.from_private_bytes(bytes([1] * 32))
PUBLIC = OWNER.public_key().public_bytes_raw()
COUNT, BYTES = 8, 4000  # of the outputs of a job
JOB = Manifest(
    "alice",
    ("sh", "-c", f"for n in $(seq {COUNT}); do head -c {BYTES} /dev/zero > out$n; done"),
    owner_key=PUBLIC.hex(), not_before=NOW, expires=NOW + 1000,
    outputs=tuple(f"out{n + 1}" for n in range(COUNT)), resources=Resources(disk_mb=1),
)  # fmt: skip
FIRST, SECOND = ReplicaId(1, 0, 1), ReplicaId(1, 1, 1)


class Machine:
    """Replicas on one machine with one CPU, which needs no server for what they do."""

    def __init__(self, folder: Folder, *owners: str) -> None:
        self.manifests = Manifests(Trust(Pins("", "", frozenset(owners)), lambda: NOW))
        census = Census()
        runner, shared = Runner(Plain(), census), SharedFolders(folder.shared, 1 << 20)
        executor = ReplicaExecutor(
            runner, Cache(folder.cache, 1 << 20), ReplicaPlaces(folder.cells, keeps_cells=False),
            Provision(shared, runner, Images({}, allow_network=False)),
            lambda: Transport("http://127.0.0.1:9", ""), SourceClient(UNLIMITED),
        )  # fmt: skip
        self.replicas = HeldReplicas(
            folder.slots, SpareFolders(folder.spare), Room(1, 1000), executor,
            ActivityLog(lambda _: None, lambda: 0.0), RunSpans(None, lambda: 0.0),
        )  # fmt: skip
        self.replicas.recover(census, self.manifests)

    def gets(self, *ids: ReplicaId) -> None:
        """A reply of the server with these replicas of a job."""
        text = JOB.text()
        id = manifest_id(text)
        signed = SignedManifest(text, owner_signature=OWNER.sign(manifest_statement(text)))
        self.manifests.take_in({id: signed})
        jobs = with_proofs([Assignment(each, id, {}, 60.0) for each in ids], OWNER)
        reply = WorkReply(1, 1.0, assignments=tuple(jobs))
        self.replicas.take_in((), reply, self.manifests)

    def reports(self, count: int) -> tuple[Report, ...]:
        """What the next request tells, once so many replicas have ended."""

        def have_ended() -> bool:
            ended = [item for item in self.replicas.items() if item.stage is Stage.FINISHED]
            return len(ended) == count

        with self.replicas.changed:
            assert self.replicas.changed.wait_for(have_ended, 60)
        return self.replicas.to_tell().reports


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    made.make()
    return made


@contextmanager
def machine_on(folder: Folder) -> Iterator[Machine]:
    made = Machine(folder, fingerprint(PUBLIC))
    yield made
    made.replicas.leave()


@pytest.fixture
def machine(folder: Folder) -> Iterator[Machine]:
    with machine_on(folder) as made:
        yield made


def test_a_replica_whose_outputs_cannot_be_kept_fails_and_gives_its_cpu_to_the_next(
    folder: Folder, machine: Machine
) -> None:
    with longest_file(2 * BYTES):  # enough for each output, not for a report with all
        machine.gets(FIRST, SECOND)
        reports = machine.reports(2)
    assert [(report.id, report.reason) for report in reports] == [
        (FIRST, "client_error"),
        (SECOND, "client_error"),
    ]
    assert all("could not be kept: [Errno 27]" in report.stderr for report in reports)
    kept = {slot.id: slot.report() for slot in slots_in(folder.slots)}
    assert kept == {report.id: report for report in reports}, "it would run again"


def block(folder: Folder, id: ReplicaId) -> None:
    """Let nothing write a report: a folder has the name of the file."""
    slot = slot_of(folder.slots, id)
    (slot.path / "report.json.new").mkdir(parents=True)


def test_a_report_that_cannot_be_written_at_all_is_told_and_its_cpu_free(
    folder: Folder, machine: Machine
) -> None:
    block(folder, FIRST)
    machine.gets(FIRST, SECOND)
    told, other = machine.reports(2)
    assert (told.id, told.reason) == (FIRST, "client_error")
    assert (other.id, other.how, len(other.outputs)) == (SECOND, "success", COUNT)


def test_a_client_that_starts_again_reads_what_it_has_committed_beside_its_requests(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machine_on(folder) as before:
        before.replicas.is_halted = True
        before.gets(FIRST)
    slot, may_read, digest = slot_of(folder.slots, FIRST), threading.Event(), hashlib.file_digest
    slot.reset()
    (slot.work / "large").write_bytes(b"torn")
    spool.commit(slot, Report(FIRST, "success", outputs=(Output("large", "0" * 64, 4),)))

    def slow(*args: Any) -> Any:
        assert may_read.wait(60)
        return digest(*args)

    monkeypatch.setattr(hashlib, "file_digest", slow)
    with machine_on(folder) as again:
        assert [item.stage for item in again.replicas.items()] == [Stage.UPLOADING]
        assert again.replicas.to_tell() == ((), (FIRST,), 0, (), ())
        may_read.set()
        (report,) = again.reports(1)
    assert len(report.outputs) == COUNT, "it runs again"


def test_a_refusal_that_cannot_be_written_is_told(folder: Folder) -> None:
    distrustful = Machine(folder)
    block(folder, FIRST)
    distrustful.gets(FIRST, SECOND)
    assert [report.reason for report in distrustful.reports(2)] == ["unsigned", "unsigned"]
    distrustful.replicas.leave()
