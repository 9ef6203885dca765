"""The scheduling buffer of a machine whose web processes die, and which may be damaged."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

from gridbot_server.buffer.layout import BotSnapshot, BufferDamaged, Item, Segment, Slot
from gridbot_simulator.buffer import MemoryBuffer
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.nemesis.points import Points


class FaultyBuffer(MemoryBuffer):
    """A `Buffer` that several processes use, one at a time."""

    def __init__(self, machine: str, points: Points, dead: Container[int], slots: int) -> None:
        """`dead` holds the generations of web processes that died."""
        super().__init__(slots, machine=machine)
        self._points, self._dead = points, dead
        self.is_damaged = False

    def _use(self, what: str) -> None:
        """Raises BufferDamaged."""
        self._points.cross(f"buffer {what}")
        if self.is_damaged:
            raise BufferDamaged(f"the buffer of {self.machine} is damaged")

    def segments(self) -> list[Segment]:
        """Raises BufferDamaged, as do all others but those that give up slots."""
        self._use("segments")
        return super().segments()

    def take_fresh(self, bot: int, most: int, generation: int) -> list[Slot]:
        """As in `Buffer`."""
        self._use("take_fresh")
        return super().take_fresh(bot, most, generation)

    def take_copies(self, slots: Sequence[Slot], generation: int) -> list[Slot]:
        """As in `Buffer`."""
        self._use("take_copies")
        return super().take_copies(slots, generation)

    def free(self, numbers: Iterable[int]) -> None:
        """Raises InvariantBroken for a slot that nobody holds: a real one may be somebody's."""
        listed = list(numbers)
        self._points.cross("buffer free")
        if strange := [number for number in listed if number not in self._taken]:
            raise InvariantBroken("a_slot_is_freed_once", f"slots {strange} are not taken")
        super().free(listed)

    def restore(self, numbers: Iterable[int]) -> None:
        """As in `Buffer`; who is dead restores nothing."""
        if not self._points.is_dying:
            super().restore(numbers)

    def publish(
        self,
        states: Sequence[BotSnapshot],
        fed_at: float,
        clients_active: int,
        *,
        others_stay: bool = False,
    ) -> None:
        """As in `Buffer`."""
        self._use("publish")
        super().publish(states, fed_at, clients_active, others_stay=others_stay)

    def put(self, items: Iterable[Item], now: float) -> int:
        """As in `Buffer`."""
        self._use("put")
        return super().put(items, now)

    def withdraw(self, slots: Sequence[Slot]) -> list[Slot]:
        """As in `Buffer`."""
        self._use("withdraw")
        return super().withdraw(slots)

    def withdraw_last(self, bot: int, end: int, most: int) -> int:
        """As in `Buffer`."""
        self._use("withdraw_last")
        return super().withdraw_last(bot, end, most)

    def first_copies(self, bot: int, jobs: Collection[int] | None = None) -> list[Slot]:
        """As in `Buffer`."""
        self._use("first_copies")
        return super().first_copies(bot, jobs)

    def is_dead(self, generation: int) -> bool:
        """As in `Buffer`."""
        return generation in self._dead
