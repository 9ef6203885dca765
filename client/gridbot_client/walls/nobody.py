"""Under a client of root, a stranger's task is nobody: the files that it may change become its."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gridbot_client.walls.cells import NAMESPACES, Cell
from gridbot_client.walls.inside import NOBODY


def give(cell: Cell, paths: Iterable[Path]) -> None:
    """Give trees to the user that a cell's task will be, if that is not the client's."""
    if os.geteuid() or not cell.is_stranger or cell.level < NAMESPACES:
        return
    for path in paths:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        for directory, folders, files in os.walk(path):
            for name in (*folders, *files):
                os.chown(os.path.join(directory, name), NOBODY, NOBODY, follow_symlinks=False)
