"""Carries a plan out, or only says what would be done: the only place where pilots are touched."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from gridbot.api.errors import GridbotError
from gridbot.printing import counted
from gridbot_overlay.act.dependencies import Dependencies, Say
from gridbot_overlay.act.server import GridNews
from gridbot_overlay.act.store import DrainOrder, SubmissionRecord
from gridbot_overlay.decide.construct import Cancel, Submit
from gridbot_overlay.decide.model import Grid, Pilot, PilotOrder, PilotState
from gridbot_overlay.decide.reconcile import Orphan
from gridbot_overlay.pilot.artefact import Artefact
from gridbot_overlay.pilot.script import render
from gridbot_overlay.submitters import GridError

# By BOT and grid, why; the server forgets them after 15 minutes.
Refusals = Mapping[int, Mapping[str, str]]
_REPEAT_SECONDS = 300.0
_GOOD_SECONDS = 900  # of what is told of grids
_ORDERED = {
    "": "is in use again",
    "finish": "gets no more pilots",
    "now": "gets no more pilots, and loses those that run",
}


class Acts(Protocol):
    """What the constructor does to the world."""

    def submit(self, submits: Sequence[Submit], now: float) -> None:
        """Submit pilots."""
        ...

    def cancel(self, cancels: Sequence[Cancel]) -> None:
        """Take pilots back, and remember why."""
        ...

    def take_back(self, orphans: Mapping[str, Sequence[Orphan]]) -> None:
        """Take pilots back that nobody waits for, by grid, and say so of each."""
        ...

    def revoke(self, tokens: Iterable[tuple[str, int]]) -> None:
        """Revoke the keys of submissions: (tag, token)."""
        ...

    def settle(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell the server that pilots have ended."""
        ...

    def log(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Have the server keep the last words of pilots that have ended."""
        ...

    def tell(self, refusals: Refusals, now: float) -> None:
        """Tell the server, and so the BOTs' owners, which grids refuse BOTs."""
        ...

    def tell_grids(self, told: GridNews, now: float) -> None:
        """Tell the server, and so all users, of the grids."""
        ...

    def follow(self, orders: Iterable[DrainOrder], now: float) -> None:
        """Do what operators said at the server, and say so."""
        ...


class DryActs:
    """Says what would be done."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def submit(self, submits: Sequence[Submit], now: float) -> None:  # noqa: ARG002
        """Say which pilots would be submitted."""
        for item in submits:
            self._say(f"{item.grid}: would submit {counted(item.count, 'pilot')}: {item.why}")

    def cancel(self, cancels: Sequence[Cancel]) -> None:
        """Say which pilots would be taken back."""
        for item in cancels:
            self._say(f"{item.grid}: would cancel {counted(len(item.pilots), 'pilot')}: {item.why}")

    def take_back(self, orphans: Mapping[str, Sequence[Orphan]]) -> None:
        """Say which pilots would be taken back."""
        for grid, found in orphans.items():
            for text in _orphans_texts(found):
                self._say(f"{grid}: would cancel {text}")

    def revoke(self, tokens: Iterable[tuple[str, int]]) -> None:
        """Say whose keys would be revoked."""
        for tag, _ in tokens:
            self._say(f"{tag}: would revoke its key")

    def settle(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell nobody."""

    def log(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell nobody."""

    def tell(self, refusals: Refusals, now: float) -> None:
        """Tell nobody."""

    def tell_grids(self, told: GridNews, now: float) -> None:
        """Tell nobody."""

    def follow(self, orders: Iterable[DrainOrder], now: float) -> None:  # noqa: ARG002
        """Say what would be done."""
        for order in orders:
            self._say(f"{order.grid}: would: {_ORDERED[order.drained]}")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A submission that is written down."""

    item: Submit
    order: PilotOrder


class RealActs:
    """Does it.  Only what a grid is asked happens in another thread than the caller's."""

    def __init__(self, deps: Dependencies, artefact: Artefact) -> None:
        self._deps = deps
        self._artefact = artefact
        self._told: Refusals | None = None
        self._told_at = 0.0
        self._told_grids: GridNews | None = None
        self._told_grids_at = 0.0

    def submit(self, submits: Sequence[Submit], now: float) -> None:
        """Write each submission down, make it, and write down what came of it."""
        prepared = {made.item.grid: made for made in self._prepared(submits, now)}

        def submitted(grid: str, answer: list[str] | Exception) -> None:
            self._submitted(prepared[grid], answer, now)

        submitters = self._deps.submitters
        works = {
            grid: partial(submitters[grid].submit, made.order) for grid, made in prepared.items()
        }
        self._deps.workers.each(works, submitted)

    def cancel(self, cancels: Sequence[Cancel]) -> None:
        """Remember why first: a pilot that was taken back did not fail."""
        for item in cancels:
            self._deps.store.save(replace(pilot, cancelled=item.why) for pilot in item.pilots)
            self._deps.say(f"{item.grid}: cancels {counted(len(item.pilots), 'pilot')}: {item.why}")
        by_grid: dict[str, list[str]] = {}
        for item in cancels:
            by_grid.setdefault(item.grid, []).extend(pilot.native_id for pilot in item.pilots)
        self._cancel(by_grid)

    def take_back(self, orphans: Mapping[str, Sequence[Orphan]]) -> None:
        """Cancel them, and say which and why."""
        for grid, found in orphans.items():
            for text in _orphans_texts(found):
                self._deps.say(f"{grid}: cancels {text}")
        self._cancel({grid: [item.native_id for item in found] for grid, found in orphans.items()})

    def _cancel(self, by_grid: Mapping[str, Sequence[str]]) -> None:
        """Cancel by native id; what fails is found again at the next look."""
        submitters = self._deps.submitters
        works = {
            grid: partial(submitters[grid].cancel, native_ids)
            for grid, native_ids in by_grid.items()
            if native_ids
        }
        self._deps.workers.each(works, self._cancelled)

    def _cancelled(self, grid: str, answer: Exception | None) -> None:
        if answer is not None:
            self._deps.say(f"{grid}: cannot cancel: {answer}")

    def revoke(self, tokens: Iterable[tuple[str, int]]) -> None:
        """Revoke; what the server did not hear is tried again at the next look."""
        for tag, token in tokens:
            try:
                self._deps.server.revoke(token)
            except GridbotError as error:
                self._deps.say(f"{tag}: cannot revoke its key: {error}")
                return
            self._deps.store.revoked(tag)

    def settle(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell the server once, so that what these pilots ran is sent elsewhere now."""
        if not pilots:
            return
        try:
            self._deps.server.pilots_ended(grid, [pilot.id for pilot in pilots])
        except GridbotError as error:
            self._deps.say(f"{grid}: cannot tell the server of ended pilots: {error}")
            return
        self._deps.store.save(replace(pilot, is_settled=True, holding=0) for pilot in pilots)
        self._deps.say(f"{grid}: {_ended_text(pilots)}")

    def log(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Have them kept once; what the server did not hear is told at the next look."""
        if not pilots:
            return
        try:
            self._deps.server.keep_logs(grid, pilots)
        except GridbotError as error:
            self._deps.say(f"{grid}: the server does not keep pilots' last words: {error}")
            return
        self._deps.store.save(replace(pilot, is_logged=True) for pilot in pilots)

    def tell(self, refusals: Refusals, now: float) -> None:
        """Tell what has changed, and from time to time that it still holds."""
        if refusals == self._told and now - self._told_at < _REPEAT_SECONDS:
            return
        try:
            self._deps.server.refuse(self._deps.store.prefix, refusals)
        except GridbotError as error:
            self._deps.say(f"cannot tell the server which grids refuse BOTs: {error}")
        else:
            self._told, self._told_at = refusals, now

    def tell_grids(self, told: GridNews, now: float) -> None:
        """Tell what has changed, and from time to time that it still holds."""
        if told == self._told_grids and now - self._told_grids_at < _REPEAT_SECONDS:
            return
        try:
            self._deps.server.tell_grids(self._deps.store.prefix, told, _GOOD_SECONDS)
        except GridbotError as error:
            self._deps.say(f"cannot tell the server of the grids: {error}")
        else:
            self._told_grids, self._told_grids_at = told, now

    def follow(self, orders: Iterable[DrainOrder], now: float) -> None:
        """Write each down: the next look at the grid finds it there, like one given here."""
        for order in orders:
            self._deps.store.follow(order, now)
            text = _ORDERED[order.drained]
            self._deps.say(f"{order.grid}: {text}, as an operator said at the server")

    def _prepared(self, submits: Sequence[Submit], now: float) -> Iterator[_Prepared]:
        for item in submits:
            if self._deps.workers.is_busy(item.grid):
                continue  # what it still owes may say that fewer are wanted
            grid, tag = self._deps.grids[item.grid], self._deps.store.new_tag()
            lifetime = grid.shape.walltime_seconds + grid.limits.max_queue_seconds
            server = self._deps.server
            try:
                server.offer(self._artefact)
                key = server.pilot_key(
                    item.grid, item.owners, lifetime, tag, item.count, self._artefact
                )
            except GridbotError as error:
                self._deps.say(f"{item.grid}: pilots are not prepared: {error}")
                continue
            pilots = [_pilot(grid, tag, index, item, now) for index in range(item.count)]
            submission = SubmissionRecord(tag, item.grid, now, key.id, item.why)
            self._deps.store.submitting(submission, pilots)
            script = render(grid, server.url, key.token, self._artefact, self._deps.pins, now)
            yield _Prepared(item, _order(grid, tag, item, script))

    def _submitted(self, made: _Prepared, answer: list[str] | Exception, now: float) -> None:
        item, tag, store = made.item, made.order.tag, self._deps.store
        # As they are now: the answer may be of an earlier round.
        pilots = [pilot for pilot in store.pilots(item.grid, now) if pilot.tag == tag]
        if isinstance(answer, Exception):
            self._deps.say(f"{item.grid}: {tag} is not confirmed: {answer}")
            store.save(_unconfirmed(pilot, answer, now) for pilot in pilots)
            return
        many = counted(item.count, "pilot")
        self._deps.say(f"{item.grid}: submitted {many} as {tag}: {item.why}")
        store.save(
            replace(pilot, native_id=answer[pilot.index])
            for pilot in pilots
            if pilot.index < len(answer)
        )


def _order(grid: Grid, tag: str, item: Submit, script: str) -> PilotOrder:
    return PilotOrder(
        tag=tag,
        count=item.count,
        shape=grid.shape,
        script=script,
        directives=grid.directives,
        owners=item.owners,
        excluded_nodes=item.excluded_nodes,
    )


def _pilot(grid: Grid, tag: str, index: int, item: Submit, now: float) -> Pilot:
    return Pilot(
        tag=tag,
        index=index,
        grid=grid.name,
        state=PilotState.SUBMITTING,
        cpus=grid.shape.all_cpus,
        submitted_at=now,
        owners=item.owners,
        walltime_seconds=grid.shape.walltime_seconds,
        price=grid.price,
    )


def _orphans_texts(orphans: Iterable[Orphan]) -> Iterator[str]:
    """Name orphans by native id; those of one submission that go for one reason together."""
    native_ids = defaultdict[tuple[str, str], list[str]](list)
    for item in orphans:
        native_ids[item.tag, item.why].append(item.native_id)
    for (tag, why), some in native_ids.items():
        yield f"{', '.join(some)} of {tag}: {why}"


def _ended_text(pilots: Sequence[Pilot]) -> str:
    """Say what became of pilots, and why those ended that did not leave by themselves."""
    jobs = sum(pilot.jobs for pilot in pilots)
    failures = sum(pilot.failures for pilot in pilots)
    reasons = Counter(pilot.cancelled or pilot.reason for pilot in pilots)
    why = "; ".join(f"{count} {text}" for text, count in reasons.most_common() if text)
    ended = f"{counted(len(pilots), 'pilot')} ended"
    text = f"{ended} after {counted(jobs, 'job')} and {counted(failures, 'failure')}"
    return f"{text} ({why})" if why else text


def _unconfirmed(pilot: Pilot, error: Exception, now: float) -> Pilot:
    """A refusal ends the pilot; after anything else it may exist and is looked for by its tag."""
    if isinstance(error, GridError) and error.is_lasting:
        return replace(pilot, state=PilotState.ENDED, ended_at=now, reason=str(error))
    return replace(pilot, reason=str(error))
