"""What holds of any file system, also one that several machines share, such as NFS."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

# What fsync says of a directory where a file system syncs none.
_SYNCS_NONE = (errno.EINVAL, errno.ENOTSUP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def sync_directory(path: Path) -> None:
    """Let the names in a directory survive a crash of the machine.  Raises OSError.

    A file system that syncs no directories promises nothing of its names.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _SYNCS_NONE:
            raise
    finally:
        os.close(descriptor)


def time_at(folder: Path) -> float:
    """Seconds since 1970 by the clock that dates a folder's files, perhaps another machine's.

    A file is touched there, without a name; where there is no room for one, the folder is.  Raises
    OSError.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as touched:
            return os.fstat(touched.fileno()).st_mtime
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
    os.utime(folder)
    return folder.stat().st_mtime
