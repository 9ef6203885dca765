"""The checkpoint of a replica: kept beside its slot's work, restored there, sent to the server.

A checkpoint is one packed file, `checkpoint-N`, and `checkpoint.json` names the one that counts: it
is replaced atomically once the other is on the disk.  So a crash at any line leaves the last
checkpoint or the one before it, whole.  Each part of a run begins in a fresh folder with the inputs
and the checkpoint, as it would on another machine.  What earlier parts have printed comes before
what this one prints, if it is an output.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gridbot_client.filesystem import sync_directory
from gridbot_client.net.transport import (
    CorruptDownload,
    Transport,
    hash_of,
)
from gridbot_client.protocol import checkpoints as packing
from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.fields import MAX_BIGINT, STREAMS, ProtocolError, integer, sha256
from gridbot_client.protocol.messages import FileRef, Manifest, Report, Resources
from gridbot_client.storage import read_json, write_atomically
from gridbot_client.work import outputs
from gridbot_client.work.manifests import ForbiddenInput
from gridbot_client.work.outputs import OutputError
from gridbot_client.work.runner import EXIT_NONZERO, STOPPED, ProcessEnd
from gridbot_client.work.slots import ReplicaSlot

log = logging.getLogger(__name__)

GRACE_SECONDS = 8.0  # for a program that is asked to save
SEND_SECONDS = 5.0  # for the last checkpoint of a client that ends
_LEAST_SECONDS = 0.001
_MOST_ALIKE = 3  # checkpoints in a row with the same files: the program does not get on

# What the program is told, by variables.
RESTORED, EVERY = "GRIDBOT_CHECKPOINT", "GRIDBOT_CHECKPOINT_EVERY"


@dataclass(frozen=True, slots=True)
class Kept:
    """The checkpoint that counts, and what its replica has used here so far."""

    number: int  # rises with each checkpoint of the job, on whatever machine
    sha256: str
    size: int
    digest: str = ""  # of the files without what was printed
    alike: int = 1  # checkpoints in a row with that digest
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    sent: bool = False


class ReplicaCheckpoint:
    """The checkpoint of one replica in its slot.  Used by the replica's thread and its sender."""

    def __init__(self, slot: ReplicaSlot, manifest: Manifest, rule: CheckpointRule) -> None:
        self.rule = rule
        self._slot = slot
        self._most_bytes = manifest.max_output_bytes
        self._streams = [name for name in STREAMS if name in manifest.outputs]
        self._lock = threading.Lock()

    @property
    def kept(self) -> Kept | None:
        """The checkpoint that counts; None before the first one."""
        raw = read_json(self._slot.path / "checkpoint.json")
        with suppress(TypeError):
            kept = Kept(**raw) if raw else None
            if kept and self._file(kept.number).is_file():
                return kept
        return None

    def variables(self) -> dict[str, str]:
        """What the program is told."""
        every = {EVERY: f"{self.rule.every:g}"}
        return {**every, RESTORED: "1"} if self.kept else every

    @property
    def is_unsent(self) -> bool:
        """Whether the server lacks the checkpoint that counts."""
        kept = self.kept
        return kept is not None and not kept.sent

    def check(self, inputs: Sequence[FileRef]) -> None:
        """Make sure that no input of the job's own is in its way.  Raises ForbiddenInput."""
        if taken := packing.replaced(self.rule, [ref.name for ref in inputs]):
            raise ForbiddenInput(f"input {taken} of this job would be a file of its checkpoint")

    def is_saved(self, ended: ProcessEnd) -> bool:
        """Whether a program has ended to be started again."""
        is_orderly = ended.reason in ("", EXIT_NONZERO, STOPPED)
        return is_orderly and ended.exit_code == self.rule.exit_code

    def left(self, limits: Resources) -> Resources:
        """What earlier parts of the run have left of its limits."""
        used = kept.wall_seconds if (kept := self.kept) else 0.0
        return replace(limits, seconds=max(_LEAST_SECONDS, limits.seconds - used))

    def totals(self, report: Report) -> Report:
        """The report of the last part, with the times of all parts that ran here."""
        if (kept := self.kept) is None:
            return report
        cpu, wall = report.cpu_seconds + kept.cpu_seconds, report.wall_seconds + kept.wall_seconds
        return replace(report, cpu_seconds=cpu, wall_seconds=wall)

    def save(self, place: ReplicaSlot, ended: ProcessEnd) -> None:
        """Keep what the program has saved in the folder of its place.

        Raises OutputError if that is no checkpoint, or no other than the last ones.
        """
        before = self.kept
        number = before.number + 1 if before else 1
        file = self._file(number)
        try:
            with ExitStack() as opened:
                digest = self._pack(place, file, before, opened)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise OutputError("bad_checkpoint", f"the checkpoint was not kept: {error}\n") from None
        alike = before.alike + 1 if before and before.digest == digest else 1
        if alike > _MOST_ALIKE:
            file.unlink()
            detail = f"{alike} checkpoints in a row were alike: the program does not get on\n"
            raise OutputError("no_progress", detail)
        cpu, wall = ended.cpu_seconds, ended.wall_seconds
        self._keep(
            Kept(
                number, hash_of(file), file.stat().st_size, digest, alike,
                cpu + (before.cpu_seconds if before else 0.0),
                wall + (before.wall_seconds if before else 0.0),
            )
        )  # fmt: skip

    def restore(self, place: ReplicaSlot) -> None:
        """Write the files of the checkpoint into the folder of a place, if there is one.

        Raises OSError.
        """
        kept = self.kept
        if kept is None:
            return
        with self._file(kept.number).open("rb") as source:
            for file in packing.unpack(source, kept.size, self._allowed):
                if file.name in STREAMS:
                    source.seek(file.size, os.SEEK_CUR)
                    continue
                with outputs.new_file(place, file.name) as target:
                    packing.copied(source, file, target)

    def complete(self, place: ReplicaSlot) -> None:
        """Put what earlier parts have printed before what the last one has."""
        kept = self.kept
        if kept is None:
            return
        with self._file(kept.number).open("rb") as source:
            for file in packing.unpack(source, kept.size, self._allowed):
                if file.name not in self._streams:
                    source.seek(file.size, os.SEEK_CUR)
                    continue
                path = outputs.path_of(place, file.name)
                whole = path.with_name(f"{path.name}.whole")
                with whole.open("wb") as target, outputs.open_output(place, file.name) as last:
                    packing.copied(source, file, target)
                    while chunk := last.read(256 << 10):
                        target.write(chunk)
                whole.rename(path)

    def fetch(self, transport: Transport) -> None:
        """Take the job's checkpoint from the server, if that has one.

        One that is not as it should be is left: the job then begins anew.  Raises TransportError.
        """
        id = self._slot.id
        place = f"/checkpoints/{id.bot}/{id.seq}/{id.replica}"
        told = transport.get_json(f"{place}/latest")
        if told.get("number") is None:
            return
        try:
            number = integer(told, "number", 1, MAX_BIGINT - 1)
            kept = Kept(
                number, sha256(told.get("sha256"), "sha256"),
                integer(told, "size", 0, self._most_packed), sent=True,
            )  # fmt: skip
            part = self._slot.path / f"{kept.sha256}.part"
            content = f"{place}/content?sha256={kept.sha256}"
            transport.download(kept.sha256, kept.size, part, content)
            with part.open("rb") as source:
                packing.unpack(source, kept.size, self._allowed)
        except (ProtocolError, CorruptDownload) as error:
            log.warning("replica %s begins anew, its checkpoint is refused: %s", id, error)
            return
        part.rename(self._file(number))
        self._keep(kept)

    def send(self, transport: Transport) -> None:
        """Send the checkpoint that counts, unless it was.  Raises TransportError and OSError."""
        kept = self.kept
        if kept is None or kept.sent:
            return
        with self._file(kept.number).open("rb") as source:
            transport.upload_checkpoint(self._slot.id, kept.number, kept.sha256, kept.size, source)
        with self._lock:
            if self.kept == kept:
                self._write(replace(kept, sent=True))

    @property
    def _allowed(self) -> Collection[str]:
        return {*self.rule.files, *STREAMS}

    @property
    def _most_packed(self) -> int:
        return self._most_bytes + (128 << 10)

    def _file(self, number: int) -> Path:
        return _packed(self._slot, number)

    def _pack(
        self, place: ReplicaSlot, target: Path, before: Kept | None, opened: ExitStack
    ) -> str:
        """Write a packed checkpoint; return the digest of its files."""
        files: list[tuple[str, int, Any]] = []
        digest = hashlib.sha256()
        for name in self.rule.files:
            try:
                file = opened.enter_context(outputs.open_output(place, name))
            except OSError as error:
                detail = f"checkpoint file {name!r}: {error.strerror}\n"
                raise OutputError("bad_checkpoint", detail) from None
            size = os.fstat(file.fileno()).st_size
            files.append((name, size, file))
        most = self._most_bytes
        if (total := sum(size for _, size, _ in files)) > most:
            detail = f"checkpoint of {total} bytes, at most {most} (max_output)\n"
            raise OutputError("checkpoint_too_big", detail)
        for name, _, file in files:
            digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
            file.seek(0)
        if before:
            self.complete(place)
        for name in self._streams:
            file = opened.enter_context(outputs.open_output(place, name))
            files.append((name, os.fstat(file.fileno()).st_size, file))
        if (total := sum(size for _, size, _ in files)) > most:
            detail = f"checkpoint with what was printed: {total} bytes, at most {most}\n"
            raise OutputError("checkpoint_too_big", detail)
        with target.open("wb") as packed:
            packing.pack(secrets.token_hex(16), files, packed)
            packed.flush()
            os.fsync(packed.fileno())
        return digest.hexdigest()

    def _keep(self, kept: Kept) -> None:
        """Let a packed checkpoint count from now on, and remove the others."""
        with self._lock:
            sync_directory(self._slot.path)
            self._write(kept)
        for path in self._slot.path.glob("checkpoint-*"):
            if path != self._file(kept.number):
                path.unlink(missing_ok=True)

    def _write(self, kept: Kept) -> None:
        path = self._slot.path / "checkpoint.json"
        write_atomically(path, json.dumps(asdict(kept)).encode())


def printed_before(slot: ReplicaSlot, stream: str, at: int, most: int) -> tuple[int, bytes]:
    """How much earlier parts of a run have printed that goes with the output, and some of it.

    At most `most` bytes, from `at` on.
    """
    kept = read_json(slot.path / "checkpoint.json") or {}
    with suppress(OSError, ProtocolError), _packed(slot, kept.get("number")).open("rb") as source:
        for file in packing.read_header(source):
            if file.name == stream:
                source.seek(at, os.SEEK_CUR)
                return file.size, source.read(max(0, min(most, file.size - at)))
            source.seek(file.size, os.SEEK_CUR)
    return 0, b""


def _packed(slot: ReplicaSlot, number: object) -> Path:
    return slot.path / f"checkpoint-{number}"
