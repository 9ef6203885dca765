"""Where each number lies in the buffer's file: header, one entry per BOT, slots."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

MAGIC = b"GRIDBOT6"
MAX_BOTS = 8192
NIL = -1  # no slot

# magic, slots, slot_bytes, dirty, free_head, free_count, entries: behind them no BOT is described
HEADER = struct.Struct("=8sIIIiII")
DIRTY_AT, FREE_AT, ENTRIES_AT = 16, 20, 28
NUMBER = struct.Struct("=i")
FREE = struct.Struct("=ii")  # head and count of the free slots
# machine, database: random names that tell one buffer's feeder and one database from another
NAMES = struct.Struct("=32s64s")
# fed_at, clients_active, inversions
PULSE = struct.Struct("=dqq")
HEADER_BYTES = 256
NAMES_AT = 64
PULSE_AT = 192

# bot, version, fresh_head, fresh_tail, fresh_count, copy_head, copy_tail, copy_count, taken
RING = struct.Struct("=qiiiiiiiq")
VERSION_AT, FRESH_AT, COPIES_AT, TAKEN_AT = 8, 12, 24, 36
QUEUE = struct.Struct("=iii")  # head, tail and count of one queue
COUNT = struct.Struct("=q")
# size, fresh_unsent, copies_unsent, running, done, failed, tail, owner, created_at, turnaround,
# segment, unclaimed, first_round, usual_seconds
STATE = struct.Struct("=qqqqqqiiddqqqd")
STATE_AT = 64
BOT_BYTES = 168
BOT_ID = struct.Struct(f"=q{BOT_BYTES - 8}x")  # the head of an entry; 0 in an empty one

# state, generation, next, checksum, bot, seq, replica, round, why, body bytes, detail bytes,
# loaded_at, drawn
SLOT = struct.Struct("=IIiIqqiiIIIdq4x")
SLOT_BYTES = SLOT.size
NEXT_AT, JOB_AT, DRAWN_AT = 8, 24, 60
MARK = struct.Struct("=IIi")  # a slot's state, generation and next
# A slot's mark and checksum: the CRC-32 of what it was filled with, which is all that follows.
SEAL = struct.Struct("=IIiI")
FILLED_AT = SEAL.size
NOT_HELD = 0xFFFFFFFF  # the body did not fit into the slot: read it from the database


class BufferMissing(Exception):
    """No feeder has made the buffer yet, or the file is not one."""


class BufferDamaged(BufferMissing):
    """The buffer holds what no process of ours has written."""


class SlotState(IntEnum):
    """FREE -> READY (feeder) -> TAKEN (a web process) -> FREE (commit) or READY (rollback)."""

    FREE = 0
    READY = 1
    TAKEN = 2


class Item(NamedTuple):
    """One unsent replica as the feeder puts it in: `body` is the pre-rendered assignment.

    `detail` describes the job's other replicas; it is empty for first copies, which are
    interchangeable (paper section 6.4).
    """

    bot: int
    seq: int
    replica: int
    round: int
    why: int  # index into protocol.WHY
    body: bytes
    detail: bytes = b""
    drawn: int = 0  # for whom a further copy is kept (`matching/lots.py`); 0: for anybody


class Slot(NamedTuple):
    """One slot's place and content; `body` is None when it must be read from the database."""

    number: int
    state: SlotState
    generation: int
    bot: int
    seq: int
    replica: int
    round: int
    why: int
    loaded_at: float
    body: bytes | None
    detail: bytes
    drawn: int = 0


class BufferContents(NamedTuple):
    """What the buffer holds, as the feeder sees it time and again."""

    fresh: list[tuple[int, int]]  # BOT and job of each first copy, ready or taken, in order
    slots: list[Slot]  # further copies, and all that is taken, without bodies


class BotSnapshot(NamedTuple):
    """What the feeder knows of one BOT; published to all web processes through the buffer."""

    bot: int
    version: int
    owner: int
    size: int
    fresh_unsent: int  # jobs of which no copy was ever sent
    copies_unsent: int
    running: int
    done: int
    failed: int
    tail: bool
    created_at: float  # seconds since the epoch
    mean_turnaround: float | None  # seconds
    segment: int = 0  # slots that the feeder means to keep filled
    unclaimed: int = 0  # first copies that no feeder has put into its buffer yet
    first_round: int = 0  # of the version of its manifest that is sent
    usual_seconds: float | None = None  # that 95 of 100 replicas run at most, as far as known

    @property
    def unsent(self) -> int:
        """Replicas that wait to be sent."""
        return self.fresh_unsent + self.copies_unsent

    def packed(self) -> bytes:
        """As it lies in the buffer, without its number and version."""
        return STATE.pack(
            self.size, self.fresh_unsent, self.copies_unsent, self.running, self.done, self.failed,
            self.tail, self.owner, self.created_at, _packed(self.mean_turnaround), self.segment,
            self.unclaimed, self.first_round, _packed(self.usual_seconds),
        )  # fmt: skip

    @classmethod
    def unpacked(cls, bot: int, version: int, packed: Sequence[Any]) -> BotSnapshot:
        """Read what `packed` wrote."""
        (
            size, fresh_unsent, copies_unsent, running, done, failed, tail, owner, created_at, mean,
            segment, unclaimed, first_round, usual,
        ) = packed  # fmt: skip
        return cls(
            bot, version, owner, size, fresh_unsent, copies_unsent, running, done, failed,
            bool(tail), created_at, _unpacked(mean), segment, unclaimed, first_round,
            _unpacked(usual),
        )  # fmt: skip


def _packed(seconds: float | None) -> float:
    return math.nan if seconds is None else seconds


def _unpacked(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds


class Segment(NamedTuple):
    """One BOT's share of the buffer as it is now."""

    state: BotSnapshot
    fresh: int  # first copies ready
    copies: int  # further copies ready
    taken: int  # slots taken so far: the demand
