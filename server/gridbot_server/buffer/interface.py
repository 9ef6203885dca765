"""What the feeder and dispatch ask of a scheduling buffer, wherever that lies."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import Protocol

from gridbot_server.buffer.layout import BotSnapshot, BufferContents, Item, Segment, Slot


class Buffer(Protocol):
    """Jobs ready to be sent.  `SchedulingBuffer` shares them among processes; others need not."""

    @property
    def slots(self) -> int:
        """How many replicas it has room for."""

    @property
    def slot_bytes(self) -> int:
        """The size of a slot."""

    @property
    def machine(self) -> str:
        """Whose it is: a name that no other buffer of the database has."""

    @property
    def room(self) -> int:
        """Free slots."""

    def segments(self) -> list[Segment]:
        """Every BOT in the buffer, as the feeder last described it."""

    def take_fresh(self, bot: int, most: int, generation: int) -> list[Slot]:
        """Take up to `most` first copies of a BOT, in job order, for one web process."""

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

    def take_copies(self, slots: Sequence[Slot], generation: int) -> list[Slot]:
        """Take replicas that were shown, without those that are gone by now."""

    def free(self, numbers: Iterable[int]) -> None:
        """Give up slots whose replicas are committed, or need not be sent any more."""

    def restore(self, numbers: Iterable[int]) -> None:
        """Make taken slots ready again, in front: their transaction was rolled back."""

    def count_inversions(self, count: int) -> None:
        """Note that so often a BOT with unsent jobs was passed over because its segment was dry."""

    def pulse(self) -> tuple[float, int, int]:
        """When the feeder last passed (monotonic seconds), clients seen lately, inversions."""

    def publish(
        self,
        states: Sequence[BotSnapshot],
        fed_at: float,
        clients_active: int,
        *,
        others_stay: bool = False,
    ) -> None:
        """Describe the BOTs to be served; others lose their ready slots unless they are to stay."""

    def put(self, items: Iterable[Item], now: float) -> int:
        """Add unsent replicas behind those already there; return how many found room."""

    def contents(self) -> list[Slot]:
        """Every slot that is not free, without its body."""

    def held(self) -> BufferContents:
        """Say what is there; of ready first copies no more than their names."""

    def first_copies(self, bot: int, jobs: Collection[int] | None = None) -> list[Slot]:
        """Every ready first copy of a BOT, without its body, in the order in which they go.

        With `jobs`, only those of these, at most as many as they are.
        """

    def withdraw(self, slots: Sequence[Slot]) -> list[Slot]:
        """Take ready replicas out of the buffer again, untaken; return those that were there."""

    def withdraw_last(self, bot: int, end: int, most: int) -> int:
        """Take ready first copies out again: of jobs `end` - 1, `end` - 2, … up to `most`."""

    def is_dead(self, generation: int) -> bool:
        """Whether the web process of that generation has ended."""

    def forget(self, generation: int) -> None:
        """Keep no trace of a web process that has ended."""
