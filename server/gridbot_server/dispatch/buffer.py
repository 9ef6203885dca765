"""The shared scheduling buffer: jobs ready to be sent, in one memory-mapped file (paper 6.1-6.2).

The feeder puts jobs in, the web processes take them.  Each BOT has two queues of slots: first
copies, which are interchangeable, and further copies, which are looked at one by one.  A slot's
state is the truth and the queues are only links between slots: a process killed in the middle
of an operation leaves a dirty mark, and whoever locks next rebuilds the queues from the states.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from gridbot_server.dispatch.layout import (
    BOT_BYTES,
    BOT_ID,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAX_BOTS,
    NAMES,
    NAMES_AT,
    NIL,
    NOT_HELD,
    PULSE,
    PULSE_AT,
    RING,
    SLOT,
    SLOT_BYTES,
    STATE,
    STATE_AT,
    BotState,
    Item,
    Segment,
    Slot,
    SlotState,
)

_BOTS_AT = HEADER_BYTES
_SLOTS_AT = _BOTS_AT + MAX_BOTS * BOT_BYTES


class BufferMissing(Exception):
    """No feeder has made the buffer yet, or the file is not one."""


class SchedulingBuffer:
    """One process's view of the buffer.  Open it after fork; every operation locks it."""

    def __init__(self, path: Path) -> None:
        """Map the buffer at `path`; raise BufferMissing when there is none."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BufferMissing(f"no scheduling buffer at {path}: is the feeder running?") from None
        status = os.fstat(descriptor)
        self.path, self.inode, self._descriptor = path, status.st_ino, descriptor
        self._thread_lock = threading.Lock()
        self._map = mmap.mmap(descriptor, status.st_size)
        magic, slots, slot_bytes, *_ = HEADER.unpack_from(self._map)
        self.slots, self.slot_bytes = int(slots), int(slot_bytes)
        if magic != MAGIC or status.st_size != _file_bytes(self.slots, self.slot_bytes):
            raise BufferMissing(f"{path} is not a scheduling buffer of this version")
        machine, database = NAMES.unpack_from(self._map, NAMES_AT)
        self.machine: str = machine.rstrip(b"\0").decode()
        self.database: str = database.rstrip(b"\0").decode()
        self._places: dict[int, int] = {}

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
            file.truncate(_file_bytes(slots, slot_bytes))
            # Dirty from birth: the first lock links all slots into the free list.
            file.write(HEADER.pack(MAGIC, slots, slot_bytes, 1, NIL, 0, 0))
            file.seek(NAMES_AT)
            file.write(NAMES.pack(machine.encode(), database.encode()))
        temporary.rename(path)
        return cls(path)

    def close(self) -> None:
        """Unmap the buffer."""
        self._map.close()
        os.close(self._descriptor)

    def is_current(self) -> bool:
        """Whether the file at the path is still the one that is mapped here."""
        try:
            return os.stat(self.path).st_ino == self.inode
        except FileNotFoundError:
            return False

    # ------------------------------------------------------------------ the web processes

    def segments(self) -> list[Segment]:
        """Every BOT in the buffer, as the feeder last described it."""
        with self._locked():
            return [self._segment(place) for place in self._used_places()]

    def take_fresh(self, bot: int, most: int, generation: int) -> list[Slot]:
        """Take up to `most` first copies of a BOT, in job order, for one web process."""
        with self._locked():
            place = self._place(bot)
            if place is None:
                return []
            taken = []
            for _ in range(most):
                number = self._pop(place, fresh=True)
                if number == NIL:
                    break
                self._set_state(number, SlotState.TAKEN, generation)
                taken.append(self._slot(number))
            self._count_taken(place, len(taken))
            return taken

    def copies(self, bot: int, most: int, start: int) -> list[Slot]:
        """Look at up to `most` further copies of a BOT, beginning `start` slots into its queue."""
        with self._locked():
            place = self._place(bot)
            if place is None:
                return []
            numbers = list(self._walk(place, fresh=False))
            shift = start % len(numbers) if numbers else 0
            return [self._slot(number) for number in (numbers[shift:] + numbers[:shift])[:most]]

    def take_copy(self, slot: Slot, generation: int) -> bool:
        """Take a copy that `copies` showed, unless it is gone or its slot holds another now."""
        with self._locked():
            now = self._slot(slot.number)
            place = self._place(slot.bot)
            same = (now.bot, now.seq, now.replica) == (slot.bot, slot.seq, slot.replica)
            if place is None or not same or now.state is not SlotState.READY:
                return False
            self._unlink_copy(place, slot.number)
            self._set_state(slot.number, SlotState.TAKEN, generation)
            self._count_taken(place, 1)
            return True

    def free(self, numbers: Iterable[int]) -> None:
        """Give up slots whose replicas are committed, or need not be sent any more."""
        with self._locked():
            for number in numbers:
                self._free(number)

    def give_back(self, numbers: Iterable[int]) -> None:
        """Make taken slots ready again, in front: their transaction was rolled back."""
        with self._locked():
            slots = [self._slot(number, body=False) for number in numbers]
            for slot in sorted(slots, key=lambda slot: slot.seq, reverse=True):
                place = self._place(slot.bot)
                if slot.state is not SlotState.TAKEN:
                    continue
                if place is None:
                    self._free(slot.number)
                else:
                    self._set_state(slot.number, SlotState.READY, 0)
                    self._push(place, slot.number, fresh=not slot.detail, front=True)

    def count_inversion(self) -> None:
        """Note that a BOT with unsent jobs was passed over because its segment was dry."""
        with self._locked():
            fed_at, clients, inversions = PULSE.unpack_from(self._map, PULSE_AT)
            PULSE.pack_into(self._map, PULSE_AT, fed_at, clients, inversions + 1)

    def pulse(self) -> tuple[float, int, int]:
        """When the feeder last passed (monotonic seconds), clients seen lately, inversions."""
        fed_at, clients, inversions = PULSE.unpack_from(self._map, PULSE_AT)
        return fed_at, clients, inversions

    # ------------------------------------------------------------------------- the feeder

    def publish(self, states: Sequence[BotState], fed_at: float, clients_active: int) -> None:
        """Describe the BOTs to be served; those no longer among them lose their ready slots."""
        with self._locked():
            wanted = {state.bot for state in states[:MAX_BOTS]}
            for place in list(self._used_places()):
                if self._bot_at(place) not in wanted:
                    self._remove_bot(place)
            for state in states[:MAX_BOTS]:
                known = self._place(state.bot)
                self._write_state(self._new_place(state.bot) if known is None else known, state)
            inversions = PULSE.unpack_from(self._map, PULSE_AT)[2]
            PULSE.pack_into(self._map, PULSE_AT, fed_at, clients_active, inversions)

    def put(self, items: Iterable[Item], now: float) -> int:
        """Add unsent replicas behind those already there; return how many found room."""
        count = 0
        with self._locked():
            for item in items:
                place = self._place(item.bot)
                number = self._pop_free() if place is not None else NIL
                if place is None or number == NIL:
                    break
                self._write_item(number, item, now)
                self._push(place, number, fresh=not item.detail, front=False)
                count += 1
        return count

    def contents(self) -> list[Slot]:
        """Every slot that is not free, without its body."""
        with self._locked():
            if self._header(5) == self.slots:  # an idle server looks at no slot
                return []
            slots = (self._slot(number, body=False) for number in range(self.slots))
            return [slot for slot in slots if slot.state is not SlotState.FREE]

    def withdraw(self, slot: Slot) -> bool:
        """Take a ready copy out of the buffer again: its time to live is over."""
        taken = self.take_copy(slot, 0)
        if taken:
            self.free([slot.number])
        return taken

    def withdraw_last(self, bot: int, end: int, most: int) -> int:
        """Take ready first copies out again: of jobs `end` - 1, `end` - 2, … up to `most`.

        Returns how many; it stops before a job that is not there, because it was taken.
        """
        with self._locked():
            place = self._place(bot)
            if place is None:
                return 0
            numbers = list(self._walk(place, fresh=True))
            by_seq = {self._slot(number, body=False).seq: number for number in numbers}
            wanted = range(end - 1, end - 1 - most, -1)
            gone = {by_seq[seq] for seq in takewhile(by_seq.__contains__, wanted)}
            self._keep(place, [number for number in numbers if number not in gone], fresh=True)
            for number in gone:
                self._free(number)
            return len(gone)

    @property
    def room(self) -> int:
        """Free slots."""
        with self._locked():
            return int(HEADER.unpack_from(self._map)[5])

    # ---------------------------------------------------------------------------- locking

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # flock does not exclude two threads on one descriptor; the kernel frees it when we die.
        with self._thread_lock:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            try:
                if self._header(3):
                    self._rebuild()
                self._set_header(3, 1)
                yield
                self._set_header(3, 0)
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _rebuild(self) -> None:
        """Link the slots anew from their states: the last holder of the lock died at work."""
        self._places.clear()
        self._set_header(4, NIL)
        self._set_header(5, 0)
        for place in self._used_places():
            ring = list(RING.unpack_from(self._map, place))
            RING.pack_into(self._map, place, *ring[:2], NIL, NIL, 0, NIL, NIL, 0, ring[8])
        slots = [self._slot(number, body=False) for number in range(self.slots)]
        for slot in sorted(slots, key=lambda slot: slot.seq):  # jobs go out in order
            where = self._place(slot.bot) if slot.state is SlotState.READY else None
            if where is not None:
                self._push(where, slot.number, fresh=not slot.detail, front=False)
            elif slot.state is not SlotState.TAKEN:
                self._free(slot.number)

    def _header(self, index: int) -> int:
        return int(HEADER.unpack_from(self._map)[index])

    def _set_header(self, index: int, value: int) -> None:
        header = list(HEADER.unpack_from(self._map))
        header[index] = value
        HEADER.pack_into(self._map, 0, *header)

    # ------------------------------------------------------------------------ BOT entries

    def _used_places(self) -> Iterator[int]:
        # All at once: this runs at every host request, and most entries are empty.
        entries = BOT_ID.iter_unpack(self._map[_BOTS_AT:_SLOTS_AT])
        return (_BOTS_AT + index * BOT_BYTES for index, (bot,) in enumerate(entries) if bot)

    def _bot_at(self, place: int) -> int:
        return int(RING.unpack_from(self._map, place)[0])

    def _place(self, bot: int) -> int | None:
        place = self._places.get(bot)
        if place is not None and self._bot_at(place) == bot:
            return place
        self._places = {self._bot_at(used): used for used in self._used_places()}
        return self._places.get(bot)

    def _new_place(self, bot: int) -> int:
        places = (_BOTS_AT + index * BOT_BYTES for index in range(MAX_BOTS))
        place = next(place for place in places if not self._bot_at(place))
        RING.pack_into(self._map, place, bot, 0, NIL, NIL, 0, NIL, NIL, 0, 0)
        return place

    def _remove_bot(self, place: int) -> None:
        for fresh in (True, False):
            for number in list(self._walk(place, fresh)):
                self._free(number)
        RING.pack_into(self._map, place, 0, 0, NIL, NIL, 0, NIL, NIL, 0, 0)

    def _write_state(self, place: int, state: BotState) -> None:
        ring = list(RING.unpack_from(self._map, place))
        ring[1] = state.version
        RING.pack_into(self._map, place, *ring)
        turnaround = math.nan if state.mean_turnaround is None else state.mean_turnaround
        STATE.pack_into(
            self._map, place + STATE_AT, state.size, state.fresh_unsent, state.copies_unsent,
            state.running, state.done, state.failed, state.tail, state.owner, state.created_at,
            turnaround, state.segment, state.unclaimed,
        )  # fmt: skip

    def _segment(self, place: int) -> Segment:
        bot, version, _, _, fresh, _, _, copies, taken = RING.unpack_from(self._map, place)
        (
            size, fresh_unsent, copies_unsent, running, done, failed, tail, owner, created_at, mean,
            share, unclaimed,
        ) = STATE.unpack_from(self._map, place + STATE_AT)  # fmt: skip
        state = BotState(
            bot, version, owner, size, fresh_unsent, copies_unsent, running, done, failed,
            bool(tail), created_at, None if math.isnan(mean) else mean, share,
            unclaimed,
        )  # fmt: skip
        return Segment(state, fresh, copies, taken)

    def _count_taken(self, place: int, count: int) -> None:
        ring = list(RING.unpack_from(self._map, place))
        ring[8] += count
        RING.pack_into(self._map, place, *ring)

    # ------------------------------------------------------------------------------ slots

    def _at(self, number: int) -> int:
        return _SLOTS_AT + number * self.slot_bytes

    def _slot(self, number: int, body: bool = True) -> Slot:
        at = self._at(number)
        state, generation, _, bot, seq, replica, round_, why, length, extra, loaded_at = (
            SLOT.unpack_from(self._map, at)
        )
        start = at + SLOT_BYTES
        held = 0 if length == NOT_HELD else length
        content = self._map[start : start + held] if body and length != NOT_HELD else None
        detail = self._map[start + held : start + held + extra]
        return Slot(
            number, SlotState(state), generation, bot, seq, replica, round_, why, loaded_at,
            content, detail,
        )  # fmt: skip

    def _write_item(self, number: int, item: Item, now: float) -> None:
        at, room = self._at(number), self.slot_bytes - SLOT_BYTES - len(item.detail)
        if room < 0:
            raise ValueError(f"{len(item.detail)} bytes of detail do not fit into a slot")
        held = item.body if len(item.body) <= room else b""
        length = len(held) if held else NOT_HELD
        start = at + SLOT_BYTES
        self._map[start : start + len(held)] = held
        self._map[start + len(held) : start + len(held) + len(item.detail)] = item.detail
        SLOT.pack_into(
            self._map, at, SlotState.READY, 0, NIL, item.bot, item.seq, item.replica, item.round,
            item.why, length, len(item.detail), now,
        )  # fmt: skip

    def _set_state(self, number: int, state: SlotState, generation: int) -> None:
        slot = list(SLOT.unpack_from(self._map, self._at(number)))
        slot[0], slot[1], slot[2] = state, generation, NIL
        SLOT.pack_into(self._map, self._at(number), *slot)

    def _next(self, number: int) -> int:
        return int(SLOT.unpack_from(self._map, self._at(number))[2])

    def _link(self, number: int, to: int) -> None:
        slot = list(SLOT.unpack_from(self._map, self._at(number)))
        slot[2] = to
        SLOT.pack_into(self._map, self._at(number), *slot)

    # ----------------------------------------------------------------------------- queues

    def _free(self, number: int) -> None:
        self._set_state(number, SlotState.FREE, 0)
        self._link(number, self._header(4))
        self._set_header(4, number)
        self._set_header(5, self._header(5) + 1)

    def _pop_free(self) -> int:
        number = self._header(4)
        if number != NIL:
            self._set_header(4, self._next(number))
            self._set_header(5, self._header(5) - 1)
        return number

    def _queue(self, place: int, fresh: bool) -> tuple[int, int, int]:
        ring = RING.unpack_from(self._map, place)
        head, tail, count = ring[2:5] if fresh else ring[5:8]
        return head, tail, count

    def _set_queue(self, place: int, fresh: bool, queue: tuple[int, int, int]) -> None:
        ring = list(RING.unpack_from(self._map, place))
        ring[2 if fresh else 5 : 5 if fresh else 8] = queue
        RING.pack_into(self._map, place, *ring)

    def _push(self, place: int, number: int, *, fresh: bool, front: bool) -> None:
        head, tail, count = self._queue(place, fresh)
        if count == 0:
            self._link(number, NIL)
            self._set_queue(place, fresh, (number, number, 1))
        elif front:
            self._link(number, head)
            self._set_queue(place, fresh, (number, tail, count + 1))
        else:
            self._link(number, NIL)
            self._link(tail, number)
            self._set_queue(place, fresh, (head, number, count + 1))

    def _pop(self, place: int, *, fresh: bool) -> int:
        head, tail, count = self._queue(place, fresh)
        if count == 0:
            return NIL
        self._set_queue(place, fresh, (self._next(head), tail, count - 1))
        return head

    def _walk(self, place: int, fresh: bool) -> Iterator[int]:
        number, _, count = self._queue(place, fresh)
        for _ in range(count):
            following = self._next(number)
            yield number
            number = following

    def _unlink_copy(self, place: int, number: int) -> None:
        rest = [other for other in self._walk(place, fresh=False) if other != number]
        self._keep(place, rest, fresh=False)

    def _keep(self, place: int, numbers: Iterable[int], *, fresh: bool) -> None:
        """Let a queue consist of these slots only."""
        self._set_queue(place, fresh, (NIL, NIL, 0))
        for number in numbers:
            self._push(place, number, fresh=fresh, front=False)


def _file_bytes(slots: int, slot_bytes: int) -> int:
    return _SLOTS_AT + slots * slot_bytes
