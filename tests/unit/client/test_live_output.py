"""What a client sends of the streams that are followed."""

from __future__ import annotations

from pathlib import Path

from gridbot_client.protocol.messages import (
    MAX_FOLLOWED,
    MAX_LIVE_BYTES,
    MAX_PIECE_BYTES,
    Followed,
    ReplicaId,
)
from gridbot_client.work.live_output import pieces
from gridbot_client.work.slots import ReplicaSlot, RunRecord

MUCH = 1 << 20


def printed(folder: Path, bot: int, size: int) -> tuple[ReplicaId, ReplicaSlot]:
    """A replica that runs and has printed so many bytes."""
    id = ReplicaId(bot, 0, 1)
    slot = ReplicaSlot(folder / str(bot), id)
    slot.path.mkdir()
    slot.save_run(RunRecord(starts=1))
    slot.stdout.write_bytes(bytes(size))
    return id, slot


def test_jobs_that_print_much_do_not_hold_back_others_that_are_followed(tmp_path: Path) -> None:
    running = dict(printed(tmp_path, bot, MUCH) for bot in range(1, MAX_FOLLOWED))
    running.update([printed(tmp_path, MAX_FOLLOWED, 10)])
    found = pieces([Followed(*id, "stdout", 0) for id in running], running)
    assert [piece.id for piece in found] == list(running)
    assert found[-1].content == bytes(10)
    assert sum(len(piece.content) for piece in found) <= MAX_LIVE_BYTES


def test_what_others_do_not_need_goes_to_who_prints_much(tmp_path: Path) -> None:
    running = dict([printed(tmp_path, 1, 10), printed(tmp_path, 2, 0), printed(tmp_path, 3, MUCH)])
    ended = Followed(4, 0, 1, "stdout", 0)
    found = pieces([ended, *(Followed(*id, "stdout", 0) for id in running)], running)
    assert [len(piece.content) for piece in found] == [10, MAX_PIECE_BYTES]
