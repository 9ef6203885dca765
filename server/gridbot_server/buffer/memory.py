"""The scheduling buffer's file as memory: its header, an entry per BOT, and slots in queues.

Theory of operation
===================

Layout.  The file has three parts; all numbers have the machine's byte order, for it is mapped by
processes of one machine only, and lies in memory (`/dev/shm`).

    header          magic and sizes, the dirty mark, head and count of the free slots,
                    names of machine and database, the feeder's pulse
    MAX_BOTS entries  a BOT's number, its two queues, the slots taken so far, its `BotSnapshot`
    slots           state, generation, next slot, the replica's name, then body and detail

An entry is named by its place (an offset), a slot by its number.  A body is the prepared JSON of an
assignment.  One that does not fit into its slot is marked NOT_HELD and read from the database.

Queues.  Every slot is in one of three kinds of singly linked lists, by its `next`: the free slots
(a stack), and for each BOT the first copies (a queue: jobs go out in order) and the further copies
(looked at one by one, because each suits other hosts).  A slot that a web process has taken is in
none of them.  Taking first copies costs their number, taking further ones a walk of that queue.

Who does what, always under the lock of `buffer.py` (one `flock` for the file, one mutex for the
threads of a process; the kernel frees the first when its holder dies):

    feeder          READY: puts replicas in, withdraws those that are late; entries of BOTs
    web process     READY -> TAKEN, marked with its generation, for one batch of host requests
    web process     TAKEN -> FREE when the batch is committed, TAKEN -> READY when it is rolled back
    feeder          frees, or makes ready again, what a dead web process had taken

Without the lock, `pulse` is read: its three numbers are hints, and a torn read does no harm.

Killed processes.  The state of a slot is the truth, and the lists are only links between slots.
Whoever locks sets the dirty mark before the first write, and clears it after the last.  A process
that is killed in between leaves it set; the next one to lock finds it, and links all slots anew
from their states, jobs in order (`buffer._rebuild`).  So a half-linked list is never followed.  A
slot's content is written before its state becomes READY, within one such critical section.

A process that is killed outside of the lock may hold TAKEN slots.  Each web process keeps a file
locked as long as it lives (`liveness.py`).  When that lock and the process's database session are
gone, the feeder asks the database of each slot whether its replica has a lease or has ended: then
the slot is freed, else it is ready again (`feeder.feeding`).

Promises.  A replica in the buffer is a hint, never a right: whether it may be sent is decided by
the insertion of its lease.  So a slot that is there twice, late, or of a BOT that has ended costs a
refused lease and nothing else, and to lose the whole file costs a refill: the feeder makes a new
one, and the ranges in `feed_range` say which jobs go in again.  Nothing is ever synced to a disk.

Damage.  Memory fails, and other programs write where they should not.  So a slot has a checksum of
what it was filled with, which is compared when it is taken or looked at; each step along a list
checks that the slot is of the list's kind; and the feeder counts now and then whether each list has
as many slots as are in its state.  Whoever finds damage raises `BufferDamaged`, and with it the
file is removed (`buffer.py`): nothing in it is trusted any more, and it costs a refill.  What is
said of BOTs is not covered: the feeder writes it anew in each pass.

Nothing here locks, and nothing here knows a database.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Any

from gridbot_server.buffer.layout import (
    BOT_BYTES,
    BOT_ID,
    COPIES_AT,
    COUNT,
    DIRTY_AT,
    DRAWN_AT,
    ENTRIES_AT,
    FILLED_AT,
    FREE,
    FREE_AT,
    FRESH_AT,
    HEADER,
    HEADER_BYTES,
    JOB_AT,
    MAGIC,
    MARK,
    MAX_BOTS,
    NAMES,
    NAMES_AT,
    NEXT_AT,
    NIL,
    NOT_HELD,
    NUMBER,
    PULSE,
    PULSE_AT,
    QUEUE,
    RING,
    SEAL,
    SLOT,
    SLOT_BYTES,
    STATE,
    STATE_AT,
    TAKEN_AT,
    VERSION_AT,
    BotSnapshot,
    BufferDamaged,
    Item,
    Segment,
    Slot,
    SlotState,
)

_BOTS_AT = HEADER_BYTES
_SLOTS_AT = _BOTS_AT + MAX_BOTS * BOT_BYTES
_BLOCK = 64 * BOT_BYTES  # entries that are compared at once
_STATES = tuple(SlotState)
# What `look` reads of SLOT: state, BOT, job, and the bytes of its detail.
_HEAD = "=I12xqq16xI"
_CONTENT_AT = SLOT_BYTES - FILLED_AT  # in what a slot was filled with
_FREE, _READY, _TAKEN = map(int, SlotState)  # without the price of an enumeration


def file_bytes(slots: int, slot_bytes: int) -> int:
    """How long the file of a buffer is."""
    return _SLOTS_AT + slots * slot_bytes


def _segment(entries: bytes, at: int) -> Segment | None:
    """What an entry says; None if it is empty."""
    bot, version, _, _, fresh, _, _, copies, taken = RING.unpack_from(entries, at)
    if not bot:
        return None
    packed = STATE.unpack_from(entries, at + STATE_AT)
    return Segment(BotSnapshot.unpacked(bot, version, packed), fresh, copies, taken)


class Memory:
    """The mapped file.  A BOT's entry is named by its place, a slot by its number."""

    def __init__(self, descriptor: int) -> None:
        """Map the file; raise ValueError when it is no buffer of this version."""
        head = os.pread(descriptor, HEADER.size, 0)
        magic, slots, slot_bytes, *_ = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        size = file_bytes(slots, slot_bytes)
        if magic != MAGIC or slot_bytes < SLOT_BYTES or os.fstat(descriptor).st_size != size:
            raise ValueError("is not a scheduling buffer of this version")
        self._map = mmap.mmap(descriptor, size)
        self.slots, self.slot_bytes = int(slots), int(slot_bytes)
        rest = slot_bytes - struct.calcsize(_HEAD)
        self._head = struct.Struct(f"{_HEAD}{rest}x")
        machine, database = NAMES.unpack_from(self._map, NAMES_AT)
        self.machine: str = machine.rstrip(b"\0").decode()
        self.database: str = database.rstrip(b"\0").decode()
        self._places: dict[int, int] = {}
        self._seen = b""  # the entries as `segments` saw them last
        self._found: list[Segment | None] = []  # what each of them said
        self._segments: list[Segment] = []

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    # ------------------------------------------------------------------------ the header

    @property
    def dirty(self) -> bool:
        """Whether somebody is in the middle of an operation, or died there."""
        return bool(NUMBER.unpack_from(self._map, DIRTY_AT)[0])

    @dirty.setter
    def dirty(self, dirty: bool) -> None:
        NUMBER.pack_into(self._map, DIRTY_AT, dirty)

    @property
    def room(self) -> int:
        """Free slots."""
        return int(FREE.unpack_from(self._map, FREE_AT)[1])

    @property
    def pulse(self) -> tuple[float, int, int]:
        """When the feeder last passed (monotonic seconds), clients seen lately, inversions."""
        fed_at, clients, inversions = PULSE.unpack_from(self._map, PULSE_AT)
        return fed_at, clients, inversions

    @pulse.setter
    def pulse(self, pulse: tuple[float, int, int]) -> None:
        PULSE.pack_into(self._map, PULSE_AT, *pulse)

    # ----------------------------------------------------------------------- BOT entries

    def used_places(self) -> Iterator[int]:
        """The entries that describe a BOT."""
        entries = BOT_ID.iter_unpack(self._map[_BOTS_AT : self._entries_end])
        return (_BOTS_AT + index * BOT_BYTES for index, (bot,) in enumerate(entries) if bot)

    def empty_places(self) -> Iterator[int]:
        """Where entries may be made, the first one first."""
        for index, (bot,) in enumerate(BOT_ID.iter_unpack(self._map[_BOTS_AT:_SLOTS_AT])):
            if not bot:
                yield _BOTS_AT + index * BOT_BYTES

    @property
    def _entries_end(self) -> int:
        """Where the entries end of which any may describe a BOT: most servers have few."""
        count = NUMBER.unpack_from(self._map, ENTRIES_AT)[0]
        return _BOTS_AT + max(0, min(int(count), MAX_BOTS)) * BOT_BYTES

    @_entries_end.setter
    def _entries_end(self, end: int) -> None:
        NUMBER.pack_into(self._map, ENTRIES_AT, (end - _BOTS_AT) // BOT_BYTES)

    def segments(self) -> list[Segment]:
        """What all entries say; those that say what they said the last time are the same objects.

        This runs for every batch of host requests.  So bytes are compared, many at once, and the
        list is the same as long as nothing has changed.
        """
        now, before = self._map[_BOTS_AT : self._entries_end], self._seen
        if now == before:
            return self._segments
        self._seen = now
        count = len(now) // BOT_BYTES
        self._found = self._found[:count] + [None] * (count - len(self._found))
        for start in range(0, len(now), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(now)))
            if now[block] == before[block]:
                continue
            for at in range(block.start, block.stop, BOT_BYTES):
                if now[at : at + BOT_BYTES] != before[at : at + BOT_BYTES]:
                    self._found[at // BOT_BYTES] = _segment(now, at)
        self._segments = [segment for segment in self._found if segment is not None]
        return self._segments

    def bot_at(self, place: int) -> int:
        """The BOT that an entry describes, or 0."""
        return int(COUNT.unpack_from(self._map, place)[0])

    def place(self, bot: int) -> int | None:
        """Where the BOT's entry is, if it has one."""
        place = self._places.get(bot)
        if place is not None and self.bot_at(place) == bot:
            return place
        self._places = {self.bot_at(used): used for used in self.used_places()}
        return self._places.get(bot)

    def add_bot(self, place: int, bot: int) -> None:
        """Make an entry for a BOT at an empty place."""
        self._entries_end = max(self._entries_end, place + BOT_BYTES)
        RING.pack_into(self._map, place, bot, 0, NIL, NIL, 0, NIL, NIL, 0, 0)
        self._places[bot] = place

    def remove_bot(self, place: int) -> None:
        """Drop an entry; the slots in its queues become free."""
        for fresh in (True, False):
            self.free(list(self.walk(place, fresh=fresh)))
        RING.pack_into(self._map, place, 0, 0, NIL, NIL, 0, NIL, NIL, 0, 0)
        end = self._entries_end
        while end > _BOTS_AT and not self.bot_at(end - BOT_BYTES):
            end -= BOT_BYTES
        self._entries_end = end

    def write_state(self, place: int, state: BotSnapshot) -> None:
        """Keep what the feeder knows of a BOT."""
        NUMBER.pack_into(self._map, place + VERSION_AT, state.version)
        at = place + STATE_AT
        self._map[at : at + STATE.size] = state.packed()

    def count_taken(self, place: int, count: int) -> None:
        """Note that slots of a BOT were taken."""
        taken = COUNT.unpack_from(self._map, place + TAKEN_AT)[0]
        COUNT.pack_into(self._map, place + TAKEN_AT, taken + count)

    # ----------------------------------------------------------------------------- slots

    def slot(self, number: int, body: bool = True) -> Slot:
        """A slot's content; without its body, which may be long, unless that is asked for."""
        at = self._at(number)
        return self._slot(number, at, SLOT.unpack_from(self._map, at), body)

    def _at(self, number: int) -> int:
        """Where a slot begins; a number that was read may be any."""
        if not 0 <= number < self.slots:
            raise BufferDamaged(f"a list leads to slot {number}, of {self.slots}")
        return _SLOTS_AT + number * self.slot_bytes

    def _slot(self, number: int, at: int, head: tuple[Any, ...], body: bool) -> Slot:
        (
            state, generation, _, checksum, bot, seq, replica, round_, why, length, extra,
            loaded_at, drawn,
        ) = head  # fmt: skip
        held = 0 if length == NOT_HELD else length
        end = SLOT_BYTES + held + extra
        if state >= len(_STATES) or end > self.slot_bytes:
            raise BufferDamaged(f"slot {number} has state {state} and {held} + {extra} bytes")
        if body:
            filled = self._map[at + FILLED_AT : at + end]
            if state != _FREE and zlib.crc32(filled) != checksum:
                raise BufferDamaged(f"slot {number} does not hold what was put into it")
            text = filled[_CONTENT_AT : _CONTENT_AT + held]
            detail = filled[_CONTENT_AT + held :]
        else:
            text, detail = b"", self._map[at + SLOT_BYTES + held : at + end]
        return Slot(
            number, _STATES[state], generation, bot, seq, replica, round_, why, loaded_at,
            text or None, detail, drawn,
        )  # fmt: skip

    def write_item(self, number: int, item: Item, now: float) -> None:
        """Fill a slot; it is ready then, but in no queue."""
        at = self._at(number)
        room = self.slot_bytes - SLOT_BYTES - len(item.detail)
        if room < 0:
            raise ValueError(f"{len(item.detail)} bytes of detail do not fit into a slot")
        held = item.body if len(item.body) <= room else b""
        head = SLOT.pack(
            _FREE, 0, NIL, 0, item.bot, item.seq, item.replica, item.round, item.why,
            len(held) or NOT_HELD, len(item.detail), now, item.drawn,
        )  # fmt: skip
        filled = head[FILLED_AT:] + held + item.detail
        self._map[at + FILLED_AT : at + FILLED_AT + len(filled)] = filled
        SEAL.pack_into(self._map, at, _READY, 0, NIL, zlib.crc32(filled))

    def drawn(self, number: int) -> int:
        """For whom the copy in a slot is kept."""
        return int(COUNT.unpack_from(self._map, self._at(number) + DRAWN_AT)[0])

    def job(self, number: int) -> int:
        """The number of the job in a slot."""
        return int(COUNT.unpack_from(self._map, self._at(number) + JOB_AT)[0])

    def mark(self, number: int, state: SlotState, generation: int = 0, to: int = NIL) -> None:
        """Set a slot's state, whose it is, and the slot behind it."""
        MARK.pack_into(self._map, self._at(number), state, generation, to)

    def _following(self, number: int) -> int:
        return int(NUMBER.unpack_from(self._map, self._at(number) + NEXT_AT)[0])

    def _link(self, number: int, to: int) -> None:
        NUMBER.pack_into(self._map, self._at(number) + NEXT_AT, to)

    def look(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Look at all slots, and compare the lengths of all lists with them.

        Returns the BOT and job of each first copy, in order, and the slots of all further copies
        and of all that is taken.
        """
        fresh, others, ready, free = [], [], Counter[tuple[int, bool]](), 0
        with memoryview(self._map) as whole, whole[_SLOTS_AT:] as slots:
            for number, head in enumerate(self._head.iter_unpack(slots)):
                state, bot, seq, detail_bytes = head
                if state == _FREE:
                    free += 1
                    continue
                if not detail_bytes:
                    fresh.append((bot, seq))
                if state == _READY:
                    ready[bot, not detail_bytes] += 1
                if state != _READY or detail_bytes:
                    others.append(number)
        listed = {
            (self.bot_at(place), is_first): self._queue(place, is_first)[2]
            for place in self.used_places()
            for is_first in (True, False)
        }
        if ready != Counter(listed) or free != self.room:
            raise BufferDamaged("the lists of slots do not hold the slots in their states")
        return sorted(fresh), others

    # ---------------------------------------------------------------------------- queues

    def free(self, numbers: Iterable[int], *, anew: bool = False) -> None:
        """Give up slots; `anew`, where the list of the free ones is made from nothing, any."""
        head, count = FREE.unpack_from(self._map, FREE_AT)
        for number in numbers:
            at = self._at(number)
            if not anew and MARK.unpack_from(self._map, at)[0] == _FREE:
                raise BufferDamaged(f"slot {number} is to be freed and is free")
            MARK.pack_into(self._map, at, _FREE, 0, head)
            head, count = number, count + 1
        FREE.pack_into(self._map, FREE_AT, head, count)

    def forget_queues(self) -> None:
        """Empty all queues and the free ones, for somebody who fills them anew."""
        self._places.clear()
        FREE.pack_into(self._map, FREE_AT, NIL, 0)
        for place in self.used_places():
            self._set_queue(place, True, NIL, NIL, 0)
            self._set_queue(place, False, NIL, NIL, 0)

    def _queue(self, place: int, fresh: bool) -> tuple[int, int, int]:
        head, tail, count = QUEUE.unpack_from(self._map, place + (FRESH_AT if fresh else COPIES_AT))
        return head, tail, count

    def _set_queue(self, place: int, fresh: bool, head: int, tail: int, count: int) -> None:
        at = place + (FRESH_AT if fresh else COPIES_AT)
        QUEUE.pack_into(self._map, at, head, tail, count)

    def push(self, place: int, number: int, *, fresh: bool, front: bool = False) -> None:
        """Put a slot at the end of a queue, or in front of it."""
        head, tail, count = self._queue(place, fresh)
        if count == 0:
            self._link(number, NIL)
            self._set_queue(place, fresh, number, number, 1)
        elif front:
            self._link(number, head)
            self._set_queue(place, fresh, number, tail, count + 1)
        else:
            self._link(number, NIL)
            self._link(tail, number)
            self._set_queue(place, fresh, head, number, count + 1)

    def append(self, place: int, items: Iterable[Item], now: float, *, fresh: bool) -> int:
        """Put items into free slots at the end of a queue; return how many found one."""
        head, tail, count = self._queue(place, fresh)
        free, room = FREE.unpack_from(self._map, FREE_AT)
        before = room
        for item in items:
            if free == NIL:
                break
            number, room = free, room - 1
            state, _, free = MARK.unpack_from(self._map, self._at(number))
            if state != _FREE:
                raise BufferDamaged(f"slot {number} is among the free ones with state {state}")
            self.write_item(number, item, now)
            if count:
                self._link(tail, number)
            head, tail, count = head if count else number, number, count + 1
        self._set_queue(place, fresh, head, tail, count)
        FREE.pack_into(self._map, FREE_AT, free, room)
        return int(before - room)

    def take(self, place: int, most: int, generation: int) -> list[Slot]:
        """Take slots off the front of a BOT's first copies, for one web process."""
        number, tail, count = self._queue(place, True)
        slots, bot = [], self.bot_at(place)
        for _ in range(min(most, count)):
            at = self._at(number)
            head = SLOT.unpack_from(self._map, at)
            if head[0] != _READY or head[4] != bot:
                raise BufferDamaged(f"slot {number} is not of BOT {bot} and ready")
            slots.append(self._slot(number, at, head, body=True))
            MARK.pack_into(self._map, at, _TAKEN, generation, NIL)
            number = head[2]
        self._set_queue(place, True, number, tail, count - len(slots))
        self.count_taken(place, len(slots))
        return slots

    def walk(self, place: int, *, fresh: bool) -> Iterator[int]:
        """The slots of a queue, in order."""
        number, _, count = self._queue(place, fresh)
        bot = self.bot_at(place)
        for _ in range(count):
            state, _, following, _, found, *_ = SLOT.unpack_from(self._map, self._at(number))
            if state != _READY or found != bot:
                raise BufferDamaged(f"slot {number} is not of BOT {bot} and ready")
            yield number
            number = following

    def remove(self, place: int, numbers: Set[int], *, fresh: bool) -> None:
        """Take slots out of a queue, wherever they are in it."""
        head, tail, count = self._queue(place, fresh)
        before, left = NIL, count - len(numbers)
        for number in self.walk(place, fresh=fresh):
            if number not in numbers:
                before = number
                continue
            following, count = self._following(number), count - 1
            if before == NIL:
                head = following
            else:
                self._link(before, following)
            if number == tail:
                tail = before
            if count == left:  # the rest stays as it is
                break
        self._set_queue(place, fresh, head, tail, count)
