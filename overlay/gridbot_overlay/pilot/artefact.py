"""The one file that a pilot needs on a node with nothing but Python: the client and its wheels.

It is an archive of wheels, each of them once, for several versions of Python on one kind of
machine.  `pilot.json` in it says for which, and which wheels each version takes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any

from gridbot_client.storage import write_atomically
from gridbot_overlay.pilot import wheels
from gridbot_overlay.pilot.wheels import OWN_PYTHON, PYTHONS, Wheels, WheelsMissing

# Our packages that a pilot imports.
OUR_PACKAGES = ("gridbot_client", "gridbot_policies")
_LEFT_OUT = re.compile(r"(^|/)__pycache__/")


@dataclass(frozen=True, slots=True)
class Artefact:
    """A built artefact: where it is, the hash by which nodes know it, and whom it serves."""

    path: Path
    sha256: str
    size: int
    nodes: str = ""  # in words
    missing: Mapping[str, str] = field(default_factory=dict)  # by version of Python: why

    def __str__(self) -> str:
        why: dict[str, list[str]] = {}
        for python, text in self.missing.items():
            why.setdefault(text, []).append(python)
        missing = (f"; nothing for Python {_listed(some)}: {text}" for text, some in why.items())
        return f"{self.size / 1e6:.1f} MB for {self.nodes}{''.join(missing)}"


def build(folder: Path) -> Artefact:
    """Build the artefact in `folder`, or find it built there; wheels are fetched once.

    Raises OSError when `folder` cannot be written to, WheelsMissing when nobody could be served.
    """
    cache = folder / "wheels"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # `check` and `run` may do this at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        gathered = _gathered(cache)
    found: dict[str, Wheels] = {}
    missing: dict[str, str] = {}
    for python, got in sorted(gathered.items(), key=lambda item: _number(item[0])):
        if isinstance(got, WheelsMissing):
            missing[python] = str(got)
        else:
            found[python] = got
    if not found:
        raise WheelsMissing("; ".join(dict.fromkeys(missing.values())))
    nodes = _nodes(found)
    path, sha256 = _written(folder, found, nodes)
    return Artefact(path, sha256, path.stat().st_size, nodes["words"], missing)


def _gathered(cache: Path) -> dict[str, Wheels | WheelsMissing]:
    """Return the wheels for each version of Python, or why there are none."""
    own = _attempt(partial(wheels.fetched, OWN_PYTHON, cache))
    if isinstance(own, WheelsMissing):
        own = _attempt(wheels.installed)
    known = {} if isinstance(own, WheelsMissing) else own
    others = [python for python in PYTHONS if python != OWN_PYTHON]
    tries = [partial(wheels.fetched, python, cache, known) for python in others]
    with ThreadPoolExecutor(len(tries)) as pool:
        return {OWN_PYTHON: own, **dict(zip(others, pool.map(_attempt, tries), strict=True))}


def _attempt(gather: Callable[[], Wheels]) -> Wheels | WheelsMissing:
    try:
        return gather()
    except WheelsMissing as error:
        return error


def _nodes(found: Mapping[str, Wheels]) -> dict[str, Any]:
    """Say for which nodes an artefact is that is built here; start.py compares."""
    system = f"{platform.system()}-{platform.machine()}".lower()
    glibc = max(wheels.glibc_of(name) for files in found.values() for name in files)
    words = f"Python {_listed(found)} on {system} with glibc {glibc[0]}.{glibc[1]} or newer"
    return {"system": system, "glibc": glibc, "words": words}


def _written(
    folder: Path, found: Mapping[str, Wheels], nodes: Mapping[str, Any]
) -> tuple[Path, str]:
    """Write the archive under a name that tells its content; give the content's hash."""
    own, code = _own_wheel()
    takes = {python: [own, *sorted(files)] for python, files in found.items()}
    document = json.dumps({**nodes, "pythons": takes}, sort_keys=True).encode()
    fetched = {name: wheel for files in found.values() for name, wheel in files.items()}
    # Stored: wheels are compressed already.
    content = wheels.packed({"pilot.json": document, own: code} | fetched, zipfile.ZIP_STORED)
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"pilot-{sha256[:16]}.zip"
    if not path.exists():
        write_atomically(path, content)
    return path, sha256


def _own_wheel() -> tuple[str, bytes]:
    """Return our own packages, with the version that the client names itself by."""
    version = metadata.version("gridbot")
    text = f"Metadata-Version: 2.1\nName: gridbot\nVersion: {version}\n"
    files = {f"gridbot-{version}.dist-info/METADATA": text.encode()}
    for package in OUR_PACKAGES:
        files |= dict(_package(package))
    return f"gridbot-{version}-py3-none-any.whl", wheels.packed(files)


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    found = util.find_spec(name)
    assert found is not None, "it is installed with us"
    root = Path(str(found.origin)).parent
    for path in root.rglob("*"):
        inside = f"{name}/{path.relative_to(root).as_posix()}"
        if path.is_file() and not _LEFT_OUT.search(inside):
            yield inside, path.read_bytes()


def _listed(pythons: Iterable[str]) -> str:
    *others, last = pythons
    return f"{', '.join(others)} and {last}" if others else last


def _number(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")))
