"""A claim about a server whose disk is full: its database, its files and its logs have no room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.system import crashes
from tests.system.deployment import Deployment, eventually


@pytest.fixture
def on_small_disk(private_directory: Path) -> Iterator[Deployment]:
    """A server that was not started yet, on a disk of its own."""
    disk = private_directory / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=400m,mode=711", "tmpfs", str(disk)]
    if subprocess.run(["mount", *options], capture_output=True).returncode != 0:
        assert "CI" not in os.environ, "only root can mount a small disk"
        pytest.skip("only root can mount a small disk")
    made = Deployment(disk)
    try:
        yield made
    finally:
        made.stop()
        subprocess.run(["umount", "--lazy", disk], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Take all room of a disk."""
    ballast = disk / "ballast"
    piece = bytes(1 << 16)
    with ballast.open("wb", buffering=0) as file:
        while piece:
            try:
                file.write(piece)
            except OSError:  # there may be room for less
                piece = piece[: len(piece) // 2]
    yield
    ballast.unlink()


def test_on_a_full_disk_nothing_acknowledged_is_lost_and_work_goes_on_once_there_is_room(
    on_small_disk: Deployment,
) -> None:
    server = on_small_disk
    server.configure(buffer_slots=256)
    server.start()
    with crashes.loaded(server, seed=1) as load:
        eventually(lambda: load.acknowledged, what="a first report")
        assert load.refusals == []
        with filled(server.folder):
            eventually(lambda: load.refusals.count(503) > 10, what="refusals")
        before = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > before + 100, 120, "work once there is room")
        load.drain()
    assert crashes.wrong_outcomes(server, load) == []
    assert crashes.lost_reports(server, load) == []
    assert crashes.violations(server, idle=False) == []
