"""What a replica sees beside its slot: directories and environments of its BOT, made once."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.work import building
from gridbot_client.work.building import EnvironmentBuilder
from gridbot_client.work.confinement import ShownFolder
from gridbot_client.work.images import Images
from gridbot_client.work.places import ReplicaPlace
from gridbot_client.work.runner import ReplicaProgram, Runner, Stop
from gridbot_client.work.shared import (
    ENVIRONMENT_FAILED,
    CannotProvide,
    Fetch,
    Make,
    NoRoomForFolder,
    SharedFolders,
)

ID_CHARACTERS = 16  # of manifests' ids, in the host's ad
_MOST_NAMED = 40  # of BOTs, there
_MOST_TEXT_BYTES = 1 << 20


class Unfit(Exception):
    """This host has said already that it cannot run the BOT."""


class UnfitBots:
    """BOTs that cannot run here, by their manifests' ids, for as long as the client runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, None] = {}

    def add(self, id: str) -> None:
        """Note a manifest; of many the oldest is forgotten."""
        with self._lock:
            self._ids[id] = None
            while len(self._ids) > _MOST_NAMED:
                del self._ids[next(iter(self._ids))]

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    @property
    def attribute(self) -> str:
        """Of the host ad: the beginnings of their ids."""
        with self._lock:
            return " ".join(id[:ID_CHARACTERS] for id in self._ids)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A shared folder: its key, how it is made, and where a job sees it (None: where it is)."""

    key: str
    make: Make
    bytes: int = 0
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Provision:
    """Gives replicas what their BOT shares; safe to use from many threads."""

    folders: SharedFolders
    runner: Runner
    images: Images
    unfit: UnfitBots = field(default_factory=UnfitBots)

    def equip(
        self, program: ReplicaProgram, id: str, manifest: Manifest, place: ReplicaPlace,
        fetch: Fetch, stop: Stop, *, is_stranger: bool,
    ) -> ReplicaProgram:  # fmt: skip
        """The program with what it is to see, which stays as long as its place.

        `id` is the manifest's.  Raises CannotProvide for the first replica, Unfit for others,
        Interrupted, BuildInterrupted, and the errors of `fetch`.
        """
        if place.shared.folders is None:
            builder = EnvironmentBuilder(self.runner, is_stranger, fetch, stop)
            wanted = [*_archives(manifest, fetch), *_environment(manifest, builder, place)]
            wanted += self._image(manifest, builder, id)
            place.shared.folders = tuple(
                (self._lent(item, id, place, stop), item.name) for item in wanted
            )
        found = place.shared.folders
        shown = [
            ShownFolder(path, place.slot.work / name if name else path) for path, name in found
        ]
        environments = [path for path, name in found if name is None]
        if not environments:
            return program.seeing(shown)
        if manifest.image:
            top = environments[0]
            container = self.images.container(manifest, top, is_stranger=is_stranger)
            inside = [folder for folder in shown if folder.source != top]
            return replace(program.seeing(inside), container=container)
        variable = "CONDA_PREFIX" if manifest.conda_pack else "VIRTUAL_ENV"
        return program.seeing(
            [*shown, *building.base_python()],
            path=[path / "bin" for path in environments],
            environment={variable: str(environments[0])},
        )

    def _image(self, manifest: Manifest, builder: EnvironmentBuilder, id: str) -> Iterator[_Wanted]:
        """The image of a BOT's containers."""
        if not manifest.image:
            return
        if why := self.images.refusal(manifest, is_stranger=builder.is_stranger):
            if id in self.unfit:
                raise Unfit
            self.unfit.add(id)
            raise CannotProvide(ENVIRONMENT_FAILED, f"{why}\n")
        is_stopped, most = lambda: builder.stop.is_asked, self.folders.most_bytes
        yield _Wanted(*self.images.wanted(manifest, builder.fetch, is_stopped, most))

    def _lent(self, wanted: _Wanted, id: str, place: ReplicaPlace, stop: Stop) -> Path:
        def make(top: Path) -> int | None:
            if id in self.unfit:  # another replica has tried meanwhile
                raise Unfit
            return wanted.make(top)

        if id in self.unfit:
            raise Unfit
        lease = self.folders.lent(
            wanted.key, make, wanted.bytes,
            is_guarded=self.runner.confinement.keeps_cells, is_stopped=lambda: stop.is_asked,
        )  # fmt: skip
        try:
            return place.shared.leases.enter_context(lease)
        except CannotProvide:
            self.unfit.add(id)
            raise
        except NoRoomForFolder as error:
            self.unfit.add(id)
            raise CannotProvide("no_room", f"{error}\n") from None


def _archives(manifest: Manifest, fetch: Fetch) -> Iterator[_Wanted]:
    """Directories that jobs see in their own."""

    def make(ref: FileRef, top: Path) -> None:
        packed = top.with_name("archive")
        fetch(ref, packed)
        building.unpacked(packed, top, ref.name, manifest)

    for ref in manifest.inputs:
        if ref.name in manifest.archives and ref.name != manifest.conda_pack:
            said = manifest.archives[ref.name]
            key = f"archive {manifest.kept_for(ref)}"
            yield _Wanted(key, partial(make, ref), said.bytes, ref.name)


def _environment(
    manifest: Manifest, builder: EnvironmentBuilder, place: ReplicaPlace
) -> Iterator[_Wanted]:
    """The environment of Python, which is seen where it was made."""
    inputs = {ref.name: ref for ref in manifest.inputs}
    if manifest.conda_pack:
        ref = inputs[manifest.conda_pack]
        key = _key("conda", manifest, [ref], builder)
        size = manifest.archives[ref.name].bytes
        yield _Wanted(key, partial(builder.unpack, manifest, ref), size)
    elif manifest.requirements:
        text = _content(inputs[manifest.requirements], builder.fetch, place)
        named = [ref for ref in manifest.inputs if ref.name == manifest.requirements]
        named += [ref for ref in manifest.inputs if ref not in named and ref.name in text]
        key = _key("requirements", manifest, named, builder)
        yield _Wanted(key, partial(builder.install, manifest, named))


def _content(ref: FileRef, fetch: Fetch, place: ReplicaPlace) -> str:
    """The beginning of an input, by which it is known which other inputs it names."""
    path = place.slot.path / "requirements"
    fetch(ref, path)
    with path.open("rb") as file:
        text = file.read(_MOST_TEXT_BYTES).decode(errors="replace")
    path.unlink()
    return text


def _key(
    kind: str, manifest: Manifest, files: Sequence[FileRef], builder: EnvironmentBuilder
) -> str:
    """What decides an environment: files, Python, platform, and whose work it is."""
    about = [kind, sys.version, platform.platform(), sys.base_prefix, str(builder.is_stranger)]
    about += [f"{ref.name} {manifest.kept_for(ref)}" for ref in files]
    return f"{kind} {hashlib.sha256(json.dumps(about).encode()).hexdigest()}"
