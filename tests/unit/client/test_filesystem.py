from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gridbot_client.filesystem import sync_directory, time_at


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


def test_what_time_it_is_on_a_disk_without_room_its_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    os.utime(tmp_path, (1.0, 1.0))
    assert time_at(tmp_path) == tmp_path.stat().st_mtime > 1.0
