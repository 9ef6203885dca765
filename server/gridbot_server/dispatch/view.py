"""The scheduling buffer as one batch of host requests sees it: a candidate for every BOT in it."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass

import orjson

from gridbot_policies.classad import Record
from gridbot_server.buffer.interface import Buffer
from gridbot_server.buffer.layout import Segment, Slot
from gridbot_server.dispatch.batch import ClientRow
from gridbot_server.dispatch.catalog import Entry, GroupShare
from gridbot_server.dispatch.choose import COPIES_PER_REQUEST, Candidate, Copy, Holder
from gridbot_server.matching import ads, lots
from gridbot_server.matching.run_time import run_seconds

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

    segments: Sequence[Segment]
    entries: Mapping[int, Entry]
    candidates: Mapping[int, Candidate]  # by BOT
    copies: Mapping[int, WaitingCopies]  # by BOT
    queue: Record
    usage: Mapping[int, float]  # what owners have running, by their shares
    now: float

    @property
    def is_low(self) -> bool:
        """Whether some queue fell below the mark at which the feeder should hurry."""
        return any(self._lacks_first(item) or self._lacks_copies(item) for item in self.segments)

    def _lacks_first(self, segment: Segment) -> bool:
        left = self.candidates[segment.state.bot].first_copies
        return segment.state.unclaimed > 0 and left < _LOW_WATER * segment.state.segment

    def _lacks_copies(self, segment: Segment) -> bool:
        """Whether copies were taken, few are left, and there are others."""
        copies = self.copies.get(segment.state.bot)
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
    def among_strangers(self) -> bool:
        """Whether widths matter: some BOT runs on machines whose owners nobody vouches for."""
        return any(item.among_strangers for item in self.candidates.values())

    @property
    def is_assured(self) -> bool:
        """Whether track records matter to any BOT."""
        return any(item.is_assured for item in self.candidates.values())


def view(
    buffer: Buffer,
    segments: Sequence[Segment],
    entries: Mapping[int, Entry],
    start: int,
    now: float,
    clients: Collection[ClientRow] = (),
) -> View:
    """Describe BOTs to policies at `now`, for these clients.

    A look at further copies will begin at `start`.
    """
    known = [segment for segment in segments if segment.state.bot in entries]
    usage: dict[int, float] = {}
    for state in (segment.state for segment in known):
        running = state.running / entries[state.bot].share
        usage[state.owner] = usage.get(state.owner, 0.0) + running
    copies = {
        segment.state.bot: WaitingCopies(
            buffer,
            segment,
            start,
            now,
            _drawn(segment, entries[segment.state.bot], clients),
            in_order=entries[segment.state.bot].manifest.together > 1,
        )
        for segment in known
        if segment.copies
    }
    candidates = {
        segment.state.bot: _candidate(
            segment, entries[segment.state.bot], copies.get(segment.state.bot), now
        )
        for segment in known
    }
    for bot, running in _group_usage(known, entries).items():
        candidates[bot].group_usage = running
    queue = ads.queue_ad([segment.state for segment in known])
    return View(known, entries, candidates, copies, queue, usage, now)


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
