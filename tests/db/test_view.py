from pathlib import Path

from gridbot_client.protocol.messages import WHY
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.layout import BotSnapshot, Item
from gridbot_server.dispatch.choose import COPIES_PER_REQUEST
from gridbot_server.dispatch.view import WaitingCopies

DETAIL = b'{"holders":[],"failed":[],"replicas":[],"pool":null}'
MORE = 6  # copies beyond those that one request looks at
MINE, OTHER = 7, 8  # generations of web processes


def waiting(path: Path) -> tuple[SchedulingBuffer, WaitingCopies]:
    buffer = SchedulingBuffer.create(
        path, slots=COPIES_PER_REQUEST + MORE, slot_bytes=256, machine="m", database="d"
    )
    state = BotSnapshot(
        1, version=1, owner=1, size=100, fresh_unsent=0, copies_unsent=100, running=0, done=0,
        failed=0, tail=True, created_at=0.0, mean_turnaround=None,
    )  # fmt: skip
    buffer.publish([state], 0.0, 0)
    why = WHY.index("quorum")
    buffer.put([Item(1, seq, 2, 0, why, b"body", DETAIL) for seq in range(buffer.slots)], 0.0)
    return buffer, WaitingCopies(buffer, buffer.segments()[0], 0, 0.0)


def test_copies_beyond_those_looked_at_are_seen_once_all_of_these_were_taken(
    tmp_path: Path,
) -> None:
    _, copies = waiting(tmp_path / "buffer")
    first = copies()
    assert len(first) == COPIES_PER_REQUEST
    assert len(copies.take([copy.slot for copy in first[1:]], MINE)) == COPIES_PER_REQUEST - 1
    assert (copies(), copies.left) == (first[:1], MORE + 1)
    copies.take([first[0].slot], MINE)
    assert [copy.seq for copy in copies()] == [
        *range(COPIES_PER_REQUEST, COPIES_PER_REQUEST + MORE)
    ]


def test_a_copy_that_another_process_took_is_not_offered_again(tmp_path: Path) -> None:
    buffer, copies = waiting(tmp_path / "buffer")
    one, other = (copy.slot for copy in copies()[:2])
    buffer.take_copies([one], OTHER)
    assert copies.take([one, other], MINE) == [other]
    assert {one.seq, other.seq}.isdisjoint(copy.seq for copy in copies())
