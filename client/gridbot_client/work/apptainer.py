"""Apptainer: an image is one file, in the folder that its BOTs share."""

from __future__ import annotations

from pathlib import Path

from gridbot_client.protocol.software import SIF
from gridbot_client.work.containers import ContainerOrder, Watch, own_variables
from gridbot_client.work.slots import ReplicaSlot

_OWN_FAILURE = 255
_IMAGE = f"image{SIF}"  # in an image's folder


class Apptainer:
    """Without rights of root; safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def key(self) -> str:
        """Its name."""
        return "apptainer"

    def load(self, packed: Path, top: Path, watch: Watch) -> int:
        """Take a SIF file as it is; build one of what `docker save` has written."""
        if packed.suffix == SIF:
            packed.rename(top / _IMAGE)
        else:
            self._build(f"docker-archive:{packed}", top, watch)
            packed.unlink()
        return 0

    def pull(self, image: str, top: Path, watch: Watch) -> int:
        """Build a SIF file of a registry's image."""
        self._build(f"docker://{image}", top, watch)
        return 0

    def _build(self, source: str, top: Path, watch: Watch) -> None:
        command = ["apptainer", "build", "--disable-cache", str(top / _IMAGE), source]
        watch.call(command, own_variables(self._folder), self._folder)

    def remove(self, top: Path) -> None:
        """Nothing is kept elsewhere."""

    def command(self, top: Path, order: ContainerOrder, *, network: bool) -> list[str]:
        """Arguments of `apptainer exec`."""
        work = order.slot.work
        return [
            "apptainer", "--silent", "exec", "--containall", "--cleanenv", "--no-privs",
            *([] if network else ["--net", "--network", "none"]),
            "--home", f"{work}:{work}",
            *[part for mount in order.mounts for part in ("--bind", mount)],
            "--pwd", str(work), str(top / _IMAGE), *order.argv,
        ]  # fmt: skip

    def environment(self, order: ContainerOrder) -> dict[str, str]:
        """Its own variables, and those that it hands on: `--env` would split values at commas."""
        handed = {f"APPTAINERENV_{key}": value for key, value in order.variables.items()}
        handed.pop("APPTAINERENV_HOME")  # `--home` says it
        return {**own_variables(self._folder), **handed}

    def has_begun(self, slot: ReplicaSlot, exit_code: int) -> bool:  # noqa: ARG002
        """True unless it exits as Apptainer does upon its own errors."""
        return exit_code != _OWN_FAILURE

    def clear(self, slot: ReplicaSlot) -> None:
        """A container is gone with its processes."""

    def sweep(self) -> None:
        """No container outlives its processes."""

    def empty(self) -> None:
        """Images are where their BOTs share them."""

    def close(self) -> None:
        """Nothing of it keeps running."""
