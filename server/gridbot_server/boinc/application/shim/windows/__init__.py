"""The program that runs a BOT's command under a stock client on Windows: `main.c` and its parts.

Debian's mingw-w64 builds it, byte for byte the same from the same version of the compiler.  What it
may run is appended as lines of text, so that one signature covers both, as with the shell script.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path

from gridbot_client.protocol.fields import STREAMS
from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_server.boinc.application import shim
from gridbot_server.signing.stock_clients import Unsuitable

COMPILER = "x86_64-w64-mingw32-gcc-win32"  # another flavour makes other bytes
PACKAGE = "gcc-mingw-w64-x86-64-win32"
_OPTIONS = ("-std=gnu11", "-Os", "-s", "-Wl,--no-insert-timestamp")
_BUILD_SECONDS = 120.0
_LAST_LINE_BYTES = len("size 0000000000\n")
_MOST_CHARACTERS = 32_000  # of the command; `process.c` refuses more
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)


def render(manifest: Manifest) -> bytes:
    """The program that runs this manifest's jobs, the same for equal manifests.

    Raises Unsuitable for what it cannot do, and where it cannot be built.
    """
    lines = "".join(f"{line}\n" for line in _lines(manifest))
    size = 1 + len(lines) + _LAST_LINE_BYTES
    return build() + f"\n{lines}size {size:010}\n".encode("ascii")


@lru_cache(maxsize=1)
def build() -> bytes:
    """The program without anything to run; Unsuitable where there is no compiler."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise Unsuitable(
            f"there is no {COMPILER} here, which builds what runs it on Windows: install Debian's"
            f" package {PACKAGE}, also where signatures are taken, or leave that platform out"
        )
    with tempfile.TemporaryDirectory(prefix="gridbot-shim-") as name:
        folder = Path(name)
        for source in resources.files(__name__).iterdir():
            if source.name.endswith((".c", ".h")):
                (folder / source.name).write_bytes(source.read_bytes())
        sources = sorted(path.name for path in folder.glob("*.c"))
        try:
            made = subprocess.run(
                [compiler, *_OPTIONS, "-o", "shim.exe", *sources],
                cwd=folder, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unsuitable(f"{COMPILER} cannot build what runs it: {error}") from None
        if made.returncode:
            raise Unsuitable(f"{COMPILER} cannot build what runs it: {made.stderr[-500:]}")
        return (folder / "shim.exe").read_bytes()


def file_names(manifest: Manifest) -> Iterator[str]:
    """Names of the files of all jobs: of their inputs, and of outputs that are no patterns."""
    yield from (ref.name for ref in manifest.inputs)
    yield from (
        name for name in manifest.outputs if name not in STREAMS and not shim.is_pattern(name)
    )


def check_names(names: Iterable[str]) -> None:
    """Raise Unsuitable for a name that Windows takes for another of them, or for a device.

    So it is with those of folders: a file `a` leaves no room for `A/b`, nor may one be named `Tmp`.
    """
    seen = {"tmp": "tmp"}  # which each job has
    for name in names:
        parts = name.split("/")
        for part in parts:
            if _DEVICE.match(part) or part.endswith("."):
                raise Unsuitable(f"file {name} would be another one on Windows")
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            if (other := seen.setdefault(path.lower(), path)) != path:
                raise Unsuitable(f"files {other} and {path} would be one on Windows")


def _lines(manifest: Manifest) -> Iterator[str]:
    shim.check(manifest)
    if manifest.archives:
        raise Unsuitable("its inputs have directories, which nothing unpacks on Windows")
    if manifest.checkpoint:
        raise Unsuitable("it asks for checkpoints, which are not kept on Windows")
    check_names(file_names(manifest))
    limits = manifest.resources
    yield f"# Manifest {manifest_id(manifest.text())}"
    yield f"seconds {math.ceil(limits.seconds)}"
    yield f"memory {limits.memory_mb << 20}"
    yield f"disk {limits.disk_mb << 20}"
    yield f"output {manifest.max_output_bytes}"
    for name in shim.value_names(manifest):
        yield f"{manifest.placeholders[name]} {shim.encoded(name)}"
    for ref in manifest.inputs:
        yield f"input {shim.checked(ref.name)}"
    words = list(shim.argument_parts(manifest))
    _check_length(words)
    for first, *rest in words:
        word = f"word '{shim.encoded(first)}"
        for number, after in zip(rest[::2], rest[1::2], strict=True):
            word += f" ${number} '{shim.encoded(after)}"
        yield word
    for output in manifest.outputs:
        is_pattern = shim.is_pattern(output)
        yield f"match {output}" if is_pattern else f"pick {shim.checked(output)}"
    if single := shim.single_output(manifest):
        yield f"single {single}"


def _check_length(words: Iterable[list[str]]) -> None:
    """Raise Unsuitable for a command that no values make short enough."""
    length = sum(1 + sum(map(len, parts[::2])) for parts in words)  # with a space behind each
    if length > _MOST_CHARACTERS:
        raise Unsuitable(
            f"the command has {length} characters, at most {_MOST_CHARACTERS} are for Windows: put"
            " them into an input file"
        )
