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

from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_server.boinc.application import shim
from gridbot_server.signing.stock_clients import Unsuitable

COMPILER = "x86_64-w64-mingw32-gcc-win32"  # another flavour makes other bytes
PACKAGE = "gcc-mingw-w64-x86-64-win32"
_OPTIONS = ("-std=gnu11", "-Os", "-s", "-Wl,--no-insert-timestamp")
_BUILD_SECONDS = 120.0
_LAST_LINE_BYTES = len("size 0000000000\n")
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
        made = subprocess.run(
            [compiler, *_OPTIONS, "-o", "shim.exe", *sources],
            cwd=folder, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS,
        )  # fmt: skip
        if made.returncode:
            raise Unsuitable(f"{COMPILER} cannot build what runs it: {made.stderr[-500:]}")
        return (folder / "shim.exe").read_bytes()


def check_names(names: Iterable[str]) -> None:
    """Raise Unsuitable unless each is a file of its own on Windows, beside the others."""
    seen: dict[str, str] = {}
    for name in names:
        for part in name.split("/"):
            if _DEVICE.match(part) or part.endswith("."):
                raise Unsuitable(f"file {name} would be another one on Windows")
        if other := seen.get(name.lower()):
            raise Unsuitable(f"files {other} and {name} would be one on Windows")
        seen[name.lower()] = name


def _lines(manifest: Manifest) -> Iterator[str]:
    shim.check(manifest)
    if manifest.archives:
        raise Unsuitable("its inputs have directories, which nothing unpacks on Windows")
    if manifest.checkpoint:
        raise Unsuitable("it asks for checkpoints, which are not kept on Windows")
    check_names(ref.name for ref in manifest.inputs)
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
    for first, *rest in shim.argument_parts(manifest):
        word = f"word '{shim.encoded(first)}"
        for number, after in zip(rest[::2], rest[1::2], strict=True):
            word += f" ${number} '{shim.encoded(after)}"
        yield word
    for output in manifest.outputs:
        is_pattern = shim.is_pattern(output)
        yield f"match {output}" if is_pattern else f"pick {shim.checked(output)}"
    if single := shim.single_output(manifest):
        yield f"single {single}"
