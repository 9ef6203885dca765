"""The manifest of a BOT, which is hashed, signed and sent: command, inputs, resource limits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gridbot_client.protocol import fields
from gridbot_client.protocol.fields import MAX_BIGINT, file_name

PLACEHOLDER_TYPES = ("int", "real", "text")


@dataclass(frozen=True, slots=True)
class FileRef:
    """A content-addressed file: its name in the slot directory, hash and size."""

    name: str
    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """Resource limits of one replica; clients enforce them, the server matches hosts by them."""

    cpus: int = 1
    memory_mb: int = 512
    disk_mb: int = 1024
    seconds: float = 86_400.0  # wall clock
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """Command of a BOT's replicas: argv template, typed placeholders, inputs, limits.

    The project key signs exactly `text()`; the manifest's id is its SHA-256.  No shell is
    involved: a placeholder is replaced inside one argument, by a value of its type.
    """

    owner: str
    command: tuple[str, ...]
    placeholders: Mapping[str, str] = field(default_factory=dict)  # name -> int, real or text
    inputs: tuple[FileRef, ...] = ()
    outputs: tuple[str, ...] = ("stdout",)  # names or glob patterns in the slot directory
    resources: Resources = field(default_factory=Resources)
    max_output_bytes: int = 64 * 1024 * 1024  # all outputs of one replica together
    platforms: tuple[str, ...] = ()  # e.g. "linux-x86_64"; empty = any

    def text(self) -> str:
        """Canonical JSON that is hashed, signed and sent."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Manifest:
        """Parse a manifest.  Raises ProtocolError that names the wrong field."""
        raw = fields.mapping(fields.parse(text), "manifest")
        return cls(
            owner=fields.string(raw, "owner", 200),
            command=tuple(
                fields.text(part, "command", 8192) for part in fields.listing(raw, "command", 1000)
            ),
            placeholders={
                fields.text(name, "placeholders", 100): fields.one_of(
                    kind, "placeholders", PLACEHOLDER_TYPES
                )
                for name, kind in fields.mapping(
                    raw.get("placeholders", {}), "placeholders"
                ).items()
            },
            inputs=tuple(file_ref(item) for item in fields.listing(raw, "inputs", 10_000)),
            outputs=tuple(
                fields.text(item, "outputs", 400) for item in fields.listing(raw, "outputs", 256)
            ),
            resources=resources(fields.mapping(raw.get("resources", {}), "resources")),
            max_output_bytes=fields.integer(raw, "max_output_bytes", 0, MAX_BIGINT),
            platforms=tuple(
                fields.text(item, "platforms", 100) for item in fields.listing(raw, "platforms", 20)
            ),
        )


def manifest_id(text: str) -> str:
    """Id of a manifest: the SHA-256 of its text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_ref(raw: object) -> FileRef:
    """Validate a file reference with a safe relative name."""
    item = fields.mapping(raw, "file")
    return FileRef(
        name=file_name(item.get("name"), "file.name"),
        sha256=fields.sha256(item.get("sha256"), "file.sha256"),
        size=fields.integer(item, "size", 0, MAX_BIGINT),
        executable=item.get("executable") is True,
    )


def resources(raw: Mapping[str, Any]) -> Resources:
    """Validate resource limits."""
    default = Resources()
    return Resources(
        cpus=fields.integer(raw, "cpus", 1, 4096, default.cpus),
        memory_mb=fields.integer(raw, "memory_mb", 1, 1 << 30, default.memory_mb),
        disk_mb=fields.integer(raw, "disk_mb", 1, 1 << 30, default.disk_mb),
        seconds=fields.number(raw, "seconds", 0.001, 365 * 86_400.0, default.seconds),
        gpus=fields.integer(raw, "gpus", 0, 64, default.gpus),
    )
