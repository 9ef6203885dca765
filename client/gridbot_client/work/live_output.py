"""The next bytes of what running programs print, for somebody who follows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gridbot_client.protocol.messages import (
    MAX_LIVE_BYTES,
    MAX_PIECE_BYTES,
    Followed,
    LiveOutput,
    ReplicaId,
)
from gridbot_client.work import checkpoints, outputs
from gridbot_client.work.slots import ReplicaSlot


def pieces(
    followed: Iterable[Followed], running: Mapping[ReplicaId, ReplicaSlot]
) -> list[LiveOutput]:
    """What there is of the streams that are followed, bounded in each and in all.

    Each has an equal share of what the others before it leave: none holds back those behind it.
    """
    wanted = [
        (id, item)
        for item in followed
        if (id := ReplicaId(item.bot, item.seq, item.replica)) in running
    ]
    found, left = [], MAX_LIVE_BYTES
    for number, (id, item) in enumerate(wanted):
        slot, share = running[id], left // (len(wanted) - number)
        content = _read(slot, item.stream, item.at, min(MAX_PIECE_BYTES, share))
        # Looked at afterwards: what has ended may be put together with earlier parts meanwhile.
        if content and slot.was_started:
            found.append(LiveOutput(id, item.stream, item.at, content))
            left -= len(content)
    return found


def _read(slot: ReplicaSlot, stream: str, at: int, most: int) -> bytes:
    """Bytes of a stream from an offset on: of earlier parts of the run, then of this one."""
    before, content = checkpoints.printed_before(slot, stream, at, most)
    if content:
        return content
    try:
        with outputs.open_output(slot.place(), stream) as file:
            file.seek(max(0, at - before))
            return file.read(most)
    except OSError:
        return b""
