from __future__ import annotations

import os
from pathlib import Path

import pytest

from gridbot_client.filesystem import sync_directory


def test_a_file_system_that_syncs_no_directories_is_no_error() -> None:
    descriptor = os.open("/proc/self", os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid argument"):
        os.fsync(descriptor)
    os.close(descriptor)
    sync_directory(Path("/proc/self"))


def test_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "file")
