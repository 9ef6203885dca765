"""Serves one batch of host requests: the batch's SQL, the buffer and `choose` put together."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gridbot_client.protocol import WHY, ReplicaId, WorkRequest
from gridbot_policies.classad import Record, record
from gridbot_server.db import Connection
from gridbot_server.dispatch import ads, batch, render
from gridbot_server.dispatch.batch import Client, Counters, Exchange, NewLease
from gridbot_server.dispatch.buffer import SchedulingBuffer
from gridbot_server.dispatch.catalog import Catalog, Entry
from gridbot_server.dispatch.choose import (
    COPIES_PER_REQUEST,
    Candidate,
    Choice,
    Copy,
    Holder,
    HostView,
    TakeSlot,
    choose,
)
from gridbot_server.dispatch.layout import Segment, Slot
from gridbot_server.dispatch.render import ReplyParts

# Requests that clients without work may make together, per second: it sets how often they ask.
IDLE_REQUESTS_PER_SECOND = 50.0
MIN_IDLE_SECONDS, MAX_IDLE_SECONDS = 1.0, 3600.0
MAX_WANT = 200  # replicas in one reply
# The feeder is woken when a segment is filled to less than this part.
LOW_WATER = 0.5


@dataclass(slots=True)
class Reservation:
    """Slots that this batch took; the caller frees them after the commit or gives them back."""

    leased: dict[ReplicaId, Slot] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of all slots
    feeder_wanted: bool = False
    _holders: dict[tuple[int, int], list[Client]] = field(default_factory=dict)

    def add(self, slot: Slot, client: Client) -> ReplicaId | None:
        """Keep a slot for a client; None when another slot of its replica is kept already."""
        self.numbers.append(slot.number)
        name = ReplicaId(slot.bot, slot.seq, slot.replica)
        if name in self.leased:
            return None
        self.leased[name] = slot
        self._holders.setdefault((slot.bot, slot.seq), []).append(client)
        return name

    def has_sibling(self, slot: Slot, client: Client, distinct_owners: bool) -> bool:
        """Whether a copy would be the second one of its job for the client's host, or owner."""
        return any(
            holder.host == client.host or (distinct_owners and holder.owner == client.owner)
            for holder in self._holders.get((slot.bot, slot.seq), ())
        )


@dataclass(frozen=True, slots=True)
class _View:
    """The buffer at the beginning of a batch."""

    segments: list[Segment]
    entries: dict[int, Entry]
    candidates: list[Candidate]
    queue: Record
    usage: dict[int, float]
    now: float


class Dispatcher:
    """Belongs to one web process; used by its writer thread only."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._catalog = Catalog()
        self._described: dict[int, bytes] = {}  # host -> hash of its last ad
        self._look = 0  # where looking at further copies begins: it rotates

    def serve(
        self,
        conn: Connection,
        buffer: SchedulingBuffer | None,
        exchanges: Sequence[Exchange],
        reservation: Reservation,
    ) -> dict[int, ReplyParts]:
        """Do all that the requests ask for, in the caller's transaction; replies by client.

        Without a buffer (the feeder is not there yet) reports are taken and no work is given.
        """
        counters = Counters()
        batch.settle_reports(conn, exchanges, counters)
        batch.compare_holdings(conn, exchanges)
        replies = {exchange.client.id: _reply(exchange) for exchange in exchanges}
        if buffer is not None:
            self._give_work(conn, buffer, exchanges, reservation, replies, counters)
            _let_busy_wait(exchanges, replies, buffer.pulse()[1])
        self._send_again(conn, exchanges, replies)
        batch.describe_hosts(conn, self._changed_ads(exchanges))
        counters.write(conn, f"{buffer.machine[:8] if buffer else ''}-{self.generation % 64}")
        return replies

    def forget_hosts(self) -> None:
        """Write every host's ad again when next seen: a transaction that wrote some was lost."""
        self._described.clear()

    # -------------------------------------------------------------------------- new work

    def _give_work(
        self,
        conn: Connection,
        buffer: SchedulingBuffer,
        exchanges: Sequence[Exchange],
        reservation: Reservation,
        replies: dict[int, ReplyParts],
        counters: Counters,
    ) -> None:
        hungry = [exchange for exchange in exchanges if exchange.is_new and exchange.request.want]
        if not hungry:
            return
        view = self._view(conn, buffer)
        idle_seconds = idle_delay(buffer.pulse()[1])
        leases: list[NewLease] = []
        for exchange in hungry:
            choice = choose(_host_view(exchange), view.candidates, view.queue, view.usage, view.now)
            for _ in range(choice.inversions):
                buffer.count_inversion()
            taken = self._take(buffer, choice, exchange, view, reservation)
            leases += taken
            if not taken:
                reply = replies[exchange.client.id]
                reply.next_request_seconds = idle_seconds
                reply.message = explain(choice, len(view.candidates))
        reservation.feeder_wanted = _is_low(view)
        quorums = {bot for bot, entry in view.entries.items() if entry.quorum > 1}
        added = batch.add_leases(conn, leases, quorums, counters)
        kept = [lease for lease in leases if lease.id in added]
        self._answer(conn, kept, view, reservation, replies)

    def _view(self, conn: Connection, buffer: SchedulingBuffer) -> _View:
        segments = buffer.segments()
        entries = self._catalog.refresh(conn, [segment.state for segment in segments])
        known = [segment for segment in segments if segment.state.bot in entries]
        now = time.time()
        self._look += COPIES_PER_REQUEST
        candidates = [
            _candidate(segment, entries[segment.state.bot], buffer, self._look, now)
            for segment in known
        ]
        running: dict[int, float] = {}
        for segment in known:
            state = segment.state
            share = entries[state.bot].share
            running[state.owner] = running.get(state.owner, 0.0) + state.running / share
        queue = ads.queue_ad([segment.state for segment in known])
        return _View(known, entries, candidates, queue, running, now)

    def _take(
        self,
        buffer: SchedulingBuffer,
        choice: Choice,
        exchange: Exchange,
        view: _View,
        reservation: Reservation,
    ) -> list[NewLease]:
        """Take the chosen replicas out of the buffer; another process may have been faster."""
        leases = []
        of_bot = {candidate.bot: candidate for candidate in view.candidates}
        for take in choice.takes:
            if isinstance(take, TakeSlot):
                found = self._take_copy(buffer, take.slot, exchange.client, of_bot, reservation)
            else:
                found = buffer.take_fresh(take.bot, take.count, self.generation)
                of_bot[take.bot].fresh -= len(found)
            for slot in found:
                name = reservation.add(slot, exchange.client)
                if name is None:
                    continue
                leases.append(
                    NewLease(
                        name,
                        slot.round,
                        WHY[slot.why],
                        exchange,
                        take.deadline_seconds,
                        of_bot[slot.bot].distinct_owners,
                    )
                )
        return leases

    def _take_copy(
        self,
        buffer: SchedulingBuffer,
        slot: Slot,
        client: Client,
        of_bot: Mapping[int, Candidate],
        reservation: Reservation,
    ) -> list[Slot]:
        """Take one copy, unless this very batch sends another one of its job to the same host."""
        if reservation.has_sibling(slot, client, of_bot[slot.bot].distinct_owners):
            return []
        return [slot] if buffer.take_copy(slot, self.generation) else []

    def _answer(
        self,
        conn: Connection,
        leases: Sequence[NewLease],
        view: _View,
        reservation: Reservation,
        replies: dict[int, ReplyParts],
    ) -> None:
        slots = {lease.id: reservation.leased[lease.id] for lease in leases}
        unheld = [name for name, slot in slots.items() if slot.body is None]
        jobs = batch.read_jobs(conn, [(name.bot, name.seq) for name in unheld])
        for lease in leases:
            entry = view.entries[lease.id.bot]
            prepared = slots[lease.id].body or render.body(
                lease.id, entry.manifest_id, *jobs[lease.id.bot, lease.id.seq]
            )
            self._add_assignment(
                replies[lease.exchange.client.id], lease.exchange.request, entry,
                render.assignment(prepared, lease.deadline_seconds),
            )  # fmt: skip

    @staticmethod
    def _add_assignment(
        reply: ReplyParts, request: WorkRequest, entry: Entry, rendered: bytes
    ) -> None:
        reply.assignments.append(rendered)
        if entry.manifest_id not in request.manifests:
            reply.manifests[entry.manifest_id] = entry.rendered

    # ------------------------------------------------------------------------ lost replies

    def _send_again(
        self, conn: Connection, exchanges: Sequence[Exchange], replies: dict[int, ReplyParts]
    ) -> None:
        """Answer with the leases that an earlier reply should have carried."""
        lost = [name for exchange in exchanges for name in exchange.resend]
        if not lost:
            return
        jobs = batch.read_jobs(conn, [(name.bot, name.seq) for name in lost])
        entries = self._catalog.read(conn, {name.bot for name in lost})
        for exchange in exchanges:
            for name, seconds in exchange.resend.items():
                entry = entries[name.bot]
                prepared = render.body(name, entry.manifest_id, *jobs[name.bot, name.seq])
                self._add_assignment(
                    replies[exchange.client.id], exchange.request, entry,
                    render.assignment(prepared, seconds),
                )  # fmt: skip

    def _changed_ads(self, exchanges: Sequence[Exchange]) -> dict[int, dict[str, Any]]:
        changed = {}
        for exchange in exchanges:
            ad = ads.lasting(exchange.request.host)
            mark = hashlib.blake2b(orjson.dumps(ad, option=orjson.OPT_SORT_KEYS)).digest()
            if self._described.get(exchange.client.host) != mark:
                changed[exchange.client.host] = ad
                self._described[exchange.client.host] = mark
        return changed


def _let_busy_wait(
    exchanges: Sequence[Exchange], replies: Mapping[int, ReplyParts], clients_active: int
) -> None:
    """Call those back that have enough to do as seldom as the idle: they report by themselves."""
    for exchange in exchanges:
        if not exchange.request.want and exchange.running:
            replies[exchange.client.id].next_request_seconds = idle_delay(clients_active)


def idle_delay(clients_active: int) -> float:
    """Return how long a client without work waits, so that all of them stay a light load.

    Jittered here and again by the client: equal delays would keep clients in step for ever.
    """
    fair = clients_active / IDLE_REQUESTS_PER_SECOND
    delay = min(max(fair, MIN_IDLE_SECONDS), MAX_IDLE_SECONDS)
    return delay * random.uniform(0.75, 1.25)  # noqa: S311  # spreads load, guards nothing


def explain(choice: Choice, bots: int) -> str:
    """Say why there was no work, for a person."""
    if not bots:
        return "no unfinished BOT"
    if not choice.refusals:
        return "no unsent jobs"
    reasons = "; ".join(f"{reason} ({count})" for reason, count in choice.refusals.items())
    return f"none of {bots} BOTs suits this host now: {reasons}"


def _reply(exchange: Exchange) -> ReplyParts:
    acks = [report.id for report in exchange.request.reports if report.id not in exchange.reupload]
    reply = ReplyParts(acks=acks, reupload=exchange.reupload, abort=exchange.abort)
    if not exchange.is_new and exchange.request.key != exchange.client.last_key:
        reply.next_request_seconds = MAX_IDLE_SECONDS
        reply.message = "another copy of this client asked after this one: join again"
    return reply


def _host_view(exchange: Exchange) -> HostView:
    client, request = exchange.client, exchange.request
    attributes = ads.host_attributes(request.host, client.known_attributes, exchange.running)
    ad = record(attributes)
    return HostView(
        id=client.host,
        owner=client.owner,
        attributes=attributes,
        ad=ad,
        running=exchange.running,
        want=min(request.want, MAX_WANT),
        accepts=client.accepts,
        dedicated=attributes.get("IsDedicated") is True,
        policy=ads.owner_policy(ad.get("Requirements")),
        at_hand={
            (name.bot, name.seq)
            for name in (*request.holding, *(report.id for report in request.reports))
        },
    )


def _candidate(
    segment: Segment, entry: Entry, buffer: SchedulingBuffer, look: int, now: float
) -> Candidate:
    state = segment.state

    def copies() -> list[Copy]:
        slots = buffer.copies(state.bot, COPIES_PER_REQUEST, look)
        return [_copy(slot, now) for slot in slots]

    return Candidate(
        bot=state.bot,
        owner=state.owner,
        policies=entry.policies,
        ad=ads.bot_ad(state, entry.name, entry.owner, entry.signed, now),
        resources=entry.manifest.resources,
        fresh=segment.fresh,
        copies=copies if segment.copies else None,
        dry=segment.fresh == 0 and state.unclaimed > 0,
        signed=entry.signed,
        platforms=entry.manifest.platforms,
        stock_platforms=entry.stock_platforms,
        among_strangers=entry.among_strangers,
        quorum=entry.quorum,
        running=state.running,
    )


def _copy(slot: Slot, now: float) -> Copy:
    detail = orjson.loads(slot.detail)
    return Copy(
        slot=slot,
        seq=slot.seq,
        holders=[Holder(*pair) for pair in detail["holders"]],
        job=ads.job_ad(slot.bot, slot.seq, detail["replicas"], now),
        pool=detail["pool"],
        failed=[Holder(*pair) for pair in detail["failed"]],
    )


def _is_low(view: _View) -> bool:
    """Whether some segment fell below the mark at which the feeder should hurry."""
    left = {candidate.bot: candidate.fresh for candidate in view.candidates}
    return any(
        state.unclaimed and left[state.bot] < LOW_WATER * state.segment
        for state in (segment.state for segment in view.segments)
    )
