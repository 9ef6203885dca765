"""Podman, with a store of the client's own: no BOT meets the images of the machine's owner."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gridbot_client.work import trees
from gridbot_client.work.containers import ContainerOrder, Watch, own_variables
from gridbot_client.work.shared import ENVIRONMENT_FAILED, CannotProvide
from gridbot_client.work.slots import ReplicaSlot

_PASSES_THROUGH = 4  # the first version with the log driver passthrough (podman-run(1))
_NOTE = "image-id"  # in an image's folder: the id by which the store has it


class Podman:
    """Rootless unless the client's user is root; safe to use from many threads.

    In a container root is the client's user, without any right of root.  The client would not be
    allowed to end processes of another user of the image, nor to read their outputs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Of at most 50 characters, the same at each start, for the store's database notes it.
        mark = hashlib.sha256(bytes(folder)).hexdigest()[:12]
        self._run = Path(f"/tmp/gridbot-{os.geteuid()}-{mark}")  # noqa: S108
        self._store = folder / "store"
        self._changes = threading.Lock()  # of images
        self._driver: str | None = None
        self._passes_through: bool | None = None

    @property
    def key(self) -> str:
        """Includes the driver: each has a store of its own."""
        return f"podman {self._storage()}"

    def load(self, packed: Path, top: Path, watch: Watch) -> int:
        """Load what `podman save` or `docker save` has written."""
        with self._changes:
            said = self._call(["load", "--quiet", "--input", str(packed)], watch)
            packed.unlink()
            return self._note(said.rpartition("Loaded image: ")[2].split("\n")[0], top)

    def pull(self, image: str, top: Path, watch: Watch) -> int:
        """Pull an image; a name never leads to files of this machine."""
        with self._changes:
            said = self._call(["pull", "--quiet", f"docker://{image}"], watch)
            return self._note(said.split("\n")[-1], top)

    def _note(self, name: str, top: Path) -> int:
        """Note an image's id, for another archive may take its name; the bytes that it takes."""
        said = self._call(["image", "inspect", "--format", "{{.Id}} {{.Size}}", name])
        id, size = said.split()[-2:]
        (top / _NOTE).write_text(id)
        return int(size)

    def remove(self, top: Path) -> None:
        """Remove an image, unless it is also that of another folder."""
        with self._changes, suppress(FileNotFoundError):
            note = top / _NOTE
            others = [path for path in top.parent.parent.glob(f"*/tree/{_NOTE}") if path != note]
            if note.read_text() not in {path.read_text() for path in others}:
                self._try(["image", "rm", "--force", note.read_text()])

    def command(self, top: Path, order: ContainerOrder, *, network: bool) -> list[str]:
        """Arguments of podman-run(1); an earlier container of the slot is forgotten."""
        begun = _begun(order.slot)
        begun.unlink(missing_ok=True)
        return [
            *self._podman(), "run", "--rm", "--replace", "--name", _name(order.slot),
            "--pidfile", str(begun), "--pull", "never", "--log-driver", self._log_driver(order),
            "--network", "host" if network else "none",
            "--read-only", "--read-only-tmpfs=false", "--user", "0:0", "--cap-drop", "all",
            "--security-opt", "no-new-privileges", *_limits(),
            *[part for mount in order.mounts for part in ("--volume", mount)],
            *[part for item in order.variables.items() for part in ("--env", "=".join(item))],
            "--workdir", str(order.slot.work),
            *(["--interactive"] if order.has_stdin else []),
            "--entrypoint", "", (top / _NOTE).read_text(), *order.argv,
        ]  # fmt: skip

    def environment(self, order: ContainerOrder) -> dict[str, str]:  # noqa: ARG002
        """Variables of Podman itself."""
        return self._environment()

    def has_begun(self, slot: ReplicaSlot, exit_code: int) -> bool:  # noqa: ARG002
        """True once the container had a process."""
        return _begun(slot).exists()

    def clear(self, slot: ReplicaSlot) -> None:
        """Remove a slot's container."""
        self._try(["rm", "--force", "--ignore", "--time", "0", _name(slot)])

    def sweep(self) -> None:
        """End and remove all containers."""
        if self._store.exists():
            self._try(["rm", "--all", "--force", "--time", "0"])
            self.close()

    def empty(self) -> None:
        """Remove all images: some of their files are not the user's own."""
        if self._store.exists():
            self._try(["image", "rm", "--all", "--force"])

    def close(self) -> None:
        """End the process that Podman keeps for its user namespace, and forget what has run."""
        if self._store.exists():
            self._try(["system", "migrate"])
            trees.remove(self._run)

    def _podman(self) -> list[str]:
        _make_own(self._run)
        folders = ["--root", str(self._store), "--runroot", str(self._run / "store")]
        return ["podman", "--log-level", "error", *folders]

    def _environment(self) -> dict[str, str]:
        driver = {"STORAGE_DRIVER": "overlay"} if self._storage() == "overlay" else {}
        return {**self._variables(), **driver}

    def _variables(self) -> dict[str, str]:
        return {**own_variables(self._folder), "XDG_RUNTIME_DIR": str(self._run)}

    def _storage(self) -> str:
        """The driver of the store: overlay where that works, which copies no image for a job."""
        if self._driver is None:
            variables = {**self._variables(), "STORAGE_DRIVER": "overlay"}
            try:
                Watch().call([*self._podman(), "info"], variables, self._folder)
                self._driver = "overlay"
            except CannotProvide:
                self._driver = "default"
        return self._driver

    def _log_driver(self, order: ContainerOrder) -> str:
        """How output comes out of a container: by our own files, where Podman can do that.

        Else Podman copies it, and version 4.3 lost all that one in some two thousand short
        containers had printed.  Only where it copies does it tell an absent program from a fault.
        """
        if self._passes_through is None:
            version = re.search(r"version (\d+)\.", self._call(["--version"]))
            self._passes_through = version is not None and int(version[1]) >= _PASSES_THROUGH
        return "passthrough" if self._passes_through and not order.failed_to_start else "none"

    def _call(self, arguments: Sequence[str], watch: Watch | None = None) -> str:
        command = [*self._podman(), *arguments]
        return (watch or Watch()).call(command, self._environment(), self._folder)

    def _try(self, arguments: Sequence[str]) -> None:
        with suppress(CannotProvide, OSError):
            self._call(arguments)


def _make_own(folder: Path) -> None:
    """Make a folder where others might have made it.  Raises CannotProvide if they did."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise CannotProvide(ENVIRONMENT_FAILED, f"{folder} is not this user's own: remove it\n")


def _limits() -> list[str]:
    """Limits that Podman may set: its defaults for root are more than any root may have."""
    asked = {"nofile": (resource.RLIMIT_NOFILE, 4096), "nproc": (resource.RLIMIT_NPROC, 32768)}
    found = []
    for name, (kind, most) in asked.items():
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        found += ["--ulimit", f"{name}={value}:{value}"]
    return found


def _begun(slot: ReplicaSlot) -> Path:
    return slot.path / "container-pid"


def _name(slot: ReplicaSlot) -> str:
    return f"gridbot-{slot.path.parent.name}-{slot.path.name}"
