"""Names that survive a crash of the machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gridbot_client.filesystem import sync_directory


def sync_names(file: Path) -> None:
    """Sync all folders on the way to a file: one who was killed before may have made some.

    Those above its own that this user may not read are left out.  Raises OSError.
    """
    folder, *above = file.parents
    sync_directory(folder)
    for each in above:
        with suppress(PermissionError):
            sync_directory(each)
