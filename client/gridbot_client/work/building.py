"""Builds environments for Python behind walls: of pip's requirements, and of conda-pack's archives.

Each is built where it stays, since its programs name their own place.  Build scripts are strangers'
programs: they run as the BOT's jobs do, with the network only where these might have it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gridbot_client.protocol.archive import BadArchive
from gridbot_client.protocol.messages import FileRef, Manifest, ReplicaId, Resources
from gridbot_client.work import outputs, trees, unpacking
from gridbot_client.work.confinement import ShownFolder
from gridbot_client.work.runner import LOST, NOT_STARTED, ProcessEnd, ReplicaProgram, Runner, Stop
from gridbot_client.work.shared import ENVIRONMENT_FAILED, CannotProvide, Fetch
from gridbot_client.work.slots import ReplicaSlot

_LIMITS = Resources(cpus=1, memory_mb=2048, disk_mb=10 << 10, seconds=1800.0)
_LAST_LINES = 20  # of what a failed build has printed
_BUILDER = ReplicaId(0, 0, 0)
# What people tell pip on their machine, for their own BOTs alone: it may hold passwords.
_OWN_VARIABLES = ("PIP_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                  "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")  # fmt: skip


class BuildInterrupted(Exception):
    """The build was stopped, or this machine could not start it."""


@dataclass(frozen=True, slots=True)
class EnvironmentBuilder:
    """Builds one environment for jobs of one degree of trust."""

    runner: Runner
    is_stranger: bool
    fetch: Fetch
    stop: Stop

    def install(self, manifest: Manifest, named: Sequence[FileRef], top: Path) -> None:
        """Make a virtual environment of a BOT's requirements, which name some of its inputs.

        Raises CannotProvide, BuildInterrupted, OSError, and the errors of `fetch`.
        """
        home = self._home(top)
        for ref in named:
            self._put(ref, manifest, home.work)
        pip = _copy_of_pip(home.work / ".pip")
        base = [getattr(sys, "_base_executable", sys.executable), "-I", "-m", "venv"]
        self._run([*base, "--without-pip", str(top)], home, top, "python -m venv")
        # What a stranger's BOT installs is signed: the hashes of all of it are.
        pinned = ["--require-hashes"] if self.is_stranger else []
        self._run(
            [
                str(top / "bin" / "python"), str(pip), "install", "--no-input", "--no-cache-dir",
                "--disable-pip-version-check", "--no-warn-script-location", "--progress-bar", "off",
                *pinned, "-r", manifest.requirements,
            ],
            home, top, f"pip install -r {manifest.requirements}",
        )  # fmt: skip
        self._clear(home)

    def unpack(self, manifest: Manifest, ref: FileRef, top: Path) -> None:
        """Unpack an archive of conda-pack, and let it find its place.  Raises as `install`."""
        home = self._home(top)
        packed = home.path / "archive"
        self.fetch(ref, packed)
        unpacked(packed, top, ref.name, manifest)
        if (top / "bin" / "conda-unpack").is_file():
            self._run([str(top / "bin" / "conda-unpack")], home, top, "conda-unpack")
        self._clear(home)

    def _home(self, top: Path) -> ReplicaSlot:
        """A slot for builds, beside what is built, so that the limit on disk counts both."""
        home = ReplicaSlot(top.parent, _BUILDER)
        (home.work / "tmp").mkdir(parents=True)
        return home

    def _put(self, ref: FileRef, manifest: Manifest, work: Path) -> None:
        target = work / ref.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if ref.name not in manifest.archives:
            self.fetch(ref, target)
            return
        packed = work.parent / "archive"
        self.fetch(ref, packed)
        unpacked(packed, target, ref.name, manifest)

    def _run(self, argv: Sequence[str], home: ReplicaSlot, top: Path, name: str) -> None:
        top.mkdir(exist_ok=True)
        own = {} if self.is_stranger else {
            key: value for key, value in os.environ.items() if key.startswith(_OWN_VARIABLES)
        }  # fmt: skip
        shown = [ShownFolder(top, top, is_writable=True), *base_python()]
        ended = self.runner.run(
            ReplicaProgram(argv, own, shown=shown, path=(top / "bin",)), home, _LIMITS, self.stop,
            lambda _: None, is_stranger=self.is_stranger, wants_network=True,
        )  # fmt: skip
        if ended.reason in (NOT_STARTED, LOST, "stopped"):
            raise BuildInterrupted(ended.detail)
        if ended.reason:
            raise CannotProvide(ENVIRONMENT_FAILED, _told(name, ended, home))

    def _clear(self, home: ReplicaSlot) -> None:
        trees.remove(home.work)
        for path in (home.stdout, home.stderr, home.path / "archive"):
            path.unlink(missing_ok=True)


def unpacked(packed: Path, top: Path, name: str, manifest: Manifest) -> None:
    """Unpack an archive of a BOT, and remove it.  Raises CannotProvide."""
    try:
        unpacking.unpack(packed, top, manifest.archives[name])
    except BadArchive as error:
        raise CannotProvide("bad_archive", f"input {name}: {error}\n") from None
    packed.unlink()


def base_python() -> list[ShownFolder]:
    """Where the Python of environments is, if strangers would not see it."""
    base = Path(os.path.realpath(sys.base_prefix))
    return [] if base.is_relative_to("/usr") else [ShownFolder(base, base)]


def _copy_of_pip(target: Path) -> Path:
    """Copy this Python's pip to where a build sees it, and nothing else of this Python's."""
    found = importlib.util.find_spec("pip")
    if found is None or not found.submodule_search_locations:
        raise CannotProvide(
            ENVIRONMENT_FAILED, "this machine's Python has no pip: python3 -m ensurepip\n"
        )
    shutil.copytree(found.submodule_search_locations[0], target / "pip")
    return target / "pip"


def _told(name: str, ended: ProcessEnd, home: ReplicaSlot) -> str:
    said = outputs.tail(home.stdout) + outputs.tail(home.stderr)
    lines = "\n".join(said.splitlines()[-_LAST_LINES:])
    code = "" if ended.exit_code is None else f", exit code {ended.exit_code}"
    return f"{lines}\n{ended.detail}{name}: {ended.reason}{code}\n"
