"""What tests of containers need: an image made here, and clients that are not root's."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.system.deployment import Deployment

APPLETS = ("sh", "cat", "ls", "id", "sleep", "env", "awk", "dd", "test", "tail", "wget", "setsid")
_PACKAGES = Path(__file__).parent.parent
_OTHER = "65534"  # a user who may do nothing


def needed(program: str) -> str:
    """Path of a program that tests need; skips the test without it, or fails where CI is set."""
    path = shutil.which(program)
    if path is None and os.environ.get("CI"):
        pytest.fail(f"{program} is missing: see .ci/run")
    return path or pytest.skip(f"needs {program}")


def image(path: Path, said: str = "the image") -> Path:
    """Write an image as `docker save` does: a shell with a few programs, and /etc/said."""
    layer = _layer(said)
    config = {
        "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin", "FROM_IMAGE=yes"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }  # fmt: skip
    manifest = {"Config": "config", "RepoTags": ["localhost/tiny:1"], "Layers": ["layer.tar"]}
    with tarfile.open(path, "w") as tar:
        _add(tar, "layer.tar", layer)
        _add(tar, "config", json.dumps(config).encode())
        _add(tar, "manifest.json", json.dumps([manifest]).encode())
    return path


def _layer(said: str) -> bytes:
    busybox = Path(needed("busybox"))
    linked = subprocess.run(["ldd", busybox], capture_output=True, text=True).stdout
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        _add(tar, "bin/busybox", busybox.read_bytes())
        for library in {part for part in linked.split() if part.startswith("/")}:
            _add(tar, library.lstrip("/"), Path(library).read_bytes())
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        _add(tar, "etc/said", said.encode())
    return found.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    tar.addfile(entry, io.BytesIO(content))


class Lender:
    """A person without rights who lends this machine: its clients have rootless containers."""

    def __init__(self, server: Deployment) -> None:
        self._server = server
        self.pids: dict[str, int] = {}
        self._folder = server.folder / "lender"
        self._folder.mkdir(exist_ok=True)
        self._command, self._env = [*_python(), "-m", "gridbot"], _environment(self._folder)
        if os.geteuid() == 0:
            os.chown(self._folder, int(_OTHER), int(_OTHER))

    def client(self, name: str, *options: str, **variables: str) -> Path:
        """Start a client; its folder.  It joins first, if it has not."""
        folder = self._folder / name
        env = {**self._env, **variables}
        if not folder.exists():
            join = ["client", "join", self._server.url, "--key", self._server.operator_key]
            subprocess.run(
                [*self._command, *join, "--data", str(folder)],
                env=env, cwd="/", check=True, capture_output=True,
            )  # fmt: skip
        self.pids[name] = self._server.client(
            f"lender/{name}", *options, command=self._command, env=env
        )
        return folder


def _python() -> Sequence[str]:
    """A Python that runs our packages for a user without rights."""
    if os.geteuid():
        return [sys.executable]
    # setpriv has root's rights until it has become another program.
    user = [needed("setpriv"), "--reuid", _OTHER, "--regid", _OTHER, "--clear-groups"]
    user.append(needed("env"))
    for python in (sys.executable, "/usr/bin/python3"):
        tried = [*user, python, "-c", "import gridbot, psutil"]
        done = subprocess.run(tried, env=_environment(Path("/")), cwd="/", capture_output=True)
        if done.returncode == 0:
            return [*user, python]
    pytest.skip("no Python here runs the checkout for another user than root")


def _environment(home: Path) -> Mapping[str, str]:
    site = next(path for path in sys.path if path.endswith("site-packages"))
    packages = [str(_PACKAGES / "client"), str(_PACKAGES / "policies"), site]
    path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"PATH": path, "HOME": str(home), "PYTHONPATH": os.pathsep.join(packages)}
