"""Carries a plan out, or only says what would be done: the only place where pilots are touched."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

from gridbot.errors import GridbotError
from gridbot.printing import counted
from gridbot_overlay.construct import Cancel, Submit
from gridbot_overlay.model import Grid, Order, Pilot, State
from gridbot_overlay.pilot.artefact import Artefact
from gridbot_overlay.pilot.script import render
from gridbot_overlay.server import Server
from gridbot_overlay.store import Store, Submission
from gridbot_overlay.submitters import GridError, Submitter

T = TypeVar("T")
R = TypeVar("R")
Say = Callable[[str], None]

_AT_ONCE = 16  # grids that are spoken with at the same time
log = logging.getLogger(__name__)


class Acts(Protocol):
    """What the constructor does to the world."""

    def submit(self, submits: Sequence[Submit], now: float) -> None:
        """Submit pilots."""
        ...

    def cancel(self, cancels: Sequence[Cancel]) -> None:
        """Take pilots back, and remember why."""
        ...

    def take_back(self, orphans: Mapping[str, Sequence[str]]) -> None:
        """Take pilots back that nobody waits for: native ids by grid."""
        ...

    def revoke(self, tokens: Iterable[tuple[str, int]]) -> None:
        """Revoke the keys of submissions: (tag, token)."""
        ...

    def settle(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell the server that pilots have ended."""
        ...


def for_all(action: Callable[[T], R], items: Sequence[T]) -> list[R | Exception]:
    """Do something for all items at once; the one that fails gives its error.

    Grids are strangers to each other: what breaks with one must not stop the others.
    """

    def attempt(item: T) -> R | Exception:
        try:
            return action(item)
        except GridError as error:
            return error
        except Exception as error:
            log.exception("unexpected, with %r", item)
            return error

    if not items:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(items))) as pool:
        return list(pool.map(attempt, items))


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

    def take_back(self, orphans: Mapping[str, Sequence[str]]) -> None:
        """Say which pilots would be taken back."""
        for grid, native_ids in orphans.items():
            self._say(f"{grid}: would cancel {', '.join(native_ids)}: nobody waits for them")

    def revoke(self, tokens: Iterable[tuple[str, int]]) -> None:
        """Say whose keys would be revoked."""
        for tag, _ in tokens:
            self._say(f"{tag}: would revoke its key")

    def settle(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell nobody."""


class RealActs:
    """Does it.  Worker threads speak with grids, this one alone with the store and the server."""

    def __init__(
        self,
        grids: Mapping[str, Grid],
        submitters: Mapping[str, Submitter],
        server: Server,
        store: Store,
        artefact: Artefact,
        say: Say,
    ) -> None:
        self._grids = grids
        self._submitters = submitters
        self._server = server
        self._store = store
        self._artefact = artefact
        self._say = say

    def submit(self, submits: Sequence[Submit], now: float) -> None:
        """Write each submission down, make it, and write down what came of it."""
        prepared = list(self._prepared(submits, now))
        answers = for_all(self._submitted, prepared)
        for (item, order, pilots), answer in zip(prepared, answers, strict=True):
            if isinstance(answer, Exception):
                self._say(f"{item.grid}: {order.tag} is not confirmed: {answer}")
                self._store.save(_unconfirmed(pilot, answer, now) for pilot in pilots)
                continue
            self._say(
                f"{item.grid}: submitted {counted(item.count, 'pilot')} as {order.tag}: {item.why}"
            )
            confirmed = zip(pilots, answer, strict=False)
            self._store.save(replace(pilot, native_id=native) for pilot, native in confirmed)

    def cancel(self, cancels: Sequence[Cancel]) -> None:
        """Remember why first: a pilot that was taken back did not fail."""
        for item in cancels:
            self._store.save(replace(pilot, cancelled=item.why) for pilot in item.pilots)
            self._say(f"{item.grid}: cancels {counted(len(item.pilots), 'pilot')}: {item.why}")
        by_grid: dict[str, list[str]] = {}
        for item in cancels:
            by_grid.setdefault(item.grid, []).extend(pilot.native_id for pilot in item.pilots)
        self.take_back(by_grid)

    def take_back(self, orphans: Mapping[str, Sequence[str]]) -> None:
        """Cancel by native id; what fails is found again at the next look."""
        grids = [grid for grid, native_ids in orphans.items() if native_ids]
        answers = for_all(lambda grid: self._submitters[grid].cancel(orphans[grid]), grids)
        for grid, answer in zip(grids, answers, strict=True):
            if isinstance(answer, Exception):
                self._say(f"{grid}: cannot cancel: {answer}")

    def revoke(self, tokens: Iterable[tuple[str, int]]) -> None:
        """Revoke; what the server did not hear is tried again at the next look."""
        for tag, token in tokens:
            try:
                self._server.revoke(token)
            except GridbotError as error:
                self._say(f"{tag}: cannot revoke its key: {error}")
                return
            self._store.revoked(tag)

    def settle(self, grid: str, pilots: Sequence[Pilot]) -> None:
        """Tell the server once, so that what these pilots ran is sent elsewhere now."""
        if not pilots:
            return
        try:
            self._server.pilots_ended(grid, [pilot.id for pilot in pilots])
        except GridbotError as error:
            self._say(f"{grid}: cannot tell the server of ended pilots: {error}")
            return
        self._store.save(replace(pilot, is_settled=True, holding=0) for pilot in pilots)
        self._say(f"{grid}: {_ended_text(pilots)}")

    def _prepared(
        self, submits: Sequence[Submit], now: float
    ) -> Iterator[tuple[Submit, Order, list[Pilot]]]:
        for item in submits:
            grid, tag = self._grids[item.grid], self._store.new_tag()
            lifetime = grid.shape.walltime_seconds + grid.limits.max_queue_seconds
            try:
                self._server.offer(self._artefact)
                key = self._server.pilot_key(item.grid, item.owners, lifetime, tag, item.count)
            except GridbotError as error:
                self._say(f"{item.grid}: pilots are not prepared: {error}")
                continue
            pilots = [_pilot(grid, tag, index, item, now) for index in range(item.count)]
            self._store.submitting(Submission(tag, item.grid, now, key.id, item.why), pilots)
            script = render(grid, self._server.url, key.token, self._artefact)
            yield item, _order(grid, tag, item, script), pilots

    def _submitted(self, prepared: tuple[Submit, Order, list[Pilot]]) -> list[str]:
        item, order, _ = prepared
        return self._submitters[item.grid].submit(order)


def _order(grid: Grid, tag: str, item: Submit, script: str) -> Order:
    return Order(
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
        state=State.SUBMITTING,
        cpus=grid.shape.cpus,
        submitted_at=now,
        owners=item.owners,
        walltime_seconds=grid.shape.walltime_seconds,
    )


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
        return replace(pilot, state=State.ENDED, ended_at=now, reason=str(error))
    return replace(pilot, reason=str(error))
