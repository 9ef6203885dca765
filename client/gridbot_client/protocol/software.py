"""What the jobs of a BOT share on a host: directories, an environment of Python, an image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gridbot_client.protocol import fields
from gridbot_client.protocol.fields import MAX_BIGINT, ProtocolError

MAX_ENTRIES = 1_000_000  # of one archive
SIF = ".sif"  # how names of Apptainer's own images end
RUNTIMES = ("podman", "apptainer")  # of containers; the first that is there is used
# As `podman run` takes it; no option, since it begins with a letter or digit.
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._:/@+-]{0,254}")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Size of what is in an archive: bytes of its files, and number of its entries."""

    bytes: int
    entries: int


def read_archives(raw: Mapping[str, Any]) -> dict[str, Unpacked]:
    """Validate sizes of archives, by name."""
    found = {name: fields.mapping(item, f"archives.{name}") for name, item in raw.items()}
    return {
        name: Unpacked(
            bytes=fields.integer(item, "bytes", 0, MAX_BIGINT),
            entries=fields.integer(item, "entries", 0, MAX_ENTRIES),
        )
        for name, item in found.items()
    }


def runtimes_of(image: str) -> tuple[str, ...]:
    """Runtimes that can run an image, by its name."""
    return RUNTIMES[1:] if image.endswith(SIF) else RUNTIMES


def read_image(raw: Mapping[str, Any]) -> str:
    """Validate the name of an image, or of the input that is one."""
    name = fields.string(raw, "image", 255, "")
    if name and not (_IMAGE.fullmatch(name) or fields.is_file_name(name)):
        raise ProtocolError(f"image: {name!r} is neither the name of an image nor that of an input")
    return name


def check_archives(archives: Iterable[str], inputs: Mapping[str, bool], stdin: str) -> None:
    """Make sure that each archive is an input, and that nothing else is in its directory.

    `inputs` says of each which is executable.  Raises ProtocolError.
    """
    for archive in archives:
        if inputs.get(archive, True):
            raise ProtocolError(f"archives: {archive!r} is not the name of an input that is data")
        if archive == stdin:
            raise ProtocolError(f"stdin: {stdin} is a directory")
        if other := covered(archive, inputs.keys() - {archive}):
            raise ProtocolError(
                f"inputs: {other} would lie in the directory {archive}, or above it, which is"
                " read-only; rename one"
            )


def check_environments(
    *,
    requirements: str,
    conda_pack: str,
    image: str,
    inputs: Iterable[str],
    archives: Iterable[str],
) -> None:
    """Make sure that there is one environment at most, and that its file is there.

    Raises ProtocolError.
    """
    asked = {"requirements": requirements, "conda_pack": conda_pack, "image": image}
    given = [name for name, value in asked.items() if value]
    if len(given) > 1:
        raise ProtocolError(f"{given[0]}: a BOT has one environment, and {given[1]} is given, too")
    if requirements and requirements not in {*inputs} - {*archives}:
        raise ProtocolError(f"requirements: {requirements!r} is not the name of an input")
    if conda_pack and conda_pack not in archives:
        raise ProtocolError(f"conda_pack: {conda_pack!r} is not the name of an archive")
    if image in archives:
        raise ProtocolError(f"image: {image!r} is a directory")


def covered(archive: str, names: Iterable[str]) -> str:
    """The first of some names that is not beside a directory but in it, it, or above it; or ""."""
    for name in names:
        if f"{name}/".startswith(f"{archive}/") or archive.startswith(f"{name}/"):
            return name
    return ""
