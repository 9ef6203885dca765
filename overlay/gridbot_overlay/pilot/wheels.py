"""The wheels that pilots need, for the versions of Python that nodes may have.

They are those of the distributions that the constructor itself runs with, fetched by pip.  Where
pip gets none, what is installed here serves nodes with the constructor's own version of Python.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OWN_PYTHON = "{}.{}".format(*sys.version_info)
# What the client imports, and what that requires: the light client without its terminal.
DISTRIBUTIONS = ("click", "cryptography", "google-re2", "nvidia-ml-py", "psutil", "requests")
Glibc = tuple[int, int]
Wheels = Mapping[str, bytes]  # by name

_NEWEST_GLIBC = 28  # that of RHEL 8 and Debian 10: older nodes have no such Python anyway
_OLDEST_GLIBC = 5
_LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_SECONDS = 120.0  # for the wheels of one version
_MESSAGE_CHARACTERS = 300
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MANYLINUX = re.compile(r"(manylinux\d+)_(?!\d+_)|manylinux_(\d+)_(\d+)_")
_LEFT_OUT = re.compile(r"(^|/)__pycache__/|(^|/)\.\.(/|$)|^/")
_DATE = (1980, 1, 1, 0, 0, 0)


class WheelsMissing(Exception):
    """The wheels for one version of Python cannot be had; says why."""


def fetched(python: str, cache: Path, known: Wheels = MappingProxyType({})) -> dict[str, bytes]:
    """Return the wheels for a version of Python by name, from the cache or an index.

    Those that are `known` from another version and fit all are not asked for.  Raises
    WheelsMissing in pip's words.
    """
    portable = {name: wheel for name, wheel in known.items() if fits_all(name)}
    there = {_normal(name.partition("-")[0]) for name in portable}
    pins = [f"{name}=={metadata.version(name)}" for name in sorted(_with_requirements() - there)]
    request = [*_for(python), *pins]
    key = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:16]
    place = cache / f"{python}-{key}"
    if not _is_whole(place, len(pins)):
        _drop(cache, python)
        fresh = cache / f"{python}-{key}.new"
        _download(request, fresh)
        fresh.rename(place)
    return portable | {path.name: path.read_bytes() for path in place.iterdir()}


def installed() -> dict[str, bytes]:
    """Return wheels of what is installed here.  Raises WheelsMissing."""
    return dict(map(_packed_again, sorted(_with_requirements())))


def packed(files: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of files, such as a wheel; the same files give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name], how)
    return content.getvalue()


def fits_all(wheel: str) -> bool:
    """Tell whether a wheel is the same for all versions of Python, by its name."""
    *_, python, abi, _ = wheel.split("-")
    if abi == "abi3":
        return int(python.removeprefix("cp3")) <= min(int(known[2:]) for known in PYTHONS)
    return abi == "none" and "py3" in python.split(".")


def glibc_of(wheel: str) -> Glibc:
    """Return the oldest C library that a wheel's compiled parts run with, by its name."""
    tags = wheel.removesuffix(".whl").rpartition("-")[2].split(".")
    return min(map(_glibc, tags))


def _glibc(tag: str) -> Glibc:
    if tag == "any":
        return 0, 0
    if found := _MANYLINUX.match(tag):
        return _LEGACY[found[1]] if found[1] else (int(found[2]), int(found[3]))
    # Built on this machine, for it.
    major, minor, *_ = (*map(int, re.findall(r"\d+", platform.libc_ver()[1])), 0, 0)
    return major, minor


def _for(python: str) -> list[str]:
    """Render pip's options for a version, on nodes such as this machine."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)]
    abis = (f"cp{python.replace('.', '')}", "abi3", "none")
    return [
        "--implementation=cp",
        f"--python-version={python}",
        *(f"--abi={abi}" for abi in abis),
        *(f"--platform={name}_{machine}" for name in [*platforms, *_LEGACY]),
    ]


def _download(request: list[str], folder: Path) -> None:
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check")
    patience = ("--timeout=15", "--retries=1", "--quiet", "--dest", str(folder))
    command = [sys.executable, "-m", "pip", "download", *options, *patience, *request]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise WheelsMissing(f"pip download did not end within {_SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        words = " ".join(lines) or done.stderr.strip() or f"exit code {done.returncode}"
        raise WheelsMissing(f"pip download: {words[-_MESSAGE_CHARACTERS:]}")


def _is_whole(place: Path, count: int) -> bool:
    wheels = list(place.glob("*.whl"))
    return len(wheels) == count and all(map(zipfile.is_zipfile, wheels))


def _drop(cache: Path, python: str) -> None:
    """Remove what was fetched for an earlier release, or by half."""
    for path in cache.glob(f"{python}-*"):
        shutil.rmtree(path)


def _with_requirements() -> set[str]:
    """Return the distributions and all that they require here, extras left out."""
    found: set[str] = set()
    wanted = list(DISTRIBUTIONS)
    while wanted:
        name = wanted.pop()
        if name in found or not _is_installed(name):  # another platform's requirement
            continue
        found.add(name)
        for requirement in metadata.requires(name) or ():
            required = _NAME.match(requirement)
            if required and "extra ==" not in requirement:
                wanted.append(_normal(required[0]))
    return found


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _packed_again(name: str) -> tuple[str, bytes]:
    """Return an installed distribution as the wheel that it was."""
    found = metadata.distribution(name)
    files = {file.as_posix(): Path(str(file.locate())) for file in found.files or ()}
    kept = {inside: path for inside, path in files.items() if not _LEFT_OUT.search(inside)}
    if not kept:
        raise WheelsMissing(f"{name} is installed without a list of its files")
    tag = ".".join(_platforms(found)) or f"linux_{platform.machine()}"
    wheel = f"{name.replace('-', '_')}-{found.version}-installed-{tag}.whl"
    return wheel, packed({inside: path.read_bytes() for inside, path in kept.items()})


def _platforms(found: metadata.Distribution) -> Iterator[str]:
    for line in (found.read_text("WHEEL") or "").splitlines():
        if line.startswith("Tag:"):
            yield line.rpartition("-")[2]
