"""Files of jobs on a disk that has room for some of them."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from gridbot.gatekeeper.descriptions import SentFile
from gridbot.gatekeeper.files import BLOCK_BYTES, ArcOutput, CutShort, JobFiles, is_full

FREE_BYTES, STAY_FREE_BYTES = 3 * BLOCK_BYTES, 1000


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFiles:
    """On a disk that says that it has room for three blocks, whatever is written."""
    usage = shutil.disk_usage(tmp_path)._replace(free=FREE_BYTES + STAY_FREE_BYTES)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    return JobFiles(tmp_path / "files", STAY_FREE_BYTES)


def send(files: JobFiles, id: str, size: int) -> None:
    files.receive(id, SentFile("a"), size, bytes, nullcontext())


def write_nothing(place: Path) -> None:
    place.touch()


def test_files_that_come_at_once_get_no_more_room_than_there_is(files: JobFiles) -> None:
    blocks = 0

    def read(size: int) -> bytes:
        """The next block of a file of two, while others want to have what is left."""
        nonlocal blocks
        free = BLOCK_BYTES * (1 + blocks)  # a block that was written is held no more
        with pytest.raises(OSError, match=f"room for {free + 1} bytes") as refused:
            send(files, "second", free + 1)
        assert is_full(refused.value)
        with pytest.raises(OSError, match=f"room for {free + 1} bytes"):
            files.keep("third", {"a": ArcOutput(free + 1, write_nothing)})
        send(files, "fourth", free)
        blocks += 1
        return bytes(size)

    files.receive("first", SentFile("a"), 2 * BLOCK_BYTES, read, nullcontext())
    assert blocks == 2
    assert (files.inputs("first") / "a").stat().st_size == 2 * BLOCK_BYTES
    assert not files.inputs("second").exists()
    assert not files.outputs("third").exists()
    send(files, "second", FREE_BYTES)
    files.keep("third", {"a": ArcOutput(FREE_BYTES, write_nothing)})


def test_what_does_not_arrive_holds_no_room(files: JobFiles) -> None:
    with pytest.raises(CutShort, match="a: 10 of 10 bytes are missing"):
        files.receive("first", SentFile("a"), 10, lambda _: b"", nullcontext())
    send(files, "second", FREE_BYTES)
