"""Sleeping until a pipe or the database wakes one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gridbot_server.buffer.wake_up import WakeUpPipe, feeder_pipe, notify
from gridbot_server.storage import db

PATIENCE = 60.0


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[WakeUpPipe]:
    with closing(WakeUpPipe(feeder_pipe(tmp_path / "buffer"))) as found:
        yield found


@pytest.fixture
def listener(dsn: str) -> Iterator[db.PostgresConnection]:
    with db.connect(dsn, "listener", autocommit=True) as found:
        found.execute("LISTEN news")
        yield found


def test_a_byte_in_the_pipe_wakes(pipe: WakeUpPipe, tmp_path: Path) -> None:
    notify(tmp_path / "buffer")
    assert pipe.wait(PATIENCE)
    assert not pipe.wait(0.0)


def test_a_notification_wakes_once(
    pipe: WakeUpPipe, listener: db.PostgresConnection, conn: db.PostgresConnection
) -> None:
    conn.execute("NOTIFY news")
    assert pipe.wait(PATIENCE, listener)
    assert not pipe.wait(0.0, listener)


def test_a_notification_that_came_with_an_answer_wakes_as_well(
    pipe: WakeUpPipe, listener: db.PostgresConnection, conn: db.PostgresConnection
) -> None:
    conn.execute("NOTIFY news")
    listener.execute("SELECT 1")  # its answer brings the notification, and the socket is empty now
    began = time.monotonic()
    assert pipe.wait(PATIENCE, listener)
    assert time.monotonic() - began < PATIENCE
    assert not pipe.wait(0.0, listener)
