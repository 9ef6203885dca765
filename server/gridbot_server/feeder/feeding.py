"""What the feeder does: keeps the scheduling buffer full (paper sections 6.1 to 6.3).

It claims ranges of unsent jobs for its machine, puts them into the buffer, and gives a range up
when all its jobs have left.  It remembers nothing: what it needs is in the database and in the
buffer, so it may be killed at any line and started again.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from gridbot_client.protocol.messages import WHY, ReplicaId
from gridbot_server.buffer.assignment import prepared
from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import BufferContents, Item, Slot, SlotState
from gridbot_server.feeder import copies, members
from gridbot_server.feeder.electors import Electors
from gridbot_server.feeder.running import SQL, ClaimedRange, RunningBot, read_bots
from gridbot_server.feeder.shares import (
    SlotClaim,
    is_tail,
    segments,
    withdrawals,
    worth_filling,
)
from gridbot_server.storage import db
from gridbot_server.storage.job_proofs import jobs_of_range, read_jobs
from gridbot_server.storage.rows import JobTexts, encode, fetch, fetch_value, has_row

log = logging.getLogger(__name__)

RANGE_LIFETIME = timedelta(seconds=30)  # a machine silent for so long loses its ranges
CLIENT_COUNT_SECONDS = 10.0
TEND_SECONDS = 0.5
# Reading all BOTs takes long where they are many: so long between two times, for each of them.
READ_SECONDS_PER_BOT, MOST_READ_SECONDS = 0.001, 2.0
FEW_BOTS = 50  # they are read in each pass


class Feeder:
    """One per machine and buffer."""

    def __init__(
        self, conn: db.Connection, buffer: Buffer, chance: random.Random | None = None
    ) -> None:
        """`chance` draws who checks answers: the system's, which nobody foresees, if not given."""
        self._conn, self._buffer = conn, buffer
        self.has_bots = False  # at the last pass
        self._bots: dict[int, RunningBot] = {}  # as they were read last
        self._shares: dict[int, int] = {}  # slots that each BOT may fill
        self._read_at = float("-inf")  # all of them
        self._counts: dict[int, int] = {}  # slots taken so far, by BOT
        self._taken: dict[int, int] = {}  # since the last pass
        self._clients_active = 0
        self._electors = Electors(chance or random.SystemRandom())
        self._clients_counted_at = self._tended_at = float("-inf")

    def forget_claims(self) -> None:
        """Give up the copies that an earlier feeder of this machine had claimed."""
        copies.forget_claims(self._conn, self._buffer)

    def run_once(self, now: float) -> int:
        """Make one pass at `now` (monotonic seconds); return how many replicas were put in.

        Where BOTs are many, most passes only bring what was taken since the last one.
        """
        pause = min(MOST_READ_SECONDS, READ_SECONDS_PER_BOT * len(self._bots))
        if len(self._bots) > FEW_BOTS and now - self._read_at < pause:
            return self._refill(now)
        return self._pass(now)

    def _pass(self, now: float) -> int:
        """Look at all BOTs.

        1. Publish what the database says of every running BOT, tail phase included.
        2. Take back slots of web processes that died, and copies that stayed too long.
        3. Settle the ranges of which nothing is left in the buffer.
        4. Make room where BOTs that came early hold the part of those that came late.
        5. SlotClaim and put in further copies, then first copies.

        Steps 2 and 3 read of every slot what it holds, so they are not repeated at every
        notification.
        """
        self._read_at = now
        bots = read_bots(self._conn, self._buffer.slots)
        self.has_bots = bool(bots)
        self._shares = shares = self._share_out(bots)
        self._bots = bots = self._update_tails(bots, shares)
        self._count_clients(now)
        if any(item.is_assured for item in bots.values()):
            self._electors.refresh(self._conn, now)
        self._publish(bots, now)
        count = self._tend(bots, now) if now - self._tended_at >= TEND_SECONDS else 0
        self._make_room(bots)
        count += copies.put(self._conn, self._buffer, bots, self._taken, self._electors, now)
        claimed = self._put_fresh(bots, now)
        if claimed:
            self._publish(bots, now)
        return count + claimed

    def _refill(self, now: float) -> int:
        """Look at the BOTs of which some replicas were taken since the last pass.

        Where one of them is not to be served any more, as it is held, look at all.
        """
        counts = {
            segment.state.bot: segment.taken
            for segment in self._buffer.segments()
            if segment.taken != self._counts.get(segment.state.bot, 0)
        }
        emptied = [bot for bot in counts if bot in self._bots]
        bots = read_bots(self._conn, self._buffer.slots, emptied)
        if len(bots) < len(emptied):
            return self._pass(now)
        self._taken = {bot: counts[bot] - self._counts.get(bot, 0) for bot in emptied}
        self._counts |= counts
        bots = self._update_tails(bots, self._shares)
        self._publish(bots, now, others_stay=True)
        count = copies.put(self._conn, self._buffer, bots, self._taken, self._electors, now)
        claimed = self._put_fresh(bots, now)
        if claimed:
            self._publish(bots, now, others_stay=True)
        self._bots |= bots
        return count + claimed

    def _publish(
        self, bots: Mapping[int, RunningBot], now: float, *, others_stay: bool = False
    ) -> None:
        states = [
            item.state._replace(segment=self._shares[bot], unclaimed=item.unclaimed)
            for bot, item in bots.items()
        ]
        self._buffer.publish(states, now, self._clients_active, others_stay=others_stay)

    def _tend(self, bots: dict[int, RunningBot], now: float) -> int:
        self._tended_at = now
        held = self._buffer.held()
        self._reclaim(held.slots)
        copies.withdraw_stale(self._conn, self._buffer, held.slots, self._electors, now)
        self._withdraw_cancelled(bots)
        settled = self._settle_ranges(bots, held.fresh, now)
        return settled or self._put_members(bots, held, now)

    def _put_members(self, bots: dict[int, RunningBot], held: BufferContents, now: float) -> int:
        """Put in what gangs that gather lack."""
        of_gangs = [bot for bot, item in bots.items() if item.together > 1]
        machine = self._buffer.machine
        for claimed in members.claim(self._conn, of_gangs, machine, RANGE_LIFETIME):
            bots[claimed.bot] = replace(bots[claimed.bot], fed=claimed.hi)
        first, further = members.lacking(self._conn, of_gangs, held)
        count = copies.put_these(self._conn, self._buffer, bots, further, self._electors, now)
        jobs = read_jobs(self._conn, first)
        for bot in sorted({name.bot for name in jobs}):
            of_bot = [job for job in jobs.values() if job.bot == bot]
            count += self._put_jobs(bots[bot], of_bot, now)
        return count

    # -------------------------------------------------------------------------- the BOTs

    def _share_out(self, bots: Mapping[int, RunningBot]) -> dict[int, int]:
        counts = {segment.state.bot: segment.taken for segment in self._buffer.segments()}
        self._taken = {bot: count - self._counts.get(bot, 0) for bot, count in counts.items()}
        self._counts = counts
        demands = {
            bot: SlotClaim(item.state.unsent, self._taken.get(bot, 0)) for bot, item in bots.items()
        }
        return segments(self._buffer.slots, demands)

    def _update_tails(
        self, bots: dict[int, RunningBot], shares: dict[int, int]
    ) -> dict[int, RunningBot]:
        """Note which BOTs entered or left their tail phase (paper section 6.3)."""
        fair = self._buffer.slots // max(1, len(shares))
        changed: dict[bool, list[int]] = {True: [], False: []}
        for bot, item in bots.items():
            state = item.state
            segment = max(fair, shares[bot])
            # What is unsent now says little of a BOT that is still growing.
            tail = not item.growing and is_tail(
                state.unsent, state.running, segment, item.threshold
            )
            if tail != state.tail and not (state.tail and item.sticky):
                changed[tail].append(bot)
        for tail, names in changed.items():
            if names:
                self._conn.execute(SQL["set_tail"], {"tail": tail, "bots": names})
                bots |= {bot: bots[bot].with_tail(tail) for bot in names}
        return bots

    def _count_clients(self, now: float) -> None:
        if now - self._clients_counted_at >= CLIENT_COUNT_SECONDS:
            self._clients_active = fetch_value(self._conn, int, SQL["clients_active"]) or 0
            self._clients_counted_at = now

    # ------------------------------------------------------------------ what left, what stayed

    def _reclaim(self, held: Iterable[Slot]) -> None:
        """Decide about slots that a web process took before it died.

        Its last transaction may still be committing, so its connection must be gone first.
        """
        by_generation: dict[int, list[Slot]] = {}
        for slot in held:
            if slot.state is SlotState.TAKEN:
                by_generation.setdefault(slot.generation, []).append(slot)
        for generation, slots in by_generation.items():
            if not self._buffer.is_dead(generation):
                continue
            name = db.web_process(generation)
            if has_row(self._conn, SQL["backend_lives"], {"name": name}):
                continue
            names = _names(slots)
            sent = self._sent(names)
            numbered = [
                (slot.number, name in sent) for slot, name in zip(slots, names, strict=True)
            ]
            self._buffer.free([number for number, is_sent in numbered if is_sent])
            self._buffer.restore([number for number, is_sent in numbered if not is_sent])
            self._buffer.forget(generation)
            log.info("took back %d slots of web process %d", len(slots), generation)

    def _withdraw_cancelled(self, bots: Mapping[int, RunningBot]) -> None:
        """Take first copies out whose jobs were cancelled: they count as sent to nobody."""
        held = [
            slot
            for bot, item in bots.items()
            if item.has_cancelled
            for slot in self._buffer.first_copies(bot)
        ]
        if held:
            names = _names(held)
            sent = self._sent(names)
            self._buffer.withdraw(
                [slot for slot, name in zip(held, names, strict=True) if name in sent]
            )

    def _sent(self, names: Sequence[ReplicaId]) -> set[ReplicaId]:
        listed = encode([name._asdict() for name in names])
        return set(fetch(self._conn, ReplicaId, SQL["was_sent"], {"copies": listed}))

    # ------------------------------------------------------------------------ first copies

    def _settle_ranges(
        self, bots: dict[int, RunningBot], held: Sequence[tuple[int, int]], now: float
    ) -> int:
        """Give up ranges whose jobs were all sent; put back in what got lost on the way.

        The buffer was read before the database: a slot that was free by then was committed.
        """
        self._conn.execute(SQL["drop_idle_ranges"])
        arguments = {"machine": self._buffer.machine, "lifetime": RANGE_LIFETIME}
        gone = [
            claimed
            for claimed in fetch(self._conn, ClaimedRange, SQL["renew_ranges"], arguments)
            for bot, lo, hi in [claimed]
            if bot in bots and bisect_left(held, (bot, lo)) == bisect_left(held, (bot, hi))
        ]
        if not gone:
            return 0
        listed = encode([claimed._asdict() for claimed in gone])
        arguments = {"ranges": listed, "machine": self._buffer.machine}
        sent = set(fetch(self._conn, ClaimedRange, SQL["drop_sent_ranges"], arguments))
        lost = [claimed for claimed in gone if claimed not in sent]
        return sum(self._settle_range(bots[bot], lo, hi, now) for bot, lo, hi in lost)

    def _settle_range(self, bot: RunningBot, lo: int, hi: int, now: float) -> int:
        place = {"bot": bot.state.bot, "lo": lo}
        most = max(1, self._buffer.room)
        values = {**place, "hi": hi, "most": most}
        jobs = jobs_of_range(self._conn, SQL["unsent_jobs"], values, bot.state.bot, lo, hi)
        if not jobs:
            self._conn.execute(SQL["drop_range"], {**place, "machine": self._buffer.machine})
            return 0
        log.info("BOT %d: %d jobs of range %d..%d go in again", bot.state.bot, len(jobs), lo, hi)
        return self._put_jobs(bot, jobs, now)

    def _put_fresh(self, bots: dict[int, RunningBot], now: float) -> int:
        held = {item.state.bot: item for item in self._buffer.segments()}
        there = Counter({bot: item.fresh + item.copies for bot, item in held.items()})
        claims, wanted, room = [], dict[int, int](), self._buffer.room
        shares = self._shares
        for bot in sorted(bots, key=lambda bot: there[bot]):
            left = bots[bot].unclaimed
            lacking = min(shares[bot] - there[bot], left)
            if room and worth_filling(lacking, shares[bot], left):
                wanted[bot] = min(lacking, room)
                skipped = bots[bot].skipped(held[bot].fresh if bot in held else 0)
                claims.append({"bot": bot, "jobs": wanted[bot] + skipped})
                room -= wanted[bot]
        if not claims:
            return 0
        arguments = {
            "claims": encode(claims), "machine": self._buffer.machine, "lifetime": RANGE_LIFETIME,
        }  # fmt: skip
        count = 0
        for claimed in fetch(self._conn, ClaimedRange, SQL["claim_ranges"], arguments):
            bot = claimed.bot
            query = SQL["unsent_jobs"] if bots[bot].has_cancelled else SQL["range_jobs"]
            values = {**claimed._asdict(), "most": wanted[bot]}
            jobs = jobs_of_range(self._conn, query, values, *claimed)
            bots[bot] = replace(bots[bot], fed=claimed.hi)
            count += self._put_jobs(bots[bot], jobs, now)
        return count

    def _make_room(self, bots: dict[int, RunningBot]) -> None:
        """Give jobs back to the database where BOTs hold more than 1/n and others lack it.

        Out of the buffer first: killed before the other half, we settle their range later.
        """
        held = {item.state.bot: item for item in self._buffer.segments()}
        there = {bot: held[bot].fresh + held[bot].copies for bot in bots if bot in held}
        absent = {
            bot: bots[bot].unclaimed + max(0, self._lacking_copies(bots[bot], held[bot].copies))
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

    def _lacking_copies(self, bot: RunningBot, there: int) -> int:
        taken = self._taken.get(bot.state.bot, 0)
        return copies.lacking(bot, there, taken, self._electors.kept(self._buffer.slots))

    def _put_jobs(self, bot: RunningBot, jobs: Sequence[JobTexts], now: float) -> int:
        first = WHY.index("first")
        items = [
            Item(
                job.bot,
                job.seq,
                1,
                bot.state.first_round,
                first,
                prepared(ReplicaId(job.bot, job.seq, 1), bot.manifest_id, *job[2:]),
            )
            for job in jobs
        ]
        return self._buffer.put(items, now)


def _names(slots: Iterable[Slot]) -> list[ReplicaId]:
    return [ReplicaId(slot.bot, slot.seq, slot.replica) for slot in slots]
