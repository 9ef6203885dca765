"""Instances that are too new for EC2 to list them surely: one file for each, for a minute.

A folder remembers them, because the constructor may start again within that minute.  What stops
before its file is written is found by its tag.

https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from gridbot_client.storage import write_atomically
from gridbot_overlay.decide.model import PilotState, Sighting
from gridbot_overlay.submitters import GridError, rendering

YOUNG_SECONDS = 60.0  # within which one listing may have an instance, and the next one not yet


class Young:
    """The folder with their files, named as the client tokens of their requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, native_id: str, now: float) -> None:
        """Remember an instance that was started now, s since 1970.  Raises GridError."""
        content = json.dumps([native_id, now]).encode()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._folder / f"{name}.json", content)
        except OSError as error:
            raise GridError(f"{native_id} has started, but is not written down: {error}") from error

    def unlisted(self, prefix: str, listed: Collection[str], now: float) -> list[Sighting]:
        """Return those whose tag begins with `prefix` and whose ids are not in the listing.

        What is old is forgotten.  Raises GridError for a file that cannot be read.
        """
        found = list[Sighting]()
        for file in [*self._folder.glob("*.json")]:
            try:
                native_id, made_at = _read(file)
            except FileNotFoundError:
                continue  # `gridbot overlay check`, in a process beside us, has forgotten it
            if abs(now - made_at) > YOUNG_SECONDS:  # a clock may go back
                file.unlink(missing_ok=True)
            elif native_id not in listed and (named := rendering.read_name(file.stem, prefix)):
                found.append(_sighting(*named, native_id))
        return found


def _read(file: Path) -> tuple[str, float]:
    try:
        native_id, made_at = json.loads(file.read_bytes())
        return str(native_id), float(made_at)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError) as error:
        text = f"{file} cannot be read: {error}; remove it: instances are found by their tags"
        raise GridError(text, is_lasting=True) from error


def _sighting(tag: str, index: int, native_id: str) -> Sighting:
    return Sighting(
        tag=tag, native_id=native_id, index=index, state=PilotState.QUEUED,
        reason="EC2 does not list it yet",
    )  # fmt: skip
