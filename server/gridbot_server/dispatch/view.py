"""The scheduling buffer as one batch of host requests sees it: a candidate for every BOT in it."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, cast

import orjson

from gridbot_policies.classad import Record
from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import Segment, Slot
from gridbot_server.dispatch.batch import ClientRow
from gridbot_server.dispatch.candidates import Candidate, Copy, Holder
from gridbot_server.dispatch.catalog import Catalog, Entry, GroupShare
from gridbot_server.dispatch.choose import COPIES_PER_REQUEST
from gridbot_server.matching import ads, lots
from gridbot_server.matching.run_time import run_seconds
from gridbot_server.storage.db import Connection

# The feeder is woken when a segment is filled to less than this part.
_LOW_WATER = 0.5
_REST = GroupShare(0, 1.0)  # an owner's BOTs that are in no group with a share


class WaitingCopies:
    """Further copies of a BOT: read once for a batch, and again once all of them were taken."""

    def __init__(
        self,
        buffer: Buffer,
        segment: Segment,
        start: int,
        now: float,
        drawn: Collection[int] | None = None,
        in_order: bool = False,
    ) -> None:
        self._buffer, self._bot, self._start, self._now = buffer, segment.state.bot, start, now
        self._drawn, self._in_order = drawn, in_order
        self._jobs: Container[int] | None = None  # all
        self._known: dict[int, Copy] = {}  # by slot
        self.left = segment.copies  # in the buffer

    def __call__(self) -> Sequence[Copy]:
        """Look at some of them."""
        if not self._known:
            slots = self._buffer.copies(
                self._bot, COPIES_PER_REQUEST, self._start, self._drawn, self._jobs
            )
            if self._in_order:  # one gang after the other
                slots.sort(key=lambda slot: slot.seq)
            self._known = {slot.number: _copy(slot, self._now) for slot in slots}
        return tuple(self._known.values())

    def keep_to(self, jobs: Container[int]) -> None:
        """Look at those of these jobs only, which are a gang, from now on."""
        self._jobs = jobs
        self._known.clear()

    def take(self, slots: Sequence[Slot], generation: int) -> list[Slot]:
        """Take some of those looked at; another process may have been faster."""
        taken = self._buffer.take_copies(slots, generation)
        self.left -= len(taken)
        for slot in slots:
            self._known.pop(slot.number, None)
        return taken


@dataclass(frozen=True, slots=True)
class View:
    """The buffer at the beginning of a batch."""

    entries: Mapping[int, Entry]
    candidates: Mapping[int, Candidate]  # by BOT
    copies: Mapping[int, WaitingCopies]  # by BOT
    gangs: Collection[int]  # BOTs whose jobs run together
    queue: Record
    usage: Mapping[int, float]  # what owners have running, by their shares
    now: float
    among_strangers: bool  # widths matter: some BOT runs where nobody vouches for the owners
    is_assured: bool  # track records matter to some BOT
    looks_at_caches: bool  # some BOT's policies do
    _segments: Mapping[int, Segment]
    _low: Collection[int]  # BOTs of which too few first copies were there at the beginning
    _taken: set[int] = field(default_factory=set)  # BOTs of which some were taken
    _suspended: set[int] = field(default_factory=set)

    def note_taken(self, bot: int) -> None:
        """Note that replicas of a BOT are being taken."""
        self._taken.add(bot)

    def suspend(self, bot: int) -> None:
        """Let nobody have any of a BOT for the rest of the batch."""
        self.candidates[bot].is_suspended = True
        self._suspended.add(bot)

    @property
    def is_low(self) -> bool:
        """Whether some queue fell below the mark at which the feeder should hurry."""
        return bool(self._low) or any(
            _lacks_first(self._segments[bot], self.candidates[bot]) or self._lacks_copies(bot)
            for bot in self._taken
        )

    def _lacks_copies(self, bot: int) -> bool:
        """Whether copies were taken, few are left, and there are others."""
        copies, segment = self.copies.get(bot), self._segments[bot]
        enough = min(segment.copies, COPIES_PER_REQUEST)
        return (
            copies is not None
            and copies.left < enough
            and segment.state.copies_unsent > segment.copies
        )

    @property
    def leaves_some(self) -> bool:
        """Whether the buffer still holds replicas, whomever they suit."""
        return any(item.first_copies for item in self.candidates.values()) or any(
            item.left for item in self.copies.values()
        )

    @property
    def of_one_batch(self) -> set[int]:
        """BOTs whose candidates may differ from what the buffer says at the end of the batch."""
        return self.copies.keys() | self._suspended | set(self.gangs)


def _lacks_first(segment: Segment, candidate: Candidate) -> bool:
    state = segment.state
    return state.unclaimed > 0 and candidate.first_copies < _LOW_WATER * state.segment


class Views:
    """Makes the view of one batch after the other.

    What a BOT is to policies is made anew only if the buffer says something else of it: a batch of
    requests does not pay for thousands of BOTs that nobody touches.  Its Age alone goes on.
    """

    def __init__(self) -> None:
        self._catalog = Catalog()
        self.forget()

    def forget(self) -> None:
        """Make the next view of nothing but the buffer: something of the last batch was lost."""
        self._listed: Sequence[Segment] = ()  # as the buffer gave them last
        self._segments: dict[int, Segment] = {}  # these, by BOT, as far as they are known
        self._candidates: dict[int, Candidate] = {}
        self._ages: dict[int, tuple[dict[str, Any], float]] = {}  # of ads: attributes, born when
        self._low: set[int] = set()
        self._copies: dict[int, WaitingCopies] = {}
        self._gangs: set[int] = set()
        self._queue = ads.queue_ad([])
        self._usage: dict[int, float] = {}
        self._group_usage: dict[int, float] = {}
        self._among_strangers = self._is_assured = self._looks_at_caches = False
        self._lost_some = False  # since they were summed up
        self._last: View | None = None

    def look(
        self,
        conn: Connection,
        buffer: Buffer,
        segments: Sequence[Segment],
        start: int,
        now: float,
        clients: Collection[ClientRow] = (),
    ) -> View:
        """Describe BOTs to policies at `now`, for these clients.

        A look at further copies will begin at `start`.
        """
        changed = self._changed(segments)
        entries = self._catalog.refresh(conn, [segment.state for segment in changed.values()])
        known = {bot: segment for bot, segment in changed.items() if bot in entries}
        if self._lost_some or any(self._is_news(segment) for segment in known.values()):
            self._segments |= known
            self._sum_up(segments, entries)
            self._lost_some = False
            known |= self._of_other_usage()
        self._segments |= known
        self._describe(known, entries, buffer, start, now, clients)
        for attributes, created_at in self._ages.values():
            attributes["age"] = max(0.0, now - created_at)
        self._last = View(
            entries, self._candidates, dict(self._copies), self._gangs, self._queue, self._usage,
            now, self._among_strangers, self._is_assured, self._looks_at_caches, self._segments,
            self._low,
        )  # fmt: skip
        return self._last

    def _changed(self, segments: Sequence[Segment]) -> dict[int, Segment]:
        """Find those of which the last view does not say what the buffer does; forget the gone."""
        pairs = zip_longest(segments, self._listed)
        others = [segment for segment, before in pairs if segment and segment is not before]
        self._listed, known = segments, self._segments
        new = sum(segment.state.bot not in known for segment in others)
        if len(known) + new != len(segments):
            self._forget_others({segment.state.bot for segment in segments})
        changed = {segment.state.bot: segment for segment in others}
        of_one_batch = self._last.of_one_batch if self._last else set()
        for bot in of_one_batch & known.keys():
            changed.setdefault(bot, known[bot])
        return {
            bot: segment
            for bot, segment in changed.items()
            if bot in of_one_batch or known.get(bot) != segment
        }

    def _forget_others(self, there: Collection[int]) -> None:
        """Forget all BOTs but those that are there."""
        for bot in self._segments.keys() - there:
            del self._segments[bot], self._ages[bot]
            self._copies.pop(bot, None)
            for bots in (self._low, self._gangs):
                bots.discard(bot)
        # Somebody else may be looking at the candidates of the last batch.
        self._candidates = {bot: item for bot, item in self._candidates.items() if bot in there}
        self._catalog.keep(there)
        self._lost_some = True

    def _is_news(self, segment: Segment) -> bool:
        """Whether the feeder says something else of a BOT than before."""
        before = self._segments.get(segment.state.bot)
        return before is None or before.state != segment.state

    def _sum_up(self, segments: Sequence[Segment], entries: Mapping[int, Entry]) -> None:
        """Sum up what all BOTs have."""
        known = [segment for segment in segments if segment.state.bot in self._segments]
        usage: dict[int, float] = {}
        for state in (segment.state for segment in known):
            running = state.running / entries[state.bot].share
            usage[state.owner] = usage.get(state.owner, 0.0) + running
        self._usage, self._group_usage = usage, _group_usage(known, entries)
        self._queue = ads.queue_ad([segment.state for segment in known])
        of_bots = [entries[segment.state.bot] for segment in known]
        self._among_strangers = any(entry.among_strangers for entry in of_bots)
        self._is_assured = any(entry.terms is not None for entry in of_bots)
        self._looks_at_caches = any(entry.shared_inputs is not None for entry in of_bots)

    def _of_other_usage(self) -> dict[int, Segment]:
        """Return the BOTs whose groups have more or less running than the last view says."""
        return {
            bot: self._segments[bot]
            for bot, item in self._candidates.items()
            if item.group_usage != self._group_usage.get(bot, 0.0)
        }

    def _describe(
        self,
        segments: Mapping[int, Segment],
        entries: Mapping[int, Entry],
        buffer: Buffer,
        start: int,
        now: float,
        clients: Collection[ClientRow],
    ) -> None:
        """Make candidates of BOTs."""
        if not segments.keys() <= self._candidates.keys():
            self._candidates = dict(self._candidates)  # somebody else may be looking at those
        for bot, segment in segments.items():
            entry = entries[bot]
            is_gang = entry.manifest.together > 1
            self._copies.pop(bot, None)
            if segment.copies:
                drawn = _drawn(segment, entry, clients)
                self._copies[bot] = WaitingCopies(
                    buffer, segment, start, now, drawn, in_order=is_gang
                )
            made = _candidate(segment, entry, self._copies.get(bot), now)
            made.group_usage = self._group_usage.get(bot, 0.0)
            self._candidates[bot] = made
            self._ages[bot] = cast("dict[str, Any]", made.ad.attributes), segment.state.created_at
            (self._low.add if _lacks_first(segment, made) else self._low.discard)(bot)
            (self._gangs.add if is_gang else self._gangs.discard)(bot)


def _group_usage(segments: Sequence[Segment], entries: Mapping[int, Entry]) -> dict[int, float]:
    """Return, by BOT, what its group has running by its share.

    Only of owners of whose groups some has a share; all else that they have has 1 together.
    """
    sharing = {
        segment.state.owner for segment in segments if entries[segment.state.bot].group is not None
    }
    usage: dict[tuple[int, GroupShare], float] = {}
    of_bot: dict[int, tuple[int, GroupShare]] = {}
    for state in (segment.state for segment in segments if segment.state.owner in sharing):
        group = entries[state.bot].group or _REST
        key = of_bot[state.bot] = state.owner, group
        usage[key] = usage.get(key, 0.0) + state.running / group.share
    return {bot: usage[key] for bot, key in of_bot.items()}


def _drawn(
    segment: Segment, entry: Entry, clients: Collection[ClientRow]
) -> Collection[int] | None:
    """Return for whom copies are kept that these clients may have; None: any may be."""
    if entry.terms is None or any(
        client.dedicated or client.owner == segment.state.owner for client in clients
    ):
        return None
    return {lots.ANYBODY, *(lots.mark(client.crew) for client in clients)}


def _candidate(
    segment: Segment, entry: Entry, copies: WaitingCopies | None, now: float
) -> Candidate:
    state = segment.state
    return Candidate(
        bot=state.bot,
        owner=state.owner,
        policies=entry.policies,
        ad=ads.bot_ad(state, entry.name, entry.owner, entry.signed, now),
        resources=entry.manifest.resources,
        fresh=segment.fresh,
        copies=copies,
        dry=segment.fresh == 0 and state.unclaimed > 0,
        signed=entry.signed,
        owner_signed=entry.owner_signed,
        manifest_version=entry.manifest.version,
        manifest_id=entry.manifest_id,
        image=entry.manifest.image,
        platforms=entry.manifest.platforms,
        programs=entry.manifest.programs,
        sandbox=entry.manifest.walls.level,
        stock_platforms=entry.stock_platforms,
        among_strangers=entry.among_strangers,
        quorum=entry.quorum,
        running=state.running,
        needs=entry.needs,
        is_suspended=entry.is_suspended,
        is_assured=entry.terms is not None,
        program=entry.program,
        run_seconds=run_seconds(state.usual_seconds, entry.manifest),
        share=entry.share,
        together=entry.manifest.together,
        boinc_api=entry.manifest.boinc_api,
        has_storage=entry.has_storage,
        shared_inputs=entry.shared_inputs,
    )


def _copy(slot: Slot, now: float) -> Copy:
    detail = orjson.loads(slot.detail)
    return Copy(
        slot=slot,
        seq=slot.seq,
        holders=[Holder(*pair) for pair in detail["holders"]],
        failed=[Holder(*pair) for pair in detail["failed"]],
        job=ads.job_ad(slot.bot, slot.seq, detail["replicas"], now),
        pool=detail["pool"],
        kind=detail.get("kind"),
        drawn=slot.drawn,
    )
