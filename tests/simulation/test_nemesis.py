"""Claims about the server under faults, and about what finds them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from tests.simulation.planted import DEFECTS, taken_over_and_given_back

from gridbot_server.storage import sql
from gridbot_simulator.nemesis import invariants
from gridbot_simulator.nemesis.broken import InvariantBroken
from gridbot_simulator.nemesis.faults import AT_POINTS, Fault, FaultKind, draw
from gridbot_simulator.nemesis.shrink import shrink
from gridbot_simulator.nemesis.story import live

SEEDS, BLOCK = 200, 25
MOST_SEEDS = 500  # within which a planted defect is found


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_no_invariant_breaks_under_faults_and_all_bots_end(first: int) -> None:
    verdicts = [live(seed) for seed in range(first, first + BLOCK)]
    assert {each.seed: str(each.violation) for each in verdicts if each.violation} == {}


def test_a_job_is_not_given_back_when_the_answer_to_the_commit_of_its_lease_was_lost() -> None:
    found = live(770, [Fault(39, FaultKind.LOST_COMMIT, point=6)])
    assert (found.violation, found.struck) == (None, {FaultKind.LOST_COMMIT: 1})


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_by_its_invariant(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, invariant = DEFECTS[name]
    found = (live(seed, plant=lambda story: plant(story, monkeypatch)) for seed in seeds())
    first = next((each for each in found if each.violation), None)
    assert first is not None, f"not found within {MOST_SEEDS} seeds"
    assert first.violation is not None
    assert first.violation.name == invariant


def test_a_defect_that_seeds_found_is_found_again_where_it_is_planted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = live(76, plant=lambda story: taken_over_and_given_back(story, monkeypatch)).violation
    assert found is not None
    assert found.name == "only_fed_jobs_were_sent"


def seeds() -> Sequence[int]:
    return range(1, MOST_SEEDS + 1)


def test_a_seed_that_fails_is_shrunk_to_few_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, invariant = DEFECTS["a stale epoch"]

    def violated(seed: int, faults: Sequence[Fault]) -> str | None:
        found = live(seed, faults, plant=lambda story: plant(story, monkeypatch)).violation
        return None if found is None else found.name

    seed = next(seed for seed in seeds() if violated(seed, draw(seed)) == invariant)
    few = shrink(draw(seed), lambda faults: violated(seed, faults) == invariant)
    assert [fault.kind for fault in few] == [FaultKind.RESTORE]


def test_shrinking_keeps_all_that_a_failure_needs() -> None:
    listed = [Fault(step, FaultKind.KILL) for step in range(40)]
    needed = {3, 17, 39}
    few = shrink(listed, lambda faults: needed <= {fault.step for fault in faults})
    assert {fault.step for fault in few} == needed


def test_the_same_seed_has_the_same_story() -> None:
    first, again = (live(11, is_told=True) for _ in range(2))
    assert first.story == again.story
    assert len(first.story) > 200


def test_a_seed_without_its_faults_has_the_same_schedule_until_they_would_strike() -> None:
    faults = draw(11)
    with_all, without = (live(11, given, is_told=True) for given in (faults, ()))
    before = [line for line in with_all.story if int(line[:4]) < faults[0].step]
    assert without.story[: len(before)] == before


def test_the_faults_of_some_seeds_are_of_all_kinds() -> None:
    assert {fault.kind for seed in range(1, 40) for fault in draw(seed)} == set(FaultKind)
    assert set(FaultKind) > AT_POINTS


def test_each_invariant_of_the_database_is_checked_or_has_a_reason_why_not() -> None:
    of_the_database = sql.load("invariants.sql").keys()
    assert of_the_database - invariants.names() == invariants.NOT_CHECKED.keys()


def test_what_a_seed_broke_goes_from_process_to_process() -> None:
    found = pickle.loads(pickle.dumps(InvariantBroken("a_slot_is_freed_once", (7, 1))))
    assert (found.name, str(found)) == ("a_slot_is_freed_once", "a_slot_is_freed_once: (7, 1)")
