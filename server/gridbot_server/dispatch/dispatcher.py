"""Serves one batch of host requests: the batch's SQL, the buffer and `choose` put together."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import orjson

from gridbot_client.protocol.messages import WHY, ReplicaId, WorkRequest
from gridbot_policies.classad import record
from gridbot_server import metrics
from gridbot_server.buffer.assignment import completed, prepared
from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import Segment, Slot
from gridbot_server.dispatch import batch
from gridbot_server.dispatch.batch import SQL, ClientRow, Exchange
from gridbot_server.dispatch.caches import Caches, note_caches
from gridbot_server.dispatch.candidates import Candidate, Choice, HostView, TakeSlot
from gridbot_server.dispatch.catalog import Catalog, Entry
from gridbot_server.dispatch.choose import COPIES_PER_REQUEST, choose
from gridbot_server.dispatch.gangs import Gathering
from gridbot_server.dispatch.leases import NewLease, add_leases
from gridbot_server.dispatch.live_output import Followers
from gridbot_server.dispatch.order import Order, Ranking
from gridbot_server.dispatch.preferences import tell_preferences
from gridbot_server.dispatch.records import Records
from gridbot_server.dispatch.replies import (
    ReplyParts,
    begin_reply,
    explain,
    idle_delay,
    let_busy_wait,
)
from gridbot_server.dispatch.reports import settle_reports
from gridbot_server.dispatch.reservation import Reservation
from gridbot_server.dispatch.urgent import PAUSE_SECONDS, CallBack, Pauses, to_call_back
from gridbot_server.dispatch.view import View, Views
from gridbot_server.dispatch.widths import Widths
from gridbot_server.matching import ads, lots
from gridbot_server.matching.policies import owner_policy
from gridbot_server.matching.spending import REASON, Spending
from gridbot_server.metrics.traces import TracedReplicas
from gridbot_server.storage import moves, suspension
from gridbot_server.storage.counters import Counters
from gridbot_server.storage.db import Connection
from gridbot_server.storage.job_proofs import read_jobs
from gridbot_server.storage.rows import JobId, JobTexts, encode, has_row
from gridbot_server.storage.states import Event

# Between two notifications of reports, at least: each takes a lock that all commits share, and
# wakes all who listen.  One that tells of many makes the transitioner rest, so that the next one
# would not be heard at once.
_TELL_SECONDS, _REST_SECONDS = 0.03, 0.2
_FEW_REPORTS = 16
MAX_WANT = 200  # replicas in one reply
_NOTHING = CallBack()


class Dispatcher:
    """Belongs to one web process; used by its writer thread only."""

    def __init__(
        self,
        generation: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: random.Random | None = None,
        traced: TracedReplicas | None = None,
    ) -> None:
        """`clock` gives monotonic seconds, `wall` those since the epoch, `chance` jitter.

        `traced` notes replicas for traces; who calls tells them after the commit.
        """
        self.generation, self._clock, self._wall = generation, clock, wall
        self._chance = chance or random.Random()  # noqa: S311  # spreads load, guards nothing
        self._traced = traced
        self._views = Views()
        self._spending = Spending()
        self._ranking = Ranking()
        self._described: dict[int, int] = {}  # host -> hash of its last ad
        self._untold = 0  # reports, since the transitioner was told of some
        self._tells_at = -math.inf  # when it may be told again
        self._followers = Followers(clock)
        self._pauses = Pauses()  # in calling back
        self._start = 0  # where looking at further copies begins: it rotates
        self.candidates: Mapping[int, Candidate] = {}  # by BOT, as at the last look

    def serve(
        self,
        conn: Connection,
        buffer: Buffer | None,
        exchanges: Sequence[Exchange],
        reservation: Reservation,
    ) -> dict[int, ReplyParts]:
        """Do all that the requests ask for, in the caller's transaction; replies by client.

        Without a buffer (the feeder is not there yet) reports are taken and no work is given.
        """
        counters = Counters(requests=len(exchanges))
        reported = settle_reports(conn, exchanges, counters)
        if self._traced is not None:
            self._traced.note_reported(conn, reported)
        self._tell_of_reports(conn, exchanges)
        batch.compare_holdings(conn, exchanges)
        batch.note_progress(conn, exchanges)
        note_caches(conn, exchanges)
        replies = {exchange.client.id: begin_reply(exchange) for exchange in exchanges}
        tell_preferences(conn, exchanges, replies)
        if buffer is not None:
            self._give_work(conn, buffer, exchanges, reservation, replies, counters)
            let_busy_wait(exchanges, replies, buffer.pulse()[1], self._chance)
        self._send_again(conn, exchanges, replies, counters)
        self._followers.serve(conn, exchanges, replies)
        batch.describe_hosts(conn, self._changed_ads(exchanges))
        counters.write(conn, f"{buffer.machine[:8] if buffer else ''}-{self.generation % 64}")
        return replies

    def _tell_of_reports(self, conn: Connection, exchanges: Sequence[Exchange]) -> None:
        """Wake the transitioner, not too often: it makes passes by itself, too."""
        self._untold += sum(len(exchange.request.reports) for exchange in exchanges)
        now = self._clock()
        if self._untold and now >= self._tells_at:
            pause = _TELL_SECONDS if self._untold <= _FEW_REPORTS else _REST_SECONDS
            self._untold, self._tells_at = 0, now + pause
            conn.execute(SQL["tell_of_reports"])

    def forget(self) -> None:
        """Begin anew, because a transaction was lost.

        Every host's ad is written again when next seen, and what the buffer holds is read again.
        """
        if self._traced is not None:
            self._traced.forget()
        self._described.clear()
        self._views.forget()
        self._tells_at = -math.inf

    # -------------------------------------------------------------------------- new work

    def _give_work(
        self,
        conn: Connection,
        buffer: Buffer,
        exchanges: Sequence[Exchange],
        reservation: Reservation,
        replies: dict[int, ReplyParts],
        counters: Counters,
    ) -> None:
        hungry = [
            exchange
            for exchange in exchanges
            if exchange.is_new and (exchange.request.want or exchange.request.unstarted)
        ]
        if not hungry:
            return
        segments = buffer.segments()
        if not any(segment.fresh or segment.copies for segment in segments):
            hungry = [exchange for exchange in hungry if exchange.request.want]
            if not hungry:  # for nothing would anything be called back
                return
        seen = self._look_at(conn, buffer, segments, [exchange.client for exchange in hungry])
        gathering = Gathering.of(conn, buffer, seen)
        self.candidates = seen.candidates
        idle_seconds = idle_delay(buffer.pulse()[1], self._chance)
        leases: list[NewLease] = []
        overspent: set[int] = set()
        inversions = 0
        promised = Counter[int]()  # replicas, by BOT, for which others are called back
        widths = Widths.of(conn, hungry, seen.among_strangers)
        records = Records.of(conn, hungry, seen.is_assured)
        caches = Caches.of(conn, hungry, seen.looks_at_caches)
        order = Order(
            seen.candidates.values(), seen.queue, seen.usage, seen.now, self._spending,
            self._ranking, gathering.may_begin,
        )  # fmt: skip
        for exchange in hungry:
            host = _host_view(exchange, widths, records, caches, are_copies_there=bool(seen.copies))
            self._spending.begin()
            called = self._call_back(conn, exchange, host, seen, order, promised)
            replies[exchange.client.id].call_back = called.replicas
            gets_work = exchange.request.want and not called.replicas  # else at its next request
            choice = choose(host, order) if gets_work else Choice()
            if exceeding := choice.overspent | called.overspent:
                overspent |= {bot for bot in exceeding if self._is_to_end(bot, seen)}
            if not gets_work:
                continue
            inversions += choice.inversions
            taken = self._take(
                buffer, choice, exchange, host, seen, reservation, records, gathering
            )
            leases += taken
            widths.take(exchange.client, taken)
            if not taken:
                reply = replies[exchange.client.id]
                reply.seeker = host
                reply.next_request_seconds = idle_seconds
                if exchange.request.wait and not reply.may_wait:
                    reply.next_request_seconds = 0.0  # to be parked, without reports
                reply.message = explain(choice, len(seen.candidates))
                reply.is_outdated = choice.is_outdated
        if inversions:
            buffer.count_inversions(inversions)
        reservation.feeder_wanted = seen.is_low
        reservation.leaves_some = seen.leaves_some
        metrics.EVALUATIONS.inc(self._spending.evaluations)
        self._spending.evaluations = 0
        sent = add_leases(conn, gathering.lock(leases), counters)
        gathering.settle(sent)
        if self._traced is not None:
            self._traced.note_sent(conn, [lease.id for lease in sent])
        self._answer(conn, sent, seen.entries, replies)
        for bot in overspent:
            suspension.suspend(conn, bot, seen.entries[bot].version, REASON)

    def _call_back(
        self,
        conn: Connection,
        exchange: Exchange,
        host: HostView,
        seen: View,
        order: Order,
        promised: Counter[int],
    ) -> CallBack:
        """Find what the host has not begun and should return, if it was not asked lately."""
        count = exchange.request.unstarted
        if not count:  # as nearly always
            return _NOTHING
        now = self._clock()
        if self._pauses.lasts(host.id, now):
            return _NOTHING
        unstarted = exchange.request.holding[-count:]
        called = to_call_back(host, unstarted, seen.candidates, order, seen.usage, promised)
        if called.replicas:
            self._pauses.begin(host.id, now)
            pause = {"client": exchange.client.id, "pause": PAUSE_SECONDS}
            if not has_row(conn, SQL["begin_pause"], pause):
                return CallBack(overspent=called.overspent)
            promised.update(called.instead)
        return called

    def _is_to_end(self, bot: int, seen: View) -> bool:
        """Note that a BOT's policy exceeded its budget; whether it is to be suspended."""
        if not self._spending.exceeded(bot, seen.entries[bot].version):
            return False
        seen.suspend(bot)
        return True

    def _look_at(
        self,
        conn: Connection,
        buffer: Buffer,
        segments: Sequence[Segment],
        clients: Sequence[ClientRow],
    ) -> View:
        self._start += COPIES_PER_REQUEST
        return self._views.look(conn, buffer, segments, self._start, self._wall(), clients)

    def _take(
        self,
        buffer: Buffer,
        choice: Choice,
        exchange: Exchange,
        host: HostView,
        seen: View,
        reservation: Reservation,
        records: Records,
        gathering: Gathering,
    ) -> list[NewLease]:
        """Take the chosen replicas out of the buffer; another process may have been faster."""
        leases, client = [], exchange.client
        copies = self._take_copies(choice, client, seen, reservation, gathering)
        for take in choice.takes:
            seen.note_taken(take.bot)
            candidate, entry = seen.candidates[take.bot], seen.entries[take.bot]
            is_bounded, distinct_owners = candidate.is_bounded(host), candidate.distinct_owners
            rounds = entry.rounds
            if isinstance(take, TakeSlot):
                found = [take.slot] if take.slot.number in copies else []
            elif candidate.lacks is not None:
                found = gathering.take_first(candidate, take.count, self.generation)
            else:
                found = buffer.take_fresh(take.bot, take.count, self.generation)
                candidate.fresh -= len(found)
            for slot in found:
                if slot.round >= rounds.stop:  # it came in after the BOT was looked at
                    buffer.restore([slot.number])
                    continue
                name = reservation.add(slot)
                # What is of an earlier version of the manifest is brought again by the feeder.
                if name is not None and slot.round in rounds:
                    leases.append(
                        NewLease(
                            name, slot.round, WHY[slot.why], exchange, take.deadline_seconds,
                            distinct_owners, slot.body, is_bounded, take.kind,
                            records.further_copies(client, candidate, entry, name),
                        )
                    )  # fmt: skip
                    if candidate.lacks:
                        candidate.lacks -= 1
        return leases

    def _take_copies(
        self,
        choice: Choice,
        client: ClientRow,
        seen: View,
        reservation: Reservation,
        gathering: Gathering,
    ) -> set[int]:
        """Take the chosen copies; this very batch may send others of their jobs to the host."""
        wanted: dict[int, list[Slot]] = {}
        for take in choice.takes if seen.copies else ():
            if isinstance(take, TakeSlot):
                candidate = seen.candidates[take.bot]
                if candidate.lacks is not None and not gathering.admits(candidate, take.slot):
                    continue
                if reservation.admits(take.slot, client, candidate.distinct_owners):
                    wanted.setdefault(take.bot, []).append(take.slot)
        return {
            slot.number
            for bot, slots in wanted.items()
            for slot in seen.copies[bot].take(slots, self.generation)
        }

    @staticmethod
    def _answer(
        conn: Connection,
        leases: Sequence[NewLease],
        entries: Mapping[int, Entry],
        replies: Mapping[int, ReplyParts],
    ) -> None:
        unheld = [lease.id[:2] for lease in leases if lease.body is None]
        jobs = read_jobs(conn, unheld)
        for lease in leases:
            entry = entries[lease.id.bot]
            assignment = lease.body or _prepared(lease.id, entry, jobs)
            _add_assignment(
                replies[lease.exchange.client.id], lease.exchange.request, entry,
                completed(assignment, lease.deadline_seconds),
            )  # fmt: skip

    # ------------------------------------------------------------------------ lost replies

    def _send_again(
        self,
        conn: Connection,
        exchanges: Sequence[Exchange],
        replies: dict[int, ReplyParts],
        counters: Counters,
    ) -> None:
        """Answer with the leases that an earlier reply should have carried.

        Those of an earlier version of their BOT's manifest end instead.
        """
        lost = [name for exchange in exchanges for name in exchange.resend]
        if not lost:
            return
        jobs = read_jobs(conn, [(name.bot, name.seq) for name in lost])
        entries = Catalog.read(conn, {name.bot for name in lost})
        replaced = []
        for exchange in exchanges:
            for name, (round_, seconds) in exchange.resend.items():
                entry = entries[name.bot]
                if round_ < entry.rounds.start:
                    replaced.append(name)
                    continue
                assignment = _prepared(name, entry, jobs)
                _add_assignment(
                    replies[exchange.client.id], exchange.request, entry,
                    completed(assignment, seconds),
                )  # fmt: skip
        if replaced:
            listed = {"replicas": encode([name._asdict() for name in replaced])}
            moves.end_unanswered(conn, Event.MANIFEST_REPLACED, listed, counters)

    def _changed_ads(self, exchanges: Sequence[Exchange]) -> dict[int, dict[str, Any]]:
        changed = {}
        for exchange in exchanges:
            ad = ads.lasting(exchange.request.host)
            mark = hash(orjson.dumps(ad, option=orjson.OPT_SORT_KEYS))
            if self._described.get(exchange.client.host) != mark:
                changed[exchange.client.host] = ad
                self._described[exchange.client.host] = mark
        return changed


def _prepared(name: ReplicaId, entry: Entry, jobs: Mapping[JobId, JobTexts]) -> bytes:
    return prepared(name, entry.manifest_id, *jobs[JobId(name.bot, name.seq)][2:])


def _add_assignment(reply: ReplyParts, request: WorkRequest, entry: Entry, rendered: bytes) -> None:
    reply.assignments.append(rendered)
    if entry.manifest_id not in request.manifests:
        reply.manifests[entry.manifest_id] = entry.rendered


def _host_view(
    exchange: Exchange, widths: Widths, records: Records, caches: Caches, are_copies_there: bool
) -> HostView:
    client, request = exchange.client, exchange.request
    attributes = ads.host_attributes(request.host, client.known_attributes, exchange.running)
    ad = record(attributes)
    return HostView(
        id=client.host,
        owner=client.owner,
        attributes=attributes,
        ad=ad,
        running=exchange.running,
        of_bot=exchange.of_bot,
        room=widths.room(client),
        width=attributes["Width"],
        lot=lots.mark(client.crew),
        unjudged=widths.unjudged(client),
        bounds=records.bounds(client),
        mean_turnaround=client.mean_turnaround,
        cached=caches.marks(client),
        want=min(request.want, MAX_WANT),
        accepts=client.accepts,
        trusts=client.trusts,
        protocol=request.protocol,
        ahead=dict(request.ahead),
        dedicated=attributes.get("IsDedicated") is True,
        policy=owner_policy(ad.get("Requirements")),
        at_hand=_jobs_at_hand(request) if are_copies_there else (),
    )


def _jobs_at_hand(request: WorkRequest) -> Set[tuple[int, int]]:
    """The jobs of which a client holds or reports replicas."""
    held = {(name.bot, name.seq) for name in request.holding}
    return held | {(report.id.bot, report.id.seq) for report in request.reports}
