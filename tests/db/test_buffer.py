from __future__ import annotations

import fcntl
import linecache
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.db.dispatching import Dispatch, caller, dispatching
from tests.factories import make_bot, make_client, make_lease, make_owner

from gridbot_client.protocol.messages import WHY, ReplicaId
from gridbot_server.buffer import liveness
from gridbot_server.buffer import memory as memory_module
from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.layout import (
    BOT_BYTES,
    SLOT_BYTES,
    BotSnapshot,
    BufferDamaged,
    BufferMissing,
    Item,
    Slot,
    SlotState,
)
from gridbot_server.storage import db
from gridbot_server.storage.db import PostgresConnection, web_process

MINE, OTHER = 7, 8  # generations of web processes
SLOT_SIZE = 256
Names = Counter[ReplicaId]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.buffer"


@pytest.fixture
def dispatch(dsn: str, conn: PostgresConnection, path: Path) -> Iterator[Dispatch]:
    with dispatching(dsn, conn, path) as made:
        yield made


def create(path: Path, slots: int = 16) -> SchedulingBuffer:
    return SchedulingBuffer.create(
        path, slots=slots, slot_bytes=SLOT_SIZE, machine="machine", database="database"
    )


def bot_state(bot: int) -> BotSnapshot:
    return BotSnapshot(
        bot, version=1, owner=1, size=100, fresh_unsent=50, copies_unsent=5, running=0, done=0,
        failed=0, tail=False, created_at=0.0, mean_turnaround=None, segment=10, unclaimed=50,
    )  # fmt: skip


def fresh(bot: int, seq: int, body: bytes = b"body") -> Item:
    return Item(bot, seq, 1, 0, WHY.index("first"), body)


def copy(bot: int, seq: int, replica: int = 2, body: bytes = b"body") -> Item:
    return Item(bot, seq, replica, 0, WHY.index("tail"), body, b'{"holders":[]}')


def name(item: Slot | Item) -> ReplicaId:
    return ReplicaId(item.bot, item.seq, item.replica)


def names(slots: list[Slot]) -> Names:
    return Counter(map(name, slots))


def seqs(slots: list[Slot]) -> list[int]:
    return [slot.seq for slot in slots]


# --------------------------------------------------------------- killed at any instant


def filled(path: Path) -> SchedulingBuffer:
    """Two BOTs with first and further copies; this process has taken two and one of BOT 1."""
    made = create(path)
    made.publish([bot_state(1), bot_state(2)], 0.0, 0)
    made.put([fresh(1, seq) for seq in range(5)], 0.0)
    made.put([fresh(2, seq) for seq in range(3)], 0.0)
    made.put([copy(1, 20), copy(1, 21), copy(2, 20)], 0.0)
    made.take_fresh(1, 2, MINE)
    assert made.take_copies(made.copies(1, 1, 0), MINE)
    return made


def taken(buffer: SchedulingBuffer) -> list[int]:
    return [slot.number for slot in buffer.contents() if slot.state is SlotState.TAKEN]


NEW = [fresh(1, 50), copy(2, 51), fresh(2, 52)]

# What is done when the process dies, which replicas may be gone then, and which may be there.
OPERATIONS: dict[str, tuple[Callable[[SchedulingBuffer], Any], list[ReplicaId], list[Item]]] = {
    "take_fresh": (lambda buffer: buffer.take_fresh(1, 2, OTHER), [], []),
    "take_copies": (lambda buffer: buffer.take_copies(buffer.copies(1, 1, 0), OTHER), [], []),
    "restore": (lambda buffer: buffer.restore(taken(buffer)), [], []),
    "free": (
        lambda buffer: buffer.free(taken(buffer)),
        [ReplicaId(1, 0, 1), ReplicaId(1, 1, 1), ReplicaId(1, 20, 2)],
        [],
    ),
    "put": (lambda buffer: buffer.put(NEW, 1.0), [], NEW),
    "withdraw": (
        lambda buffer: buffer.withdraw(buffer.copies(2, 1, 0)),
        [ReplicaId(2, 20, 2)],
        [],
    ),
    "withdraw_last": (
        lambda buffer: buffer.withdraw_last(2, 3, 2),
        [ReplicaId(2, 1, 1), ReplicaId(2, 2, 1)],
        [],
    ),
    "publish": (
        lambda buffer: buffer.publish([bot_state(1), bot_state(3)], 1.0, 0),
        [ReplicaId(2, seq, 1) for seq in range(3)] + [ReplicaId(2, 20, 2)],
        [],
    ),
    "count_inversions": (lambda buffer: buffer.count_inversions(1), [], []),
}


def die_at(path: Path, operation: Callable[[SchedulingBuffer], Any], write: int) -> bool:
    """Open the buffer in another process, which dies before its n-th write; whether it died."""
    if (pid := os.fork()) == 0:
        try:
            mine = SchedulingBuffer(path)
            sys.settrace(_killer(write))
            operation(mine)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def _killer(write: int) -> Callable[[FrameType, str, Any], Any]:
    """Count the lines that write to the map, and die instead of running the n-th."""
    left = write

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != memory_module.__file__:
            return None
        if event == "line" and _writes(frame.f_lineno):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def _writes(line: int) -> bool:
    text = linecache.getline(memory_module.__file__, line)
    return ".pack_into(" in text or ("self._map[" in text and "] =" in text)


def audit(path: Path, slots: int = 16) -> Names:
    """Open the buffer as the next process does; return what is in it once all adds up."""
    buffer = SchedulingBuffer(path)
    contents = buffer.contents()
    found = names(contents)
    ready = {slot.number for slot in contents if slot.state is SlotState.READY}
    segments = {item.state.bot: item for item in buffer.segments()}
    held = buffer.held()
    assert held.fresh == sorted((slot.bot, slot.seq) for slot in contents if not slot.detail)
    assert held.slots == [slot for slot in contents if slot.detail or slot.state is SlotState.TAKEN]
    assert buffer.room == slots - len(contents)
    assert sum(item.fresh + item.copies for item in segments.values()) == len(ready)
    given = []
    for bot in segments:
        copies = buffer.copies(bot, slots, 0)
        assert buffer.take_copies(copies, OTHER) == copies
        given += [*copies, *buffer.take_fresh(bot, slots, OTHER)]
    assert sorted(slot.number for slot in given) == sorted(ready)
    assert buffer.put([fresh(1, 1000 + n) for n in range(slots)], 0.0) == slots - len(contents)
    buffer.close()
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_killed_at_any_write_loses_and_doubles_nothing(
    path: Path, operation: str
) -> None:
    act, may_go, may_come = OPERATIONS[operation]
    write, died = 0, True
    while died:
        write += 1
        buffer = filled(path)
        before = names(buffer.contents())
        buffer.close()
        died = die_at(path, act, write)
        after = audit(path)
        assert not [job for job, count in after.items() if count > 1], f"at write {write}"
        assert set(before - after) <= set(may_go), f"at write {write}"
        assert set(after - before) <= {name(item) for item in may_come}, f"at write {write}"
    assert write > 1


def test_a_process_killed_while_it_repairs_loses_nothing(path: Path) -> None:
    write, died = 0, True
    while died:
        write += 1
        before = names(filled(path).contents())
        assert die_at(path, OPERATIONS["take_fresh"][0], 3)
        died = die_at(path, lambda buffer: buffer.segments(), write)
        assert audit(path) == before, f"at write {write}"
    assert write > 20


def test_jobs_go_out_in_order_after_a_repair(path: Path) -> None:
    filled(path).close()
    assert die_at(path, OPERATIONS["count_inversions"][0], 2)
    assert seqs(SchedulingBuffer(path).take_fresh(1, 9, MINE)) == [2, 3, 4]


# ------------------------------------------------------------------- many at one time


def test_two_processes_never_get_the_same_slot(path: Path) -> None:
    buffer = create(path, slots=600)
    buffer.publish([bot_state(1)], 0.0, 0)
    buffer.put([fresh(1, seq) for seq in range(400)], 0.0)
    buffer.put([copy(1, seq) for seq in range(100)], 0.0)
    begin = multiprocessing.get_context("fork").Barrier(2)
    readers = [_taking(path, generation, begin) for generation in (MINE, OTHER)]
    shares = [reader() for reader in readers]
    assert all(shares)
    assert sorted(shares[0] + shares[1]) == sorted(
        [f"{seq} 1" for seq in range(400)] + [f"{seq} 2" for seq in range(100)]
    )
    assert len(taken(buffer)) == 500


def _taking(path: Path, generation: int, begin: Barrier) -> Callable[[], list[str]]:
    """Let a process take one by one until there is nothing; return how to read what it got.

    It begins when the other one has taken its first, so that both have a share.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            mine = SchedulingBuffer(path)
            with os.fdopen(writer, "w") as out:
                first = mine.take_fresh(1, 1, generation)[0]
                print(first.seq, first.replica, file=out)
                begin.wait(60.0)
                while one := mine.take_fresh(1, 1, generation) or [
                    slot for slot in mine.take_copies(mine.copies(1, 1, 0), generation)
                ]:
                    print(one[0].seq, one[0].replica, file=out)
                    out.flush()
        finally:
            os._exit(0)
    os.close(writer)

    def read() -> list[str]:
        with os.fdopen(reader) as lines:
            found = lines.read().splitlines()
        os.wait()
        return found

    return read


def test_threads_of_one_process_exclude_each_other_too(path: Path) -> None:
    buffer = create(path, slots=200)
    buffer.publish([bot_state(1)], 0.0, 0)
    buffer.put([fresh(1, seq) for seq in range(200)], 0.0)
    interval, begin = sys.getswitchinterval(), threading.Barrier(4)

    def take_all(generation: int) -> list[Slot]:
        begin.wait()
        taken: list[Slot] = []
        while found := buffer.take_fresh(1, 1, generation):
            taken += found
        return taken

    sys.setswitchinterval(1e-6)  # in the middle of an operation, too
    try:
        with ThreadPoolExecutor(4) as pool:
            shares = list(pool.map(take_all, range(1, 5)))
    finally:
        sys.setswitchinterval(interval)
    assert sorted(slot.seq for share in shares for slot in share) == list(range(200))


# ------------------------------------------------------------------------ single claims


def test_a_rollback_makes_slots_ready_again_in_front_and_in_order(path: Path) -> None:
    buffer = create(path)
    buffer.publish([bot_state(1)], 0.0, 0)
    buffer.put([fresh(1, seq) for seq in range(6)], 0.0)
    slots = buffer.take_fresh(1, 3, MINE)
    buffer.restore([slot.number for slot in slots])
    assert seqs(buffer.take_fresh(1, 6, MINE)) == [0, 1, 2, 3, 4, 5]


def test_a_copy_is_given_back_as_a_copy(path: Path) -> None:
    buffer = filled(path)
    buffer.restore(taken(buffer))
    (segment, _) = buffer.segments()
    assert (segment.fresh, segment.copies) == (5, 2)


def test_a_slot_that_was_freed_is_not_given_back(path: Path) -> None:
    buffer = filled(path)
    numbers = taken(buffer)
    buffer.free(numbers)
    buffer.restore(numbers)
    assert audit(path)[ReplicaId(1, 0, 1)] == 0


def test_a_copy_whose_slot_holds_another_one_now_is_not_taken(path: Path) -> None:
    buffer = create(path, slots=1)
    buffer.publish([bot_state(1)], 0.0, 0)
    buffer.put([copy(1, 5)], 0.0)
    (seen,) = buffer.copies(1, 1, 0)
    (before,) = buffer.segments()
    assert buffer.withdraw([seen]) == [seen]
    assert buffer.segments()[0].taken == before.taken  # which would call for more of them
    buffer.put([copy(1, 6)], 0.0)
    assert buffer.take_copies([seen], MINE) == []
    assert buffer.withdraw([seen]) == []
    assert seqs(buffer.copies(1, 1, 0)) == [6]


def test_looking_at_copies_goes_around(path: Path) -> None:
    buffer = create(path)
    buffer.publish([bot_state(1)], 0.0, 0)
    buffer.put([copy(1, seq) for seq in range(5)], 0.0)
    assert seqs(buffer.copies(1, 3, 3)) == [3, 4, 0]
    assert seqs(buffer.copies(1, 9, 6)) == [1, 2, 3, 4, 0]


@pytest.mark.parametrize("make", [fresh, copy])
@pytest.mark.parametrize("excess", [0, 1])
def test_a_body_that_does_not_fit_is_left_to_the_database(
    path: Path, make: Callable[..., Item], excess: int
) -> None:
    buffer = create(path)
    buffer.publish([bot_state(1)], 0.0, 0)
    room = SLOT_SIZE - SLOT_BYTES - len(make(1, 0).detail)
    body = b"x" * (room + excess)
    assert buffer.put([make(1, 0, body=body), make(1, 1, body=b"next")], 0.0) == 2
    large, small = buffer.take_fresh(1, 2, MINE) or buffer.copies(1, 2, 0)
    assert (large.body, large.detail) == (None if excess else body, make(1, 0).detail)
    assert (small.body, small.detail) == (b"next", make(1, 0).detail)


def test_a_detail_that_does_not_fit_is_refused_and_leaves_no_trace(path: Path) -> None:
    buffer = filled(path)
    before = names(buffer.contents())
    item = Item(1, 30, 2, 0, WHY.index("tail"), b"body", b"x" * SLOT_SIZE)
    with pytest.raises(ValueError, match="256 bytes of detail do not fit into a slot"):
        buffer.put([item], 0.0)
    assert audit(path) == before


def test_what_finds_no_room_is_left_out(path: Path) -> None:
    buffer = create(path, slots=3)
    buffer.publish([bot_state(1)], 0.0, 0)
    assert buffer.put([fresh(1, seq) for seq in range(5)], 0.0) == 3
    assert (buffer.room, seqs(buffer.take_fresh(1, 5, MINE))) == (0, [0, 1, 2])


def test_a_bot_that_is_over_leaves_but_for_what_is_taken(path: Path) -> None:
    buffer = filled(path)
    buffer.publish([bot_state(2)], 1.0, 0)
    assert buffer.take_fresh(1, 9, MINE) == [] == buffer.copies(1, 9, 0)
    assert {slot.bot for slot in buffer.contents() if slot.state is SlotState.READY} == {2}
    numbers = taken(buffer)
    assert len(numbers) == 3
    buffer.restore(numbers)
    assert taken(buffer) == []
    assert buffer.room == 16 - 4


def test_only_a_buffer_is_opened(path: Path) -> None:
    with pytest.raises(BufferMissing, match="is the feeder running"):
        SchedulingBuffer(path)
    path.write_bytes(b"\0" * 4096)
    with pytest.raises(BufferMissing, match="is not a scheduling buffer of this version"):
        SchedulingBuffer(path)


def test_a_process_sees_that_the_buffer_was_made_anew(path: Path) -> None:
    old = create(path)
    assert old.is_current()
    create(path)
    assert not old.is_current()
    path.unlink()
    assert not old.is_current()


# ------------------------------------------------------------ the feeder and dead processes


@pytest.fixture
def alice(conn: PostgresConnection) -> int:
    return make_owner(conn, "alice")


def taken_of(dispatch: Dispatch, generation: int) -> list[int]:
    slots = dispatch.buffer.contents()
    return sorted(slot.seq for slot in slots if slot.generation == generation)


def test_slots_of_a_dead_web_process_come_back_but_for_what_it_sent(
    dispatch: Dispatch, conn: PostgresConnection, alice: int
) -> None:
    bot = make_bot(conn, alice, jobs=4)
    dispatch.feed()
    dispatch.buffer.take_fresh(bot, 2, MINE)
    make_lease(conn, ReplicaId(bot, 1, 1), make_client(conn, alice)[0])
    dispatch.feed()
    assert taken_of(dispatch, MINE) == []
    assert seqs(dispatch.buffer.take_fresh(bot, 9, OTHER)) == [0, 2, 3]


def test_slots_of_a_living_web_process_stay_with_it(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, path: Path
) -> None:
    bot = make_bot(conn, alice, jobs=4)
    dispatch.feed()
    dispatch.buffer.take_fresh(bot, 2, MINE)
    with liveness.path_of(path, MINE).open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        dispatch.feed()
        assert taken_of(dispatch, MINE) == [0, 1]
    dispatch.feed()
    assert taken_of(dispatch, MINE) == []
    assert not liveness.path_of(path, MINE).exists()


def test_slots_of_a_dead_process_wait_for_the_end_of_its_transaction(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str
) -> None:
    bot = make_bot(conn, alice, jobs=4)
    dispatch.feed()
    dispatch.buffer.take_fresh(bot, 2, MINE)
    with db.connect(dsn, web_process(MINE)) as last:
        make_lease(last, ReplicaId(bot, 0, 1), make_client(last, alice)[0])
        dispatch.feed()
        assert taken_of(dispatch, MINE) == [0, 1]
        last.commit()
    while taken_of(dispatch, MINE):
        dispatch.feed()
    assert seqs(dispatch.buffer.take_fresh(bot, 9, OTHER)) == [1, 2, 3]


def test_a_buffer_made_anew_gets_all_that_was_not_sent(
    dispatch: Dispatch, conn: PostgresConnection, alice: int, dsn: str, tmp_path: Path
) -> None:
    make_bot(conn, alice, jobs=10, policy="Concurrency = 3")
    dispatch.feed()
    client = caller(dispatch, alice)
    sent = [item.id.seq for item in client.ask().assignments]
    with dispatching(dsn, conn, tmp_path / "second.buffer") as second:
        conn.execute("UPDATE feed_range SET machine = 'gone', expires_at = now() - interval '1 s'")
        second.feed()
        given = []
        for _ in range(4):
            given += [item.id.seq for item in caller(second, alice).ask().assignments]
    assert (sent, sorted(given)) == ([0, 1, 2], list(range(3, 10)))


@pytest.mark.parametrize("seed", range(100))
def test_of_a_damaged_buffer_nothing_is_given_that_was_not_put_in(path: Path, seed: int) -> None:
    """Bits anywhere behind the header are flipped while one process feeds and others take."""
    chance = random.Random(seed)
    buffer = create(path)
    data = bytearray(path.read_bytes())
    used = [*range(256, 256 + 2 * BOT_BYTES), *range(len(data) - 16 * SLOT_SIZE, len(data))]
    put = {(1, seq, 1, b"body") for seq in range(12)} | {(1, seq, 2, b"body") for seq in range(4)}
    given = set()
    with pytest.raises(BufferMissing):
        for round_ in range(50):
            buffer.publish([bot_state(1)], 0.0, 0)
            buffer.put([fresh(1, seq) for seq in range(8)], 0.0)
            buffer.put([copy(1, seq) for seq in range(4)], 0.0)
            if round_:
                flip(path, [chance.choice(used) for _ in range(5)], chance)
            slots = [*buffer.take_fresh(1, 8, MINE)]
            slots += buffer.take_copies(buffer.copies(1, 4, 0), MINE)
            given |= {(slot.bot, slot.seq, slot.replica, slot.body) for slot in slots}
            buffer.free(slot.number for slot in slots)
            buffer.contents()
            if not buffer.is_current():
                SchedulingBuffer(path)
    assert given <= put
    assert not buffer.is_current()


def flip(path: Path, places: Iterable[int], chance: random.Random) -> None:
    """Turn one bit around in each of some bytes of a file."""
    with path.open("r+b") as file:
        for place in places:
            file.seek(place)
            (old,) = file.read(1)
            file.seek(place)
            file.write(bytes([old ^ 1 << chance.randrange(8)]))


def test_a_damaged_buffer_is_removed_and_the_slots_taken_from_it_are_given_back_in_vain(
    path: Path,
) -> None:
    buffer = filled(path)
    (taken_slot,) = buffer.take_fresh(1, 1, MINE)
    content = path.read_bytes()
    path.write_bytes(
        content[: -2 * SLOT_SIZE] + bytes(byte ^ 1 for byte in content[-2 * SLOT_SIZE :])
    )
    with pytest.raises(BufferDamaged):
        buffer.contents()
    assert not path.exists()
    buffer.restore([taken_slot.number])
    buffer.free([taken_slot.number])


def test_a_queue_is_walked_no_further_than_to_the_last_of_those_that_are_looked_for(
    path: Path,
) -> None:
    buffer = create(path, slots=8)
    buffer.publish([bot_state(1)], 0.0, 0)
    buffer.put([fresh(1, seq) for seq in range(8)], 0.0)
    behind = buffer.first_copies(1)[5].number
    with path.open("r+b") as file:
        file.seek(-SLOT_SIZE * (8 - behind), os.SEEK_END)
        file.write(bytes(SLOT_SIZE))
    found = buffer.first_copies(1, {1, 3})
    assert seqs(found) == seqs(buffer.take_copies(found, MINE)) == [1, 3]
    with pytest.raises(BufferDamaged):
        buffer.first_copies(1, {1, 7})


def test_of_thousands_of_bots_those_that_changed_are_told_from_the_others(path: Path) -> None:
    buffer, other = create(path), SchedulingBuffer(path)
    states = [bot_state(bot) for bot in range(1, 3001)]
    buffer.publish(states, 0.0, 0)
    before = other.segments()
    assert [item.state for item in before] == states
    assert other.segments() is before

    states[1500] = states[1500]._replace(running=5)
    buffer.publish([states[1500]], 0.0, 0, others_stay=True)
    after = other.segments()
    assert [item.state for item in after] == states
    assert [item for item, old in zip(after, before, strict=True) if item is not old] == [
        after[1500]
    ]

    del states[7]
    buffer.publish([*states, bot_state(9000)], 0.0, 0)
    assert {item.state.bot for item in other.segments()} == {*(s.bot for s in states), 9000}
    buffer.publish(states[:1], 0.0, 0)
    assert [item.state for item in other.segments()] == states[:1]
