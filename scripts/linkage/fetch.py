"""Debian's fastlink, its programs and example pedigree, unpacked but not installed; no root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .point import INPUTS, PROGRAMS

_PACKAGE = "fastlink"
_APT_SECONDS = 180


class Unavailable(Exception):
    """fastlink cannot be had on this machine; the message says why."""


def fastlink(cache: Path) -> Path:
    """Return the folder with `unknown`, `mlink`, pedfile.dat and datafile.dat.

    The folder is kept in `cache`; a second call downloads nothing.
    Raise Unavailable where there is no apt or no package.
    """
    folder = cache / _PACKAGE
    if all((folder / name).exists() for name in INPUTS):
        return folder
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"this machine has no {tool}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as name:
        unpacked = _unpack(_download(Path(name)), Path(name))
        shutil.rmtree(folder, ignore_errors=True)
        unpacked.rename(folder)
    return folder


def _download(scratch: Path) -> Path:
    """Return the package file; where the machine's package lists have none, fetch lists."""
    try:
        _run(["apt-get", "download", _PACKAGE], scratch)
    except Unavailable:
        own_lists = _private_lists(scratch)
        _run(["apt-get", *own_lists, "update"], scratch)
        _run(["apt-get", *own_lists, "download", _PACKAGE], scratch)
    return next(scratch.glob(f"{_PACKAGE}_*.deb"))


def _private_lists(scratch: Path) -> list[str]:
    """Options that let apt keep lists in our folder: only root may write the system's."""
    lists, cache = scratch / "lists", scratch / "apt"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    options = [
        f"Dir::State::Lists={lists}",
        f"Dir::Cache={cache}",
        "Debug::NoLocking=1",
        "Acquire::Retries=1",
        "Acquire::http::Timeout=20",
    ]
    if os.geteuid() == 0:
        options.append("APT::Sandbox::User=root")  # else _apt, which may not enter our folder
    return [part for option in options for part in ("-o", option)]


def _unpack(package: Path, scratch: Path) -> Path:
    """Return a folder with the four files out of the package."""
    tree, folder = scratch / "tree", scratch / "files"
    _run(["dpkg-deb", "-x", str(package), str(tree)], scratch)
    folder.mkdir()
    for name in INPUTS:
        source = "usr/bin" if name in PROGRAMS else f"usr/share/doc/{_PACKAGE}/examples"
        try:
            shutil.copy(tree / source / name, folder / name)
        except OSError:
            raise Unavailable(f"{package.name} has no {source}/{name}") from None
    return folder


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_APT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)} took more than {_APT_SECONDS} s") from None
    if ended.returncode != 0:
        said = ended.stderr.strip().splitlines() or ["nothing"]
        raise Unavailable(f"{command[0]} {command[-1]} failed: {said[-1]}")
