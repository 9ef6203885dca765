"""Defects that are planted into the harness of the nemesis, one at a time.

The server's code has no switch for any of them: each is a statement that answers otherwise, a
transaction that is undone in part, or a buffer that does too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pytest

from gridbot_simulator.nemesis.buffer import FaultyBuffer
from gridbot_simulator.nemesis.faults import Fault
from gridbot_simulator.nemesis.processes import ServerMachine
from gridbot_simulator.nemesis.story import Story
from gridbot_simulator.store.tables import Tables

Defect = Callable[[Story, pytest.MonkeyPatch], None]


def no_rows(tables: Tables, **values: object) -> tuple[()]:
    return ()


def unlease_not_done(story: Story, patch: pytest.MonkeyPatch) -> None:
    story.store.answer("moves.sql:unlease_ended", no_rows)


def kept_by_rollbacks(*names: str) -> Defect:
    """What these tables get is outside of the transaction that it belongs to."""

    def plant(story: Story, patch: pytest.MonkeyPatch) -> None:
        undo = story.store.undo

        def undo_the_rest(kept: bytes) -> None:
            now = {name: getattr(story.tables, name) for name in names}
            undo(kept)
            story.tables.__dict__.update(now)

        patch.setattr(story.store, "undo", undo_the_rest)

    return plant


def acknowledged_before_commit(story: Story, patch: pytest.MonkeyPatch) -> None:
    """What was answered is not there, should the process die before it commits."""
    store, points = story.store, story.points
    transaction, begin, cross, end = store.transaction, points.begin, points.cross, points.end
    kept, answered = list[bytes](), list[bool]()

    @contextmanager
    def not_yet_committed() -> Iterator[None]:
        if not points.is_inside:
            kept[:] = [store.snapshot()]
        with transaction():
            yield

    def begin_anew(due: Sequence[Fault]) -> None:
        answered.clear()
        begin(due)

    def note_answers(place: str, **how: bool) -> None:
        cross(place, **how)
        if place == "reply":
            answered.append(True)

    def undo_what_was_answered() -> bool:
        dies = points.is_dying
        is_late = end()
        if answered and (dies or is_late):
            store.undo(kept[0])
        return is_late

    patch.setattr(store, "transaction", not_yet_committed)
    patch.setattr(points, "begin", begin_anew)
    patch.setattr(points, "cross", note_answers)
    patch.setattr(points, "end", undo_what_was_answered)


def changed_replicas(change: Callable[[list[Any]], list[Any] | None]) -> Defect:
    """The transitioner sees replicas in another way."""

    def plant(story: Story, patch: pytest.MonkeyPatch) -> None:
        def replicas(tables: Tables, jobs: str) -> list[Any]:
            rows = asked(tables, jobs=jobs)
            assert isinstance(rows, list)
            return [new for row in rows if (new := change(list(row))) is not None]

        asked = story.store.answer("cycles.sql:replicas", replicas)

    return plant


def double_outcome(row: list[Any]) -> list[Any] | None:
    return None if row[4] == "outcome" else row


def each_replica_votes(row: list[Any]) -> list[Any]:
    host = 9
    return [*row[:host], row[2], *row[host + 1 :]]


def quorum_of_one(story: Story, patch: pytest.MonkeyPatch) -> None:
    """A host may answer a job more than once, and each of its answers counts."""

    def others(tables: Tables, **values: Any) -> list[Any]:
        rows = siblings(tables, **values)
        assert isinstance(rows, list)
        return [row for row in rows if row[3] != "success"]

    def take(tables: Tables, copies: str) -> Any:
        quorums = {bot.id: bot.quorum for bot in tables.bots.values()}
        for bot in tables.bots.values():
            bot.quorum = 1
        found = take_copies(tables, copies=copies)
        for bot in tables.bots.values():
            bot.quorum = quorums[bot.id]
        return found

    changed_replicas(each_replica_votes)(story, patch)
    siblings = story.store.answer("siblings.sql:siblings", others)
    take_copies = story.store.answer("moves.sql:take_copies", take)


def lost_cancel(story: Story, patch: pytest.MonkeyPatch) -> None:
    story.store.answer("dispatch.sql:not_wanted", no_rows)


class FreesTwice(FaultyBuffer):
    def restore(self, numbers: Iterable[int]) -> None:
        listed = list(numbers)
        super().restore(listed)
        if listed and not self._points.is_dying:
            self.free(listed)


def slot_freed_twice(story: Story, patch: pytest.MonkeyPatch) -> None:
    def make(site: ServerMachine) -> FaultyBuffer:
        return FreesTwice(site.name, story.points, site.dead, slots=8)

    story.make_buffer = make


def taken_over_and_given_back(story: Story, patch: pytest.MonkeyPatch) -> None:
    """A machine gives jobs back that the one from which it took them over may still send."""

    def renew(tables: Tables, **values: Any) -> Any:
        gathered = {bot.id: bot.gathered for bot in tables.bots.values()}
        rows = renew_ranges(tables, **values)
        for bot in tables.bots.values():
            bot.gathered = gathered[bot.id]
        return rows

    renew_ranges = story.store.answer("feeder.sql:renew_ranges", renew)


def stale_epoch(story: Story, patch: pytest.MonkeyPatch) -> None:
    story.store.answer("dispatch.sql:epoch", lambda tables: [(1,)])


def told_before_commit(story: Story, patch: pytest.MonkeyPatch) -> None:
    """The owner reads results that a rollback takes back."""
    execute = story.store.execute

    def execute_and_read(query: bytes, params: Mapping[str, Any] | None = None) -> Any:
        rows = execute(query, params)
        story.witness.read_results()
        return rows

    patch.setattr(story.store, "execute", execute_and_read)


DEFECTS: Mapping[str, tuple[Defect, str]] = MappingProxyType(
    {
        "unlease not done": (unlease_not_done, "a_replica_is_in_one_place"),
        "a wake-up consumed outside its transaction": (
            kept_by_rollbacks("pending"), "something_moves_every_unfinished_job",
        ),
        "acknowledgement before commit": (
            acknowledged_before_commit, "what_is_acknowledged_is_kept",
        ),
        "double outcome": (
            changed_replicas(double_outcome), "outcomes_are_numbered_without_gaps",
        ),
        "a lost cancel": (lost_cancel, "clients_are_told_what_is_not_wanted"),
        "a slot freed twice": (slot_freed_twice, "a_slot_is_freed_once"),
        "a quorum of one": (quorum_of_one, "a_canonical_replica_has_its_quorum"),
        "credit twice": (
            kept_by_rollbacks("credit", "owners_credit"),
            "hosts_have_the_credit_of_their_valid_replicas",
        ),
        "a stale epoch": (stale_epoch, "a_reply_is_of_this_epoch"),
        "a recalled result told as final": (told_before_commit, "what_was_told_is_final"),
    }
)  # fmt: skip
"""By name: how a defect is planted, and the invariant that it breaks."""
