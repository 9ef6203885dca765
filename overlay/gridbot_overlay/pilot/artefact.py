"""The one file that a pilot needs on a node with nothing but Python: the client and its wheels.

It is a zip archive of importable packages, for one version of Python on one kind of machine,
since some of them hold compiled code; `pilot.json` in it says for which.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

# Our packages that a pilot imports, and what those import: the light client without its terminal.
OUR_PACKAGES = ("gridbot_client", "gridbot_policies")
DISTRIBUTIONS = ("click", "cryptography", "google-re2", "psutil", "requests")

_LEFT_OUT = re.compile(r"(^|/)(tests?|__pycache__)/|\.(pyc|pyi|dist-info/RECORD)$|(^|/)\.\.(/|$)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_DATE = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file


@dataclass(frozen=True, slots=True)
class Artefact:
    """A built artefact: where it is, and the hash by which nodes know it."""

    path: Path
    sha256: str
    size: int


def build(folder: Path) -> Artefact:
    """Build the artefact for this Python and machine in `folder`, or find it built there.

    Raises OSError when `folder` cannot be written to.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f"pilot.{os.getpid()}.new"
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(_contents()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    sha256 = hashlib.sha256(fresh.read_bytes()).hexdigest()
    path = folder / f"pilot-{sha256[:16]}.zip"
    fresh.rename(path)
    return Artefact(path, sha256, path.stat().st_size)


def platform_of_this() -> dict[str, str]:
    """Say for which nodes an artefact is that is built here."""
    return {
        "python": "{}.{}".format(*sys.version_info),
        "system": platform.system().lower(),
        "machine": platform.machine().lower(),
    }


def _contents() -> Iterator[tuple[str, bytes]]:
    yield "pilot.json", json.dumps(platform_of_this(), sort_keys=True).encode()
    for package in OUR_PACKAGES:
        yield from _package(package)
    yield from _metadata("gridbot")
    for name in sorted(_with_requirements(DISTRIBUTIONS)):
        yield from _distribution(name)


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    found = util.find_spec(name)
    assert found is not None, "it is installed with us"
    root = Path(str(found.origin)).parent
    for path in root.rglob("*"):
        inside = f"{name}/{path.relative_to(root).as_posix()}"
        if path.is_file() and not _LEFT_OUT.search(inside):
            yield inside, path.read_bytes()


def _metadata(name: str) -> Iterator[tuple[str, bytes]]:
    """The version that the client names itself by."""
    version = metadata.version(name)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    yield f"{name}-{version}.dist-info/METADATA", text.encode()


def _distribution(name: str) -> Iterator[tuple[str, bytes]]:
    for file in metadata.distribution(name).files or ():
        inside = file.as_posix()
        if not _LEFT_OUT.search(inside) and not inside.startswith("/"):
            yield inside, Path(str(file.locate())).read_bytes()


def _with_requirements(names: tuple[str, ...]) -> set[str]:
    """Return the distributions and all that they require here, extras left out."""
    found: set[str] = set()
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name in found or not _is_installed(name):  # another platform's requirement
            continue
        found.add(name)
        for requirement in metadata.requires(name) or ():
            required = _NAME.match(requirement)
            if required and "extra ==" not in requirement:
                wanted.append(required[0])
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
