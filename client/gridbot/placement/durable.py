"""Names that survive a crash of the machine."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


def sync_names(file: Path) -> None:
    """Sync all folders on the way to a file: one who was killed before may have made some.

    Those above its own that this user may not read are left out.  A file system that syncs no
    folders promises nothing of its names.  Raises OSError.
    """
    folder, *above = file.parents
    _sync(folder)
    for each in above:
        with suppress(PermissionError):
            _sync(each)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
