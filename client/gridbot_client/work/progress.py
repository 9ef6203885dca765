"""How far a program is, as it says in the file that GRIDBOT_PROGRESS names.

It writes a number from 0 to 1, or a percentage such as `42%`; anything else says nothing.
"""

from __future__ import annotations

from pathlib import Path

from gridbot_client.work import outputs
from gridbot_client.work.slots import ReplicaSlot

VARIABLE = "GRIDBOT_PROGRESS"
_NAME = "tmp/progress"  # in the folder of the job
_MOST_BYTES = 64


def path_in(slot: ReplicaSlot) -> Path:
    """Where a program says it."""
    return slot.work / _NAME


def progress_of(slot: ReplicaSlot) -> float | None:
    """How far the program that runs in a place is, from 0 to 1; None if it does not say."""
    try:
        with outputs.open_output(slot, _NAME) as file:
            return read(file.read(_MOST_BYTES))
    except OSError:
        return None


def read(said: bytes) -> float | None:
    """Read what a program wrote."""
    text = said.decode("ascii", errors="replace").strip()
    number, is_percentage = (text[:-1], True) if text.endswith("%") else (text, False)
    try:
        part = float(number) / (100 if is_percentage else 1)
    except ValueError:
        return None
    return part if 0.0 <= part <= 1.0 else None
