"""Images of containers that BOTs run in: which may run here, by which runtime, their folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.protocol.software import SIF, runtimes_of
from gridbot_client.work.apptainer import Apptainer
from gridbot_client.work.containers import Container, Runtime, Watch
from gridbot_client.work.podman import Podman
from gridbot_client.work.shared import Fetch

_LOAD_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Images:
    """The runtimes of this machine, and what its owner allows."""

    runtimes: Mapping[str, Runtime]
    allow_network: bool  # to strangers

    @classmethod
    def of(cls, names: Sequence[str], folder: Path, allow_network: bool) -> Images:
        """Images of the runtimes with these names."""
        known: dict[str, Runtime] = {"podman": Podman(folder), "apptainer": Apptainer(folder)}
        return cls({name: known[name] for name in names}, allow_network)

    def refusal(self, manifest: Manifest, *, is_stranger: bool) -> str:
        """Why a BOT's image is not run here; empty if it is."""
        image, is_sent = manifest.image, _archive(manifest) is not None
        if not self._fitting(image):
            return f"image {image} needs {' or '.join(runtimes_of(image))}, not on this machine"
        if not is_stranger:
            return ""
        if os.geteuid() == 0:
            return "the client runs as root, whose containers are no walls against strangers"
        if not is_sent and "@sha256:" not in image:
            return f"image {image}: what strangers sign must name its digest (@sha256:…)"
        if not is_sent and not self.allow_network:
            return f"image {image} would come over the network, which is not allowed here"
        return ""

    def wanted(
        self, manifest: Manifest, fetch: Fetch, is_stopped: Callable[[], bool], most_bytes: int
    ) -> tuple[str, Callable[[Path], int], int]:
        """Key of an image's folder, what makes it, and the bytes that this needs at least."""
        runtime, watch = self._runtime(manifest), Watch(is_stopped, _LOAD_SECONDS, most_bytes)
        ref = _archive(manifest)
        if ref is None:
            make = partial(_pull, runtime, manifest.image, watch)
            return f"{runtime.key} image {manifest.image}", make, 0
        make = partial(_load, runtime, ref, fetch, watch)
        return f"{runtime.key} image {manifest.kept_for(ref)}", make, ref.size

    def container(self, manifest: Manifest, top: Path, *, is_stranger: bool) -> Container:
        """How jobs run in an image whose folder was made."""
        network = not is_stranger or (manifest.walls.network and self.allow_network)
        return Container(self._runtime(manifest), top, network)

    def remove(self, top: Path) -> None:
        """Remove what is kept elsewhere of a shared folder that goes."""
        for runtime in self.runtimes.values():
            runtime.remove(top)

    def sweep(self) -> None:
        """Remove what an earlier client left."""
        for runtime in self.runtimes.values():
            runtime.sweep()

    def empty(self) -> None:
        """Remove what is kept elsewhere than in shared folders."""
        for runtime in self.runtimes.values():
            runtime.empty()

    def close(self) -> None:
        """End what runtimes keep running."""
        for runtime in self.runtimes.values():
            runtime.close()

    def _runtime(self, manifest: Manifest) -> Runtime:
        return self._fitting(manifest.image)[0]

    def _fitting(self, image: str) -> list[Runtime]:
        return [self.runtimes[name] for name in runtimes_of(image) if name in self.runtimes]


def _archive(manifest: Manifest) -> FileRef | None:
    """The input that is the image; None for the name of one."""
    return next((ref for ref in manifest.inputs if ref.name == manifest.image), None)


def _load(runtime: Runtime, ref: FileRef, fetch: Fetch, watch: Watch, top: Path) -> int:
    top.mkdir()
    packed = top / f"packed{SIF if ref.name.endswith(SIF) else ''}"
    fetch(ref, packed)
    return runtime.load(packed, top, watch)


def _pull(runtime: Runtime, image: str, watch: Watch, top: Path) -> int:
    top.mkdir()
    return runtime.pull(image, top, watch)
