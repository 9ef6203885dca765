"""What the feeder does: keeps the scheduling buffer full (paper sections 6.1 to 6.3).

It claims ranges of unsent jobs for its machine, puts them into the buffer, and gives a range up
when all its jobs have left.  It remembers nothing: what it needs is in the database and in the
buffer, so it may be killed at any line and started again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gridbot_client.protocol import WHY, ReplicaId
from gridbot_server import db, sql
from gridbot_server.dispatch import render, siblings
from gridbot_server.dispatch.batch import encode
from gridbot_server.dispatch.buffer import SchedulingBuffer
from gridbot_server.dispatch.engine import application_name, is_dead, liveness_path
from gridbot_server.dispatch.layout import (
    MAX_BOTS,
    SLOT_BYTES,
    BotState,
    Item,
    Slot,
    SlotState,
)
from gridbot_server.dispatch.segments import (
    Demand,
    is_tail,
    segments,
    withdrawals,
    worth_filling,
)

log = logging.getLogger(__name__)

SQL = sql.load("feeder.sql")

RANGE_LIFETIME = timedelta(seconds=30)  # a machine silent for so long loses its ranges
COPY_LIFETIME = timedelta(seconds=10)  # a copy's slot: its siblings' ads grow stale
COPIES_PER_BOT = 128
CLIENT_COUNT_SECONDS = 10.0
TEND_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Bot:
    """One running BOT as the database has it."""

    state: BotState
    fed: int
    threshold: int | None
    sticky: bool
    manifest_id: str

    @property
    def unclaimed(self) -> int:
        return self.state.size - self.fed


class Feeder:
    """One per machine and buffer."""

    def __init__(self, conn: db.Connection, buffer: SchedulingBuffer) -> None:
        self._conn, self._buffer = conn, buffer
        self._taken_before: dict[int, int] = {}
        self._clients_active = 0
        self._clients_counted_at = self._tended_at = float("-inf")

    def forget_claims(self) -> None:
        """Give up the copies that an earlier feeder of this machine had claimed."""
        self._conn.execute(SQL["unclaim_all"], {"machine": self._buffer.machine})
        for slot in self._buffer.contents():
            if slot.detail and slot.state is SlotState.READY:
                self._buffer.withdraw(slot)

    def run_once(self, now: float) -> int:
        """Make one pass at `now` (monotonic seconds); return how many replicas were put in.

        1. Publish what the database says of every running BOT, tail phase included.
        2. Take back slots of web processes that died, and copies that stayed too long.
        3. Settle the ranges of which nothing is left in the buffer.
        4. Make room where BOTs that came early hold the part of those that came late.
        5. Claim and put in further copies, then first copies.

        Steps 2 and 3 look at every slot, so they are not repeated at every ring of the bell.
        """
        bots = self._read_bots()
        shares = self._shares(bots)
        bots = self._update_tails(bots, shares)
        self._count_clients(now)
        self._publish(bots, shares, now)
        count = self._tend(bots, now) if now - self._tended_at >= TEND_SECONDS else 0
        self._make_room(bots)
        count += self._put_copies(bots, now)
        claimed = self._put_fresh(bots, shares, now)
        if claimed:
            self._publish(bots, shares, now)
        return count + claimed

    def _publish(self, bots: dict[int, _Bot], shares: dict[int, int], now: float) -> None:
        states = [
            replace(item.state, segment=shares[bot], unclaimed=item.unclaimed)
            for bot, item in bots.items()
        ]
        self._buffer.publish(states, now, self._clients_active)

    def _tend(self, bots: dict[int, _Bot], now: float) -> int:
        self._tended_at = now
        contents = self._buffer.contents()
        self._reclaim(contents)
        self._withdraw_stale_copies(contents, now)
        return self._settle_ranges(bots, contents, now)

    # -------------------------------------------------------------------------- the BOTs

    def _read_bots(self) -> dict[int, _Bot]:
        rows = self._conn.execute(SQL["bots"], {"most": MAX_BOTS})
        return {row[0]: _bot(*row) for row in rows}

    def _shares(self, bots: dict[int, _Bot]) -> dict[int, int]:
        taken = {segment.state.bot: segment.taken for segment in self._buffer.segments()}
        demands = {
            bot: Demand(item.state.unsent, taken.get(bot, 0) - self._taken_before.get(bot, 0))
            for bot, item in bots.items()
        }
        self._taken_before = taken
        return segments(self._buffer.slots, demands)

    def _update_tails(self, bots: dict[int, _Bot], shares: dict[int, int]) -> dict[int, _Bot]:
        """Note which BOTs entered or left their tail phase (paper section 6.3)."""
        fair = self._buffer.slots // max(1, len(bots))
        changed: dict[bool, list[int]] = {True: [], False: []}
        for bot, item in bots.items():
            state = item.state
            segment = max(fair, shares[bot])
            tail = is_tail(state.unsent, state.running, segment, item.threshold)
            if tail != state.tail and not (state.tail and item.sticky):
                changed[tail].append(bot)
        for tail, names in changed.items():
            if names:
                self._conn.execute(SQL["set_tail"], {"tail": tail, "bots": names})
                bots |= {bot: _with_tail(bots[bot], tail) for bot in names}
        return bots

    def _count_clients(self, now: float) -> None:
        if now - self._clients_counted_at >= CLIENT_COUNT_SECONDS:
            row = self._conn.execute(SQL["clients_active"]).fetchone()
            self._clients_active, self._clients_counted_at = (row[0] if row else 0), now

    # ------------------------------------------------------------------ what left, what stayed

    def _reclaim(self, contents: Sequence[Slot]) -> None:
        """Decide about slots that a web process took before it died.

        Its last transaction may still be committing, so its connection must be gone first.
        """
        by_generation: dict[int, list[Slot]] = {}
        for slot in contents:
            if slot.state is SlotState.TAKEN:
                by_generation.setdefault(slot.generation, []).append(slot)
        for generation, slots in by_generation.items():
            if not is_dead(self._buffer.path, generation):
                continue
            name = application_name(generation)
            if self._conn.execute(SQL["backend_lives"], {"name": name}).fetchone():
                continue
            sent = self._sent([_name(slot) for slot in slots])
            self._buffer.free([slot.number for slot in slots if _name(slot) in sent])
            self._buffer.give_back([slot.number for slot in slots if _name(slot) not in sent])
            liveness_path(self._buffer.path, generation).unlink(missing_ok=True)
            log.info("took back %d slots of web process %d", len(slots), generation)

    def _sent(self, names: Sequence[ReplicaId]) -> set[ReplicaId]:
        listed = encode([name._asdict() for name in names])
        return {ReplicaId(*row) for row in self._conn.execute(SQL["was_sent"], {"copies": listed})}

    def _withdraw_stale_copies(self, contents: Sequence[Slot], now: float) -> None:
        """Return copies to the queue when their time to live is over (paper section 6.2)."""
        lifetime = COPY_LIFETIME.total_seconds()
        stale = [
            slot
            for slot in contents
            if slot.detail and slot.state is SlotState.READY and now - slot.loaded_at > lifetime
        ]
        withdrawn = [_name(slot)._asdict() for slot in stale if self._buffer.withdraw(slot)]
        if withdrawn:
            self._conn.execute(
                SQL["unclaim_copies"],
                {"copies": encode(withdrawn), "machine": self._buffer.machine},
            )

    # ------------------------------------------------------------------------ first copies

    def _settle_ranges(self, bots: dict[int, _Bot], contents: Sequence[Slot], now: float) -> int:
        """Give up ranges whose jobs were all sent; put back in what got lost on the way.

        The buffer was read before the database: a slot that was free by then was committed.
        """
        held = sorted((slot.bot, slot.seq) for slot in contents if not slot.detail)
        self._conn.execute(SQL["drop_idle_ranges"])
        arguments = {"machine": self._buffer.machine, "lifetime": RANGE_LIFETIME}
        count = 0
        for bot, lo, hi in self._conn.execute(SQL["renew_ranges"], arguments).fetchall():
            if bot in bots and bisect_left(held, (bot, lo)) == bisect_left(held, (bot, hi)):
                count += self._settle_range(bots[bot], lo, hi, now)
        return count

    def _settle_range(self, bot: _Bot, lo: int, hi: int, now: float) -> int:
        place = {"bot": bot.state.bot, "lo": lo}
        most = max(1, self._buffer.room)
        rows = self._conn.execute(SQL["unsent_jobs"], {**place, "hi": hi, "most": most}).fetchall()
        if not rows:
            self._conn.execute(SQL["drop_range"], {**place, "machine": self._buffer.machine})
            return 0
        log.info("BOT %d: %d jobs of range %d..%d go in again", bot.state.bot, len(rows), lo, hi)
        return self._put_jobs(bot, rows, now)

    def _put_fresh(self, bots: dict[int, _Bot], shares: dict[int, int], now: float) -> int:
        there = Counter(
            {item.state.bot: item.fresh + item.copies for item in self._buffer.segments()}
        )
        claims, room = [], self._buffer.room
        for bot in sorted(shares, key=lambda bot: there[bot]):
            left = bots[bot].unclaimed
            lacking = min(shares[bot] - there[bot], left)
            if room and worth_filling(lacking, shares[bot], left):
                claims.append({"bot": bot, "jobs": min(lacking, room)})
                room -= min(lacking, room)
        if not claims:
            return 0
        arguments = {
            "claims": encode(claims), "machine": self._buffer.machine, "lifetime": RANGE_LIFETIME,
        }  # fmt: skip
        count = 0
        for bot, lo, hi in self._conn.execute(SQL["claim_ranges"], arguments).fetchall():
            rows = self._conn.execute(SQL["range_jobs"], {"bot": bot, "lo": lo, "hi": hi})
            bots[bot] = replace(bots[bot], fed=hi)
            count += self._put_jobs(bots[bot], rows.fetchall(), now)
        return count

    def _make_room(self, bots: dict[int, _Bot]) -> None:
        """Give jobs back to the database where BOTs hold more than 1/n and others lack it.

        Out of the buffer first: killed before the other half, we settle their range later.
        """
        held = {item.state.bot: item for item in self._buffer.segments()}
        there = {bot: held[bot].fresh + held[bot].copies for bot in bots if bot in held}
        absent = {
            bot: bots[bot].unclaimed + max(0, _copies_wanted(bots[bot]) - held[bot].copies)
            for bot in there
        }
        given = []
        for bot, most in withdrawals(self._buffer.slots, self._buffer.room, there, absent).items():
            fed = bots[bot].fed
            count = self._buffer.withdraw_last(bot, fed, most)
            given.append({"bot": bot, "fed": fed, "upto": fed - count})
        if given:
            arguments = {"given": encode(given), "machine": self._buffer.machine}
            self._conn.execute(SQL["give_back_jobs"], arguments)

    def _put_jobs(self, bot: _Bot, rows: Sequence[tuple[int, str, str]], now: float) -> int:
        first = WHY.index("first")
        items = [
            Item(
                bot.state.bot,
                seq,
                1,
                0,
                first,
                render.body(ReplicaId(bot.state.bot, seq, 1), bot.manifest_id, args, inputs),
            )
            for seq, args, inputs in rows
        ]
        return self._buffer.put(items, now)

    # ---------------------------------------------------------------------- further copies

    def _put_copies(self, bots: dict[int, _Bot], now: float) -> int:
        there = {item.state.bot: item.copies for item in self._buffer.segments()}
        wanted = [
            bot
            for bot, item in bots.items()
            if item.state.copies_unsent and there.get(bot, 0) < COPIES_PER_BOT // 2
        ]
        wanted = wanted[: (room := self._buffer.room)]
        if not wanted:
            return 0
        arguments = {
            "bots": wanted, "most": min(COPIES_PER_BOT // 2, room // len(wanted)),
            "machine": self._buffer.machine, "lifetime": 3 * COPY_LIFETIME,
        }  # fmt: skip
        rows = self._conn.execute(SQL["claim_copies"], arguments).fetchall()
        return self._buffer.put(self._copy_items(bots, rows), now) if rows else 0

    def _copy_items(
        self, bots: dict[int, _Bot], rows: Sequence[tuple[int, int, int, int, str, str | None]]
    ) -> list[Item]:
        jobs = sorted({(row[0], row[1]) for row in rows})
        details = siblings.describe(self._conn, SQL, jobs)
        listed = encode([{"bot": bot, "seq": seq} for bot, seq in jobs])
        texts = {
            (row[0], row[1]): (row[2], row[3])
            for row in self._conn.execute(SQL["jobs"], {"jobs": listed})
        }
        room = self._buffer.slot_bytes - SLOT_BYTES
        return [
            Item(
                bot,
                seq,
                replica,
                round_,
                WHY.index(why),
                render.body(ReplicaId(bot, seq, replica), bots[bot].manifest_id, *texts[bot, seq]),
                siblings.render(details[bot, seq], pool, room),
            )
            for bot, seq, replica, round_, why, pool in rows
        ]


def _bot(
    bot: int, version: int, owner: int, size: int, fed: int, done: int, failed: int, tail: bool,
    threshold: int | None, sticky: bool, created_at: float, turnaround: float | None,
    manifest_id: str, first: int, sent: int, back: int, queued: int,
) -> _Bot:  # fmt: skip
    state = BotState(
        bot, version, owner, size, size - first, max(0, queued), max(0, sent - back), done,
        failed, tail, created_at, turnaround,
    )  # fmt: skip
    return _Bot(state, fed, threshold, sticky, manifest_id)


def _copies_wanted(bot: _Bot) -> int:
    return min(bot.state.copies_unsent, COPIES_PER_BOT // 2)


def _with_tail(bot: _Bot, tail: bool) -> _Bot:
    return replace(bot, state=replace(bot.state, tail=tail))


def _name(slot: Slot) -> ReplicaId:
    return ReplicaId(slot.bot, slot.seq, slot.replica)
