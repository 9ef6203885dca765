"""Trees of Debian 13, each a root file system for one batch system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SUITE = "trixie"
_ALWAYS = ["ca-certificates", "iproute2", "procps", "python3"]
# / must be a mount point, or HTCondor cannot isolate jobs; and a chrooted process may not make
# user namespaces, hence pivot_root.  The shell stays, to reap orphans: GRAM's jobs end as such.
_ENTER = """\
set -e
root=$1 checkout=$2; shift 2
hostname gridhost
mount --bind "$root" "$root"
mount --bind -o ro "$checkout" "$root/checkout"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs home
ip link set lo up
pivot_root . .
umount -l .
cd /
install -d -o pilot -g pilot /home/pilot
"$@"; exit $?
"""
_PACKAGES = [f"/checkout{part}" for part in ("", "/overlay", "/client", "/policies")]
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": ":".join(_PACKAGES),
    "LC_ALL": "C.UTF-8",
}


class TreeFailed(Exception):
    """The tree cannot be made or entered; the message says what is missing."""


def ready(root: Path, packages: Sequence[str], mirror: str) -> Path:
    """Make the tree unless it is there already."""
    if os.geteuid() != 0:
        raise TreeFailed("only root may make and enter a root file system")
    if not root.exists():
        print(f"makes {root}, which takes a minute", file=sys.stderr, flush=True)
        _make(root, packages, mirror)
    return root


def _make(root: Path, packages: Sequence[str], mirror: str) -> None:
    if shutil.which("mmdebstrap") is None:
        raise TreeFailed("no mmdebstrap here: apt-get install --no-install-recommends mmdebstrap")
    fresh = root.with_name(root.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    include = f"--include={','.join([*_ALWAYS, *packages])}"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", include, _SUITE, str(fresh)]
    if subprocess.run([*command, *([mirror] if mirror else [])], stdout=sys.stderr).returncode:
        raise TreeFailed(f"mmdebstrap could not make {fresh}")
    (fresh / "checkout").mkdir()
    # Without its name there, every program of HTCondor waits a minute for a name server.
    (fresh / "etc/hosts").write_text("127.0.0.1 localhost gridhost\n")
    subprocess.run(["chroot", fresh, "useradd", "-m", "-s", "/bin/sh", "pilot"], check=True)
    fresh.rename(root)


def run(root: Path, checkout: Path, system: str) -> tuple[int, str]:
    """Try a system in its tree; return its exit code and what it printed on stdout."""
    done = subprocess.run(
        entering(root, checkout, "scripts.grid_systems.inside", system),
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, done.stdout


def entering(root: Path, checkout: Path, module: str, *arguments: str) -> list[str]:
    """Give the command that runs a module of ours in a tree; to be started with ENVIRONMENT."""
    namespaces = ["--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child"]
    enter = ["unshare", *namespaces, "--propagation", "private"]
    inside = ["/usr/bin/python3", "-B", "-m", module, *arguments]
    return [*enter, "bash", "-c", _ENTER, "enter", str(root), str(checkout), *inside]
