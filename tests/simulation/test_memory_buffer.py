"""Claims about the buffer in memory: it does what the shared one does, whatever is asked."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gridbot_server.buffer.buffer import SchedulingBuffer
from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import BotSnapshot, Item, Slot
from gridbot_simulator.buffer import MemoryBuffer

SLOTS, SLOT_BYTES = 12, 256
BOTS = st.integers(1, 3)
Step = tuple[str, int, int]


def snapshot(bot: int) -> BotSnapshot:
    return BotSnapshot(bot, 1, 1, 100, 50, 3, 2, 1, 0, False, 5.0, None)


def named(slots: list[Slot]) -> list[tuple[Any, ...]]:
    """Slots without their numbers, which are each buffer's own, and without bodies."""
    return sorted(slot[3:9] + slot[10:] for slot in slots)


class Tried:
    """A buffer under a sequence of steps, and what it answered."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.taken: list[Slot] = []
        self.seq = 0

    def step(self, what: str, bot: int, count: int) -> object:
        return getattr(self, what)(bot, count)

    def publish(self, bot: int, count: int) -> object:
        known = [number for number in (1, 2, 3) if number != bot or count % 2]
        self.buffer.publish([snapshot(number) for number in known], 7.0, count)
        return self.buffer.pulse()

    def put(self, bot: int, count: int) -> object:
        self.seq += count
        items = [
            Item(bot, self.seq - place, 1, 0, 0, b"x" * (20 * place), b"", 0)
            for place in range(count, 0, -1)
        ]
        return self.buffer.put(items, 3.0)

    def put_copies(self, bot: int, count: int) -> object:
        items = [
            Item(bot, place, self.seq + place, 0, 1, b"{", b"detail", place % 2)
            for place in range(count)
        ]
        self.seq += count
        return self.buffer.put(items, 4.0)

    def take(self, bot: int, count: int) -> object:
        found = self.buffer.take_fresh(bot, count, 1)
        self.taken += found
        return [slot[3:9] + slot[9:] for slot in found]

    def take_copies(self, bot: int, count: int) -> object:
        seen = self.buffer.copies(bot, count, count, None if count % 2 else {1})
        return self._take_shown(seen)

    def take_some_jobs(self, bot: int, count: int) -> object:
        jobs = range(count, self.seq, 2)
        shown = self.buffer.copies(bot, count, count, None, jobs)
        shown += [slot._replace(body=None) for slot in self.buffer.first_copies(bot, jobs)]
        return self._take_shown(shown)

    def _take_shown(self, shown: list[Slot]) -> object:
        found = self.buffer.take_copies(shown, 1)
        self.taken += found
        return [slot[3:9] + slot[9:] for slot in found]

    def free(self, bot: int, count: int) -> object:
        del bot
        gone, self.taken = self.taken[:count], self.taken[count:]
        self.buffer.free([slot.number for slot in gone])
        return self.buffer.room

    def restore(self, bot: int, count: int) -> object:
        del bot
        back, self.taken = self.taken[:count], self.taken[count:]
        self.buffer.restore([slot.number for slot in back])
        return self.buffer.room

    def withdraw_last(self, bot: int, count: int) -> object:
        return self.buffer.withdraw_last(bot, self.seq, count)

    def withdraw(self, bot: int, count: int) -> object:
        ready = [slot for slot in self.buffer.contents() if slot.bot == bot]
        chosen = sorted(ready, key=lambda slot: (slot.seq, slot.replica))[:count]
        return named(self.buffer.withdraw(chosen))

    def everything(self) -> object:
        held = self.buffer.held()
        segments = sorted(self.buffer.segments(), key=lambda segment: segment.state.bot)
        first = [[slot[3:9] for slot in self.buffer.first_copies(bot)] for bot in (1, 2, 3)]
        return held.fresh, named(held.slots), segments, first, self.buffer.room


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["publish", "put", "put", "put_copies", "take", "take_copies", "take_some_jobs",
             "free", "restore", "withdraw", "withdraw_last"]
        ),
        BOTS,
        st.integers(0, 6),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=150)
@given(STEPS)
def test_both_buffers_answer_all_the_same(steps: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        shared = SchedulingBuffer.create(
            Path(folder) / "buffer", slots=SLOTS, slot_bytes=SLOT_BYTES, machine="m", database="d"
        )
        try:
            both = Tried(shared), Tried(MemoryBuffer(SLOTS, SLOT_BYTES, "m"))
            for step in steps:
                answers = [one.step(*step) for one in both]
                assert answers[0] == answers[1], step
                everything = [one.everything() for one in both]
                assert everything[0] == everything[1], step
        finally:
            shared.close()
