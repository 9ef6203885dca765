"""The scheduling buffer of one process, in memory: no file, no lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from gridbot_server.buffer.layout import (
    MAX_BOTS,
    SLOT_BYTES,
    BotSnapshot,
    BufferContents,
    Item,
    Segment,
    Slot,
    SlotState,
)


@dataclass(slots=True)
class _Queues:
    """What the buffer holds of a BOT."""

    state: BotSnapshot
    fresh: deque[Slot] = field(default_factory=deque)
    copies: dict[int, Slot] = field(default_factory=dict)  # by number, in order
    taken: int = 0  # slots so far


class MemoryBuffer:
    """A `Buffer`: what `SchedulingBuffer` does for many processes, for one."""

    def __init__(self, slots: int, slot_bytes: int = 2048, machine: str = "simulated") -> None:
        self.slots, self.slot_bytes, self.machine = slots, slot_bytes, machine
        self._bots: dict[int, _Queues] = {}
        self._taken: dict[int, Slot] = {}
        self._put_so_far = 0  # slots; the number of the last one
        # Replicas that came in for the first time: further copies go out and in again as they age.
        self.new_so_far = 0
        self._copies_so_far: set[tuple[int, int, int, int]] = set()
        self._pulse = 0.0, 0
        self.inversions = 0

    @property
    def room(self) -> int:
        """Free slots."""
        ready = sum(len(found.fresh) + len(found.copies) for found in self._bots.values())
        return self.slots - ready - len(self._taken)

    # ---------------------------------------------------------------------------- dispatch

    def segments(self) -> list[Segment]:
        """Every BOT in the buffer, as the feeder last described it."""
        return [
            Segment(found.state, len(found.fresh), len(found.copies), found.taken)
            for found in self._bots.values()
        ]

    def take_fresh(self, bot: int, most: int, generation: int) -> list[Slot]:
        """Take up to `most` first copies of a BOT, in job order."""
        if (found := self._bots.get(bot)) is None:
            return []
        slots = [found.fresh.popleft() for _ in range(min(most, len(found.fresh)))]
        self._note_taken(found, slots, generation)
        return slots

    def copies(
        self,
        bot: int,
        most: int,
        start: int,
        drawn: Collection[int] | None = None,
        jobs: Container[int] | None = None,
    ) -> list[Slot]:
        """Look at up to `most` further copies of a BOT, beginning `start` slots into its queue."""
        if (found := self._bots.get(bot)) is None:
            return []
        slots = [
            slot
            for slot in found.copies.values()
            if (drawn is None or slot.drawn in drawn) and (jobs is None or slot.seq in jobs)
        ]
        shift = start % len(slots) if slots else 0
        return (slots[shift:] + slots[:shift])[:most]

    def take_copies(self, slots: Sequence[Slot], generation: int) -> list[Slot]:
        """Take replicas that were shown, without those that are gone by now."""
        found = self._pulled(slots)
        for queues, slot in found:
            self._note_taken(queues, [slot], generation)
        return [slot for _, slot in found]

    def _note_taken(self, queues: _Queues, slots: Iterable[Slot], generation: int) -> None:
        for slot in slots:
            queues.taken += 1
            self._taken[slot.number] = slot._replace(state=SlotState.TAKEN, generation=generation)

    def free(self, numbers: Iterable[int]) -> None:
        """Give up taken slots."""
        for number in numbers:
            self._taken.pop(number, None)

    def restore(self, numbers: Iterable[int]) -> None:
        """Make taken slots ready again, in front."""
        slots = [self._taken.pop(number) for number in numbers if number in self._taken]
        for slot in sorted(slots, key=lambda slot: slot.seq, reverse=True):
            ready = slot._replace(state=SlotState.READY, generation=0)
            if (found := self._bots.get(slot.bot)) is None:
                continue
            if slot.detail:
                found.copies = {slot.number: ready, **found.copies}
            else:
                found.fresh.appendleft(ready)

    def count_inversions(self, count: int) -> None:
        """Note that so often a BOT with unsent jobs was passed over because its segment was dry."""
        self.inversions += count

    def pulse(self) -> tuple[float, int, int]:
        """When the feeder last passed, clients seen lately, inversions."""
        return *self._pulse, self.inversions

    # -------------------------------------------------------------------------- the feeder

    def publish(
        self,
        states: Sequence[BotSnapshot],
        fed_at: float,
        clients_active: int,
        *,
        others_stay: bool = False,
    ) -> None:
        """Describe the BOTs to be served; others lose their ready slots unless they are to stay."""
        wanted = {state.bot: state for state in states[:MAX_BOTS]}
        for bot, found in list(self._bots.items()):
            state = wanted.get(bot, found.state if others_stay else None)
            if state is None or state.first_round != found.state.first_round:
                del self._bots[bot]
        for bot, state in wanted.items():
            if bot in self._bots:
                self._bots[bot].state = state
            else:
                self._bots[bot] = _Queues(state)
        self._pulse = fed_at, clients_active

    def put(self, items: Iterable[Item], now: float) -> int:
        """Add unsent replicas behind those already there; return how many found room."""
        room, placed = self.room, 0
        for item in items:
            if (found := self._bots.get(item.bot)) is None:
                break
            if placed == room:
                continue
            slot = self._slot(item, now)
            if slot.detail:
                found.copies[slot.number] = slot
            else:
                found.fresh.append(slot)
            placed += 1
        return placed

    def _slot(self, item: Item, now: float) -> Slot:
        room = self.slot_bytes - SLOT_BYTES - len(item.detail)
        if room < 0:
            raise ValueError(f"{len(item.detail)} bytes of detail do not fit into a slot")
        body = item.body if 0 < len(item.body) <= room else None
        self._put_so_far += 1
        self._note_new(item)
        return Slot(
            self._put_so_far, SlotState.READY, 0, item.bot, item.seq, item.replica, item.round,
            item.why, now, body, item.detail, item.drawn,
        )  # fmt: skip

    def _note_new(self, item: Item) -> None:
        copy = item.bot, item.seq, item.replica, item.drawn
        if item.detail and copy in self._copies_so_far:
            return
        self.new_so_far += 1
        if item.detail:
            self._copies_so_far.add(copy)

    def contents(self) -> list[Slot]:
        """Every slot that is not free."""
        return [*self._ready(), *self._taken.values()]

    def _ready(self) -> Iterator[Slot]:
        for found in self._bots.values():
            yield from found.fresh
            yield from found.copies.values()

    def held(self) -> BufferContents:
        """Say what is there; of ready first copies no more than their names."""
        taken = list(self._taken.values())
        fresh = [(slot.bot, slot.seq) for slot in taken if not slot.detail]
        others = taken
        for found in self._bots.values():
            fresh += [(slot.bot, slot.seq) for slot in found.fresh]
            others = others + list(found.copies.values())
        return BufferContents(sorted(fresh), others)

    def first_copies(self, bot: int, jobs: Collection[int] | None = None) -> list[Slot]:
        """Every ready first copy of a BOT, or of these jobs, in the order in which they go."""
        ready = self._bots[bot].fresh if bot in self._bots else ()
        if jobs is None:
            return list(ready)
        return [slot for slot in ready if slot.seq in jobs][: len(jobs)]

    def withdraw(self, slots: Sequence[Slot]) -> list[Slot]:
        """Take ready replicas out of the buffer again; return those that were there."""
        return [slot for _, slot in self._pulled(slots)]

    def withdraw_last(self, bot: int, end: int, most: int) -> int:
        """Take ready first copies out again: of jobs `end` - 1, `end` - 2, … up to `most`."""
        if (found := self._bots.get(bot)) is None:
            return 0
        there = {slot.seq for slot in found.fresh}
        wanted = range(end - 1, end - 1 - most, -1)
        gone = set(takewhile(there.__contains__, wanted))
        found.fresh = deque(slot for slot in found.fresh if slot.seq not in gone)
        return len(gone)

    def _pulled(self, slots: Sequence[Slot]) -> list[tuple[_Queues, Slot]]:
        """Take those that still wait out of their queues."""
        found = []
        for slot in slots:
            queues = self._bots.get(slot.bot)
            if queues is None:
                continue
            if slot.detail and slot.number in queues.copies:
                del queues.copies[slot.number]
                found.append((queues, slot))
            elif not slot.detail and any(slot.number == ready.number for ready in queues.fresh):
                queues.fresh = deque(r for r in queues.fresh if r.number != slot.number)
                found.append((queues, slot))
        return found

    # ----------------------------------------------------------------------- web processes

    def is_dead(self, generation: int) -> bool:  # noqa: ARG002
        """Whether the web process of that generation has ended: never, here."""
        return False

    def forget(self, generation: int) -> None:
        """Keep no trace of a web process."""
