"""Keys that pilots trust, by fingerprint, kept in the overlay's folder.

They are pinned once; what the server says of keys later changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gridbot.api.errors import BadInput
from gridbot_client.protocol.fields import is_sha256
from gridbot_client.storage import read_json, write_atomically

FILE_NAME = "pins.json"


@dataclass(frozen=True, slots=True)
class PilotPins:
    """The project's key, and those of owners whose BOTs pilots run without the project's word."""

    project_key: str
    owners: tuple[str, ...]

    def with_owner(self, fingerprint: str) -> PilotPins:
        """The same with one more owner's key."""
        return replace(self, owners=tuple(dict.fromkeys((*self.owners, fingerprint))))

    @property
    def arguments(self) -> list[str]:
        """Options of the client that make it trust these keys, and no others."""
        trusted = [part for owner in self.owners for part in ("--trust", owner)]
        return ["--project-key", self.project_key, *trusted]


def load(folder: Path) -> PilotPins | None:
    """Read the pins of an overlay; None if nobody pinned any yet.  Raises BadInput."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    raw = read_json(path) or {}
    key, owners = raw.get("project_key"), raw.get("owners")
    if isinstance(owners, list) and all(is_sha256(str(item)) for item in (key, *owners)):
        return PilotPins(str(key), tuple(map(str, owners)))
    raise BadInput(f"{path}: holds no fingerprints; remove it to pin the keys of today")


def save(folder: Path, pins: PilotPins) -> None:
    """Write the pins of an overlay."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(folder / FILE_NAME, json.dumps(asdict(pins), indent=1).encode())
