"""What holds of any file system, also one that several machines share, such as NFS."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def time_at(folder: Path) -> float:
    """Seconds since 1970 by the clock that dates a folder's files, perhaps another machine's.

    A file is touched there, without a name.  Raises OSError.
    """
    with tempfile.TemporaryFile(dir=folder) as touched:
        return os.fstat(touched.fileno()).st_mtime
