"""The shared scheduling buffer: jobs ready to be sent, in one memory-mapped file (paper 6.1-6.2).

The feeder puts jobs in, the web processes take them.  Each BOT has two queues of slots: first
copies, which are interchangeable, and further copies, which are looked at one by one.  A slot's
state is the truth and the queues are only links between slots: a process killed in the middle
of an operation leaves a dirty mark, and whoever locks next rebuilds the queues from the states.
A buffer that is found damaged is removed: the feeder makes a new one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice, takewhile
from pathlib import Path

from gridbot_server.buffer import liveness
from gridbot_server.buffer.layout import (
    HEADER,
    MAGIC,
    MAX_BOTS,
    NAMES,
    NAMES_AT,
    NIL,
    BotSnapshot,
    BufferContents,
    BufferDamaged,
    BufferMissing,
    Item,
    Segment,
    Slot,
    SlotState,
)
from gridbot_server.buffer.memory import Memory, file_bytes

log = logging.getLogger(__name__)


class SchedulingBuffer:
    """One process's view of the buffer.  Open it after fork; every operation locks it.

    Every operation raises BufferDamaged when it finds that; what only gives slots back does not.
    """

    def __init__(self, path: Path) -> None:
        """Map the buffer at `path`; raise BufferMissing when there is none."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BufferMissing(f"no scheduling buffer at {path}: is the feeder running?") from None
        try:
            self._memory = Memory(descriptor)
        except ValueError as error:
            os.close(descriptor)
            raise BufferMissing(f"{path} {error}") from None
        self.path, self._descriptor = path, descriptor
        self.inode = os.fstat(descriptor).st_ino
        self._thread_lock = threading.Lock()
        self.slots, self.slot_bytes = self._memory.slots, self._memory.slot_bytes
        self.machine, self.database = self._memory.machine, self._memory.database

    @classmethod
    def create(
        cls, path: Path, *, slots: int, slot_bytes: int, machine: str, database: str
    ) -> SchedulingBuffer:
        """Make an empty buffer in the place of whatever is at `path`."""
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            file.truncate(file_bytes(slots, slot_bytes))
            # Dirty from birth: the first lock links all slots into the free list.
            file.write(HEADER.pack(MAGIC, slots, slot_bytes, 1, NIL, 0, 0))
            file.seek(NAMES_AT)
            file.write(NAMES.pack(machine.encode(), database.encode()))
        temporary.rename(path)
        return cls(path)

    def close(self) -> None:
        """Unmap the buffer."""
        self._memory.close()
        os.close(self._descriptor)

    def is_current(self) -> bool:
        """Whether the file at the path is still the one that is mapped here."""
        try:
            return os.stat(self.path).st_ino == self.inode
        except FileNotFoundError:
            return False

    # ------------------------------------------------------------------ the web processes

    def segments(self) -> list[Segment]:
        """Every BOT in the buffer, as the feeder last described it.

        What did not change since the last call is the same object.
        """
        with self._locked() as memory:
            return memory.segments()

    def take_fresh(self, bot: int, most: int, generation: int) -> list[Slot]:
        """Take up to `most` first copies of a BOT, in job order, for one web process."""
        with self._locked() as memory:
            place = memory.place(bot)
            if place is None:
                return []
            return memory.take(place, most, generation)

    def copies(
        self,
        bot: int,
        most: int,
        start: int,
        drawn: Collection[int] | None = None,
        jobs: Container[int] | None = None,
    ) -> list[Slot]:
        """Look at up to `most` further copies of a BOT, beginning `start` slots into its queue.

        With `drawn`, only at those that are kept for one of these; with `jobs`, only at theirs.
        """
        with self._locked() as memory:
            place = memory.place(bot)
            if place is None:
                return []
            numbers = [
                number
                for number in memory.walk(place, fresh=False)
                if (drawn is None or memory.drawn(number) in drawn)
                and (jobs is None or memory.job(number) in jobs)
            ]
            shift = start % len(numbers) if numbers else 0
            return [memory.slot(number) for number in (numbers[shift:] + numbers[:shift])[:most]]

    def take_copies(self, slots: Sequence[Slot], generation: int) -> list[Slot]:
        """Take replicas that were shown; without those that are gone, or whose slot was reused.

        A queue is walked once, however many are taken out of it, and up to the last of them.
        """
        with self._locked() as memory:
            found = _pulled(memory, slots)
            for place, slot in found:
                memory.mark(slot.number, SlotState.TAKEN, generation)
                memory.count_taken(place, 1)
            return [slot for _, slot in found]

    def free(self, numbers: Iterable[int]) -> None:
        """Give up slots whose replicas are committed, or need not be sent any more."""
        with suppress(BufferDamaged), self._locked() as memory:
            memory.free(numbers)

    def restore(self, numbers: Iterable[int]) -> None:
        """Make taken slots ready again, in front: their transaction was rolled back."""
        with suppress(BufferDamaged), self._locked() as memory:
            slots = [memory.slot(number, body=False) for number in numbers]
            for slot in sorted(slots, key=lambda slot: slot.seq, reverse=True):
                place = memory.place(slot.bot)
                if slot.state is not SlotState.TAKEN:
                    continue
                if place is None:
                    memory.free([slot.number])
                else:
                    memory.mark(slot.number, SlotState.READY)
                    memory.push(place, slot.number, fresh=not slot.detail, front=True)

    def count_inversions(self, count: int) -> None:
        """Note that so often a BOT with unsent jobs was passed over because its segment was dry."""
        with self._locked() as memory:
            fed_at, clients, inversions = memory.pulse
            memory.pulse = fed_at, clients, inversions + count

    def pulse(self) -> tuple[float, int, int]:
        """When the feeder last passed (monotonic seconds), clients seen lately, inversions."""
        return self._memory.pulse

    # ------------------------------------------------------------------------- the feeder

    def publish(
        self,
        states: Sequence[BotSnapshot],
        fed_at: float,
        clients_active: int,
        *,
        others_stay: bool = False,
    ) -> None:
        """Describe the BOTs to be served.

        Unless others are to stay, those no longer among them lose their ready slots.  So do those
        of which another version of the manifest is to be sent.
        """
        with self._locked() as memory:
            rounds = {state.bot: state.first_round for state in states[:MAX_BOTS]}
            known = {segment.state.bot: segment.state for segment in memory.segments()}
            kept = {
                bot
                for bot, state in known.items()
                if rounds.get(bot, state.first_round if others_stay else None) == state.first_round
            }
            gone = [place for place in memory.used_places() if memory.bot_at(place) not in kept]
            for place in gone:
                memory.remove_bot(place)
            new = [state.bot for state in states[:MAX_BOTS] if state.bot not in kept]
            for bot, place in zip(new, memory.empty_places(), strict=False):
                memory.add_bot(place, bot)
            for state in states[:MAX_BOTS]:
                if state.bot not in kept or known[state.bot] != state:
                    at = memory.place(state.bot)
                    assert at is not None, "it was there, or was added"
                    memory.write_state(at, state)
            memory.pulse = fed_at, clients_active, memory.pulse[2]

    def put(self, items: Iterable[Item], now: float) -> int:
        """Add unsent replicas behind those already there; return how many found room."""
        count = 0
        with self._locked() as memory:
            for (bot, fresh), queue in groupby(items, key=lambda item: (item.bot, not item.detail)):
                place = memory.place(bot)
                if place is None:
                    break
                count += memory.append(place, queue, now, fresh=fresh)
        return count

    def contents(self) -> list[Slot]:
        """Every slot that is not free, without its body; all lists are checked on the way."""
        with self._locked() as memory:
            if memory.room == self.slots:  # an idle server looks at no slot
                return []
            memory.look()
            slots = (memory.slot(number, body=False) for number in range(self.slots))
            return [slot for slot in slots if slot.state is not SlotState.FREE]

    def held(self) -> BufferContents:
        """Say what is there; all lists are checked on the way.

        Ready first copies are the most by far, and of them no more is read than their names.
        """
        with self._locked() as memory:
            if memory.room == self.slots:
                return BufferContents([], [])
            fresh, others = memory.look()
            return BufferContents(fresh, [memory.slot(number, body=False) for number in others])

    def first_copies(self, bot: int, jobs: Collection[int] | None = None) -> list[Slot]:
        """Every ready first copy of a BOT, without its body, in the order in which they go.

        With `jobs`, only those of these: the queue is walked until there are as many.
        """
        with self._locked() as memory:
            place = memory.place(bot)
            if place is None:
                return []
            numbers = memory.walk(place, fresh=True)
            if jobs is not None:
                its = (number for number in numbers if memory.job(number) in jobs)
                numbers = islice(its, len(jobs))
            return [memory.slot(number, body=False) for number in numbers]

    def discard(self) -> None:
        """Remove the file, unless another has taken its place: whoever needs it finds none."""
        if self.is_current():
            self.path.unlink(missing_ok=True)

    def withdraw(self, slots: Sequence[Slot]) -> list[Slot]:
        """Take ready replicas out of the buffer again, untaken; return those that were there."""
        with self._locked() as memory:
            found = _pulled(memory, slots)
            memory.free(slot.number for _, slot in found)
            return [slot for _, slot in found]

    def withdraw_last(self, bot: int, end: int, most: int) -> int:
        """Take ready first copies out again: of jobs `end` - 1, `end` - 2, … up to `most`.

        Returns how many; it stops before a job that is not there, because it was taken.
        """
        with self._locked() as memory:
            place = memory.place(bot)
            if place is None:
                return 0
            numbers = list(memory.walk(place, fresh=True))
            by_seq = {memory.slot(number, body=False).seq: number for number in numbers}
            wanted = range(end - 1, end - 1 - most, -1)
            gone = {by_seq[seq] for seq in takewhile(by_seq.__contains__, wanted)}
            memory.remove(place, gone, fresh=True)
            memory.free(gone)
            return len(gone)

    def is_dead(self, generation: int) -> bool:
        """Whether the web process of that generation has ended."""
        return liveness.is_dead(self.path, generation)

    def forget(self, generation: int) -> None:
        """Keep no trace of a web process that has ended."""
        liveness.path_of(self.path, generation).unlink(missing_ok=True)

    @property
    def room(self) -> int:
        """Free slots."""
        with self._locked() as memory:
            return memory.room

    # ---------------------------------------------------------------------------- locking

    @contextmanager
    def _locked(self) -> Iterator[Memory]:
        # flock does not exclude two threads on one descriptor; the kernel frees it when we die.
        memory = self._memory
        with self._thread_lock:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                if memory.dirty:
                    self._rebuild()
                memory.dirty = True
                yield memory
                memory.dirty = False
            except BufferDamaged as error:
                log.error("the scheduling buffer is damaged and will be made anew: %s", error)
                self.discard()
                raise
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _rebuild(self) -> None:
        """Link the slots anew from their states: the last holder of the lock died at work."""
        memory = self._memory
        memory.forget_queues()
        slots = [memory.slot(number, body=False) for number in range(self.slots)]
        for slot in sorted(slots, key=lambda slot: slot.seq):  # jobs go out in order
            where = memory.place(slot.bot) if slot.state is SlotState.READY else None
            if where is not None:
                memory.push(where, slot.number, fresh=not slot.detail)
            elif slot.state is not SlotState.TAKEN:
                memory.free([slot.number], anew=True)


def _pulled(memory: Memory, slots: Sequence[Slot]) -> list[tuple[int, Slot]]:
    """Take replicas that still wait out of their queues; give them with their BOTs' places."""
    ready = [(memory.place(slot.bot), slot) for slot in slots if _is_ready(memory, slot)]
    found = [(place, slot) for place, slot in ready if place is not None]
    queues: dict[tuple[int, bool], set[int]] = {}
    for place, slot in found:
        queues.setdefault((place, not slot.detail), set()).add(slot.number)
    for (place, fresh), numbers in queues.items():
        memory.remove(place, numbers, fresh=fresh)
    return found


def _is_ready(memory: Memory, seen: Slot) -> bool:
    """Whether a slot that was seen before still waits, with the same replica in it."""
    now = memory.slot(seen.number, body=False)
    same = (now.bot, now.seq, now.replica) == (seen.bot, seen.seq, seen.replica)
    return same and now.state is SlotState.READY
