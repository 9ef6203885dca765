"""The memory of the scheduling buffer: a mapped file of BOT entries, slots and queues of slots.

Nothing here locks: `SchedulingBuffer` does, around whole operations.  A slot's state is the truth
and the queues are only links between slots, so `rebuild` makes them anew from the states.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator
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
_DIRTY, _FREE_HEAD, _FREE_COUNT = 3, 4, 5  # fields of the header


class BufferMissing(Exception):
    """No feeder has made the buffer yet, or the file is not one."""


class BufferMemory:
    """One process's map of the buffer's file; whoever changes it must hold the lock."""

    def __init__(self, path: Path) -> None:
        """Map the file at `path`; raise BufferMissing when there is none."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BufferMissing(f"no scheduling buffer at {path}: is the feeder running?") from None
        status = os.fstat(descriptor)
        self.descriptor, self.inode = descriptor, status.st_ino
        self._map = mmap.mmap(descriptor, status.st_size)
        magic, slots, slot_bytes, *_ = HEADER.unpack_from(self._map)
        self.slots, self.slot_bytes = int(slots), int(slot_bytes)
        if magic != MAGIC or status.st_size != _file_bytes(self.slots, self.slot_bytes):
            raise BufferMissing(f"{path} is not a scheduling buffer of this version")
        machine, database = NAMES.unpack_from(self._map, NAMES_AT)
        self.machine: str = machine.rstrip(b"\0").decode()
        self.database: str = database.rstrip(b"\0").decode()
        self._places: dict[int, int] = {}

    @staticmethod
    def create(path: Path, *, slots: int, slot_bytes: int, machine: str, database: str) -> None:
        """Make an empty file in the place of whatever is at `path`."""
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

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
        os.close(self.descriptor)

    # ----------------------------------------------------------------------------- header

    @property
    def dirty(self) -> bool:
        """Whether an operation began and did not end."""
        return bool(self._header(_DIRTY))

    @dirty.setter
    def dirty(self, value: bool) -> None:
        self._set_header(_DIRTY, int(value))

    @property
    def free_count(self) -> int:
        """Free slots."""
        return self._header(_FREE_COUNT)

    def pulse(self) -> tuple[float, int, int]:
        """When the feeder last passed (monotonic seconds), clients seen lately, inversions."""
        fed_at, clients, inversions = PULSE.unpack_from(self._map, PULSE_AT)
        return fed_at, clients, inversions

    def set_pulse(self, fed_at: float, clients: int, inversions: int) -> None:
        """Note what `pulse` gives."""
        PULSE.pack_into(self._map, PULSE_AT, fed_at, clients, inversions)

    def rebuild(self) -> None:
        """Link the slots anew from their states: the last holder of the lock died at work."""
        self._places.clear()
        self._set_header(_FREE_HEAD, NIL)
        self._set_header(_FREE_COUNT, 0)
        for place in self.places():
            ring = list(RING.unpack_from(self._map, place))
            RING.pack_into(self._map, place, *ring[:2], NIL, NIL, 0, NIL, NIL, 0, ring[8])
        slots = [self.slot(number, body=False) for number in range(self.slots)]
        for slot in sorted(slots, key=lambda slot: slot.seq):  # jobs go out in order
            where = self.place(slot.bot) if slot.state is SlotState.READY else None
            if where is not None:
                self.push(where, slot.number, fresh=not slot.detail, front=False)
            elif slot.state is not SlotState.TAKEN:
                self.free(slot.number)

    def _header(self, index: int) -> int:
        return int(HEADER.unpack_from(self._map)[index])

    def _set_header(self, index: int, value: int) -> None:
        header = list(HEADER.unpack_from(self._map))
        header[index] = value
        HEADER.pack_into(self._map, 0, *header)

    # ------------------------------------------------------------------------ BOT entries

    def places(self) -> Iterator[int]:
        """Where the entries of the BOTs in the buffer are."""
        # All at once: this runs at every host request, and most entries are empty.
        entries = BOT_ID.iter_unpack(self._map[_BOTS_AT:_SLOTS_AT])
        return (_BOTS_AT + index * BOT_BYTES for index, (bot,) in enumerate(entries) if bot)

    def bot_at(self, place: int) -> int:
        """The BOT of an entry; 0 in an empty one."""
        return int(RING.unpack_from(self._map, place)[0])

    def place(self, bot: int) -> int | None:
        """Where the entry of a BOT is; None when it has none."""
        place = self._places.get(bot)
        if place is not None and self.bot_at(place) == bot:
            return place
        self._places = {self.bot_at(used): used for used in self.places()}
        return self._places.get(bot)

    def add_bot(self, bot: int) -> int:
        """Give a BOT an entry, with empty queues."""
        places = (_BOTS_AT + index * BOT_BYTES for index in range(MAX_BOTS))
        place = next(place for place in places if not self.bot_at(place))
        RING.pack_into(self._map, place, bot, 0, NIL, NIL, 0, NIL, NIL, 0, 0)
        return place

    def remove_bot(self, place: int) -> None:
        """Empty an entry, and free its ready slots."""
        for fresh in (True, False):
            for number in list(self.walk(place, fresh)):
                self.free(number)
        RING.pack_into(self._map, place, 0, 0, NIL, NIL, 0, NIL, NIL, 0, 0)

    def describe(self, place: int, state: BotState) -> None:
        """Note what the feeder knows of a BOT."""
        ring = list(RING.unpack_from(self._map, place))
        ring[1] = state.version
        RING.pack_into(self._map, place, *ring)
        turnaround = math.nan if state.mean_turnaround is None else state.mean_turnaround
        STATE.pack_into(
            self._map, place + STATE_AT, state.size, state.fresh_unsent, state.copies_unsent,
            state.running, state.done, state.failed, state.tail, state.owner, state.created_at,
            turnaround, state.segment, state.unclaimed,
        )  # fmt: skip

    def segment(self, place: int) -> Segment:
        """What the feeder noted of a BOT, and its slots as they are now."""
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

    def count_taken(self, place: int, count: int) -> None:
        """Add to the slots of a BOT taken so far."""
        ring = list(RING.unpack_from(self._map, place))
        ring[8] += count
        RING.pack_into(self._map, place, *ring)

    # ------------------------------------------------------------------------------ slots

    def _at(self, number: int) -> int:
        return _SLOTS_AT + number * self.slot_bytes

    def slot(self, number: int, body: bool = True) -> Slot:
        """Read one slot."""
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

    def fill(self, number: int, item: Item, now: float) -> None:
        """Write a replica into a slot; ValueError when its detail is too large, before any write."""
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

    def set_state(self, number: int, state: SlotState, generation: int) -> None:
        """Change the state of a slot that is in no queue."""
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

    def free(self, number: int) -> None:
        """Put a slot that is in no queue into the free list."""
        self.set_state(number, SlotState.FREE, 0)
        self._link(number, self._header(_FREE_HEAD))
        self._set_header(_FREE_HEAD, number)
        self._set_header(_FREE_COUNT, self._header(_FREE_COUNT) + 1)

    def pop_free(self) -> int:
        """Take a slot out of the free list; NIL when there is none."""
        number = self._header(_FREE_HEAD)
        if number != NIL:
            self._set_header(_FREE_HEAD, self._next(number))
            self._set_header(_FREE_COUNT, self._header(_FREE_COUNT) - 1)
        return number

    def _queue(self, place: int, fresh: bool) -> tuple[int, int, int]:
        ring = RING.unpack_from(self._map, place)
        head, tail, count = ring[2:5] if fresh else ring[5:8]
        return head, tail, count

    def _set_queue(self, place: int, fresh: bool, queue: tuple[int, int, int]) -> None:
        ring = list(RING.unpack_from(self._map, place))
        ring[2 if fresh else 5 : 5 if fresh else 8] = queue
        RING.pack_into(self._map, place, *ring)

    def push(self, place: int, number: int, *, fresh: bool, front: bool) -> None:
        """Put a slot into a queue of a BOT."""
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

    def pop(self, place: int, *, fresh: bool) -> int:
        """Take the first slot out of a queue of a BOT; NIL when it is empty."""
        head, tail, count = self._queue(place, fresh)
        if count == 0:
            return NIL
        self._set_queue(place, fresh, (self._next(head), tail, count - 1))
        return head

    def walk(self, place: int, fresh: bool) -> Iterator[int]:
        """The slots of a queue in order; each may be freed once it was given."""
        number, _, count = self._queue(place, fresh)
        for _ in range(count):
            following = self._next(number)
            yield number
            number = following

    def unlink_copy(self, place: int, number: int) -> None:
        """Take one slot out of the queue of further copies."""
        rest = [other for other in self.walk(place, fresh=False) if other != number]
        self.keep(place, rest, fresh=False)

    def keep(self, place: int, numbers: Iterable[int], *, fresh: bool) -> None:
        """Let a queue consist of these slots only."""
        self._set_queue(place, fresh, (NIL, NIL, 0))


def _file_bytes(slots: int, slot_bytes: int) -> int:
    return _SLOTS_AT + slots * slot_bytes
