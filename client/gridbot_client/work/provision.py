"""What a replica sees beside its slot: archives of its BOT, unpacked once per host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gridbot_client.protocol.archive import BadArchive
from gridbot_client.protocol.manifest import Unpacked
from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.work import unpacking
from gridbot_client.work.confinement import ShownFolder
from gridbot_client.work.places import ReplicaPlace
from gridbot_client.work.shared import SharedFolders

Fetch = Callable[[FileRef, Path], None]  # an input to a path


class CannotProvide(Exception):
    """What the BOT needs cannot be had here; `reason` is the replica's reason code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Provision:
    """Gives replicas the folders that their BOT shares; safe to use from many threads."""

    folders: SharedFolders
    is_guarded: bool  # walls keep jobs from changing them

    def of(
        self, manifest: Manifest, place: ReplicaPlace, fetch: Fetch, is_stopped: Callable[[], bool]
    ) -> tuple[ShownFolder, ...]:
        """Folders of a BOT, which stay as long as its place.

        Raises CannotProvide, Interrupted, and the errors of `fetch`.
        """
        if place.shared.folders is None:
            place.shared.folders = tuple(
                place.shared.leases.enter_context(self._lent(ref, said, fetch, is_stopped))
                for ref, said in _archives(manifest)
            )
        named = zip(place.shared.folders, _archives(manifest), strict=True)
        return tuple(ShownFolder(folder, place.slot.work / ref.name) for folder, (ref, _) in named)

    def _lent(
        self, ref: FileRef, said: Unpacked, fetch: Fetch, is_stopped: Callable[[], bool]
    ) -> AbstractContextManager[Path]:
        make = partial(_unpacked, ref, said, fetch)
        return self.folders.lent(
            f"archive {ref.sha256}", make, said.bytes,
            is_guarded=self.is_guarded, is_stopped=is_stopped,
        )  # fmt: skip


def _archives(manifest: Manifest) -> Iterator[tuple[FileRef, Unpacked]]:
    for ref in manifest.inputs:
        if ref.name in manifest.archives:
            yield ref, manifest.archives[ref.name]


def _unpacked(ref: FileRef, said: Unpacked, fetch: Fetch, top: Path) -> None:
    packed = top.with_name("archive")
    fetch(ref, packed)
    try:
        unpacking.unpack(packed, top, said)
    except BadArchive as error:
        raise CannotProvide("bad_archive", f"input {ref.name}: {error}\n") from None
    packed.unlink()
