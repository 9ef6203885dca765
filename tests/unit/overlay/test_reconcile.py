"""Claims about finding pilots again: nothing is lost, nothing is doubled, no orphan stays."""

from dataclasses import replace
from typing import Any

import pytest
from tests.overlay_factories import NOW, pilot

from gridbot_overlay.decide.model import Pilot, PilotState, Sighting
from gridbot_overlay.decide.reconcile import (
    GRACE_SECONDS,
    NEVER_MADE,
    NO_GRID,
    Reconciled,
    attribute,
    charged,
    given_up,
    reconcile,
)


def sighting(
    index: int = 0, state: PilotState = PilotState.QUEUED, tag: str = "t", native_id: str = ""
) -> Sighting:
    return Sighting(tag=tag, native_id=native_id or f"t.{index}", index=index, state=state)


def unconfirmed(index: int = 0, ago: float = 10.0) -> Pilot:
    return pilot(index, PilotState.SUBMITTING, native_id="", submitted_at=NOW - ago)


def only(pilots: tuple[Pilot, ...]) -> Pilot:
    assert len(pilots) == 1
    return pilots[0]


def taken_back(found: Reconciled) -> list[str]:
    return [orphan.native_id for orphan in found.orphans]


def test_a_submission_whose_reply_was_lost_is_found_by_its_tag() -> None:
    found = reconcile([unconfirmed()], [sighting()], NOW)
    assert (only(found.changed).native_id, only(found.changed).state) == ("t.0", PilotState.QUEUED)
    assert found.orphans == ()


def test_a_submission_that_never_shows_up_is_given_up_after_a_while() -> None:
    assert reconcile([unconfirmed()], [], NOW).changed == ()
    late = only(reconcile([unconfirmed(ago=GRACE_SECONDS + 1)], [], NOW).changed)
    assert (late.state, late.reason) == (PilotState.ENDED, NEVER_MADE)


def test_one_that_shows_up_after_it_was_given_up_is_taken_back() -> None:
    given_up = replace(unconfirmed(), state=PilotState.ENDED, ended_at=NOW - 5)
    found = reconcile([given_up], [sighting()], NOW)
    assert (found.changed, taken_back(found)) == ((), ["t.0"])


def test_pilots_of_ours_that_nobody_remembers_are_taken_back() -> None:
    sightings = [sighting(3, tag="old", native_id="77"), sighting(4, PilotState.ENDED, tag="old")]
    assert taken_back(reconcile([], sightings, NOW)) == ["77"]


def test_of_two_with_one_name_the_second_is_taken_back() -> None:
    found = reconcile([pilot(0)], [sighting(0), sighting(0, native_id="t.0 again")], NOW)
    assert taken_back(found) == ["t.0 again"]


def test_what_the_system_does_not_know_any_more_has_ended() -> None:
    ended = only(reconcile([pilot(0, PilotState.RUNNING)], [], NOW).changed)
    assert (ended.state, ended.ended_at) == (PilotState.ENDED, NOW)


def test_one_that_is_seen_again_after_all_lives() -> None:
    gone = only(reconcile([pilot(0, PilotState.RUNNING)], [], NOW).changed)
    back = only(reconcile([gone], [sighting(0, PilotState.RUNNING)], NOW + 10).changed)
    assert (back.state, back.ended_at) == (PilotState.RUNNING, None)


def test_a_pilots_start_is_not_dated_too_late() -> None:
    waiting = only(reconcile([pilot(0)], [sighting(0)], NOW).changed)
    running = only(reconcile([waiting], [sighting(0, PilotState.RUNNING)], NOW + 30).changed)
    assert running.started_at == NOW
    ended = only(reconcile([waiting], [sighting(0, PilotState.ENDED)], NOW + 30).changed)
    assert ended.hours == 30 / 3600


def test_a_held_pilot_is_held_since_it_was_first_seen_so() -> None:
    held = only(reconcile([pilot(0)], [sighting(0, PilotState.HELD)], NOW).changed)
    assert reconcile([held], [sighting(0, PilotState.HELD)], NOW + 100).changed == ()
    assert held.waiting_at == NOW


def test_a_cancel_that_did_not_arrive_is_repeated() -> None:
    found = reconcile([pilot(0, cancelled="surplus")], [sighting(0)], NOW)
    assert taken_back(found) == ["t.0"]


def test_a_pilot_that_was_cancelled_while_it_waited_has_used_no_hours() -> None:
    waiting = pilot(0, cancelled="surplus", waiting_at=NOW - 50)
    ended = only(reconcile([waiting], [sighting(0, PilotState.ENDED)], NOW).changed)
    assert (ended.hours, ended.started_at) == (0.0, None)


@pytest.mark.parametrize("sightings", [(), (sighting(0, PilotState.ENDED),)])
def test_a_pilot_that_ended_while_nobody_looked_is_charged_its_walltime_at_most(
    sightings: tuple[Sighting, ...],
) -> None:
    weekend = NOW + 2 * 86_400
    running = pilot(0, PilotState.RUNNING, started_at=NOW, walltime_seconds=3600)
    waited = pilot(0, waiting_at=NOW, has_joined=True, walltime_seconds=3600)
    for known in (running, waited):
        ended = only(reconcile([known], sightings, weekend).changed)
        assert (ended.ended_at, ended.hours) == (NOW + 3600, 1.0)


def test_a_paid_pilot_of_which_the_grid_has_forgotten_all_is_charged_since_it_last_waited() -> None:
    weekend = NOW + 2 * 86_400
    queued = pilot(0, waiting_at=NOW - 50, price=1.0)
    accepted = pilot(0, PilotState.SUBMITTING, price=1.0)
    for known, began in ((queued, NOW - 50), (accepted, accepted.submitted_at)):
        ended = only(reconcile([known], [], weekend).changed)
        assert (ended.started_at, ended.hours) == (began, 1.0)


@pytest.mark.parametrize("changes", [{"price": 0.0}, {"cancelled": "surplus"}, {"native_id": ""}])
def test_a_pilot_that_cost_nothing_surely_is_not_charged(changes: dict[str, Any]) -> None:
    known = pilot(0, PilotState.SUBMITTING, **{"price": 1.0, "reason": "no answer", **changes})
    ended = only(reconcile([known], [], NOW + 2 * 86_400).changed)
    assert (ended.state, ended.started_at) == (PilotState.ENDED, None)


def test_only_a_pilot_that_nobody_saw_run_is_charged_since_it_last_waited() -> None:
    unseen = pilot(0, PilotState.ENDED, started_at=None, waiting_at=NOW - 50)
    assert charged(unseen) == replace(unseen, started_at=NOW - 50)
    for known in (pilot(0), pilot(0, PilotState.ENDED)):
        assert charged(known) == known


@pytest.mark.parametrize("sightings", [(), (sighting(0, PilotState.ENDED),)])
def test_a_pilot_that_was_seen_to_overrun_is_charged_until_then(
    sightings: tuple[Sighting, ...],
) -> None:
    known = pilot(0, PilotState.RUNNING, started_at=NOW - 10, running_at=NOW)
    at_its_end, late = NOW + 3600, NOW + 3800
    assert reconcile([known], [sighting(0, PilotState.RUNNING)], at_its_end).changed == ()
    overran = only(reconcile([known], [sighting(0, PilotState.RUNNING)], late).changed)
    assert given_up(overran, late).ended_at == late
    ended = only(reconcile([overran], sightings, late + 86_400).changed)
    assert (ended.started_at, ended.ended_at) == (NOW - 10, late)


def test_a_pilot_that_was_cancelled_too_late_is_charged_what_it_ran() -> None:
    cancelled = pilot(0, cancelled="surplus", waiting_at=NOW)
    runs = only(reconcile([cancelled], [sighting(0, PilotState.RUNNING)], NOW + 10).changed)
    ended = only(reconcile([runs], [sighting(0, PilotState.ENDED)], NOW + 1800).changed)
    assert ended.hours == 0.5
    joined = only(
        reconcile(
            [replace(cancelled, has_joined=True)], [sighting(0, PilotState.ENDED)], NOW + 1800
        ).changed
    )
    assert joined.hours == 0.5


def test_a_pilot_runs_since_it_was_first_seen_so() -> None:
    runs = only(reconcile([pilot(0)], [sighting(0, PilotState.RUNNING)], NOW).changed)
    assert reconcile([runs], [sighting(0, PilotState.RUNNING)], NOW + 50).changed == ()
    assert runs.running_at == NOW
    again = only(reconcile([runs], [sighting(0)], NOW + 60).changed)
    assert again.running_at is None


def test_a_pilot_whose_grid_is_gone_is_charged_all_that_it_could_run() -> None:
    running = given_up(pilot(0, PilotState.RUNNING, started_at=NOW - 60), NOW)
    assert (running.state, running.hours, running.cancelled) == (PilotState.ENDED, 1.0, NO_GRID)
    assert given_up(pilot(1), NOW).hours == 0.0


def test_what_grids_of_one_batch_system_list_belongs_to_the_grid_that_submitted_it() -> None:
    listing = [
        sighting(0),
        sighting(1, PilotState.RUNNING, tag="u"),
        sighting(2, PilotState.ENDED, tag="u"),
    ]
    found = attribute({"a": listing, "b": listing}, {"t": "a", "u": "b"}, {"a", "b"})
    assert found.own == {"a": listing[:1], "b": listing[1:]}
    assert found.strays == {}


def test_a_grid_that_could_not_be_asked_keeps_its_pilots() -> None:
    found = attribute({"a": [sighting(0, tag="u")]}, {"u": "b"}, {"a", "b"})
    assert (found.own, found.strays) == ({"a": []}, {})


def test_what_several_grids_list_and_none_submitted_is_found_once() -> None:
    listing = [
        sighting(0),
        sighting(1),
        sighting(1, native_id="again"),
        sighting(2, PilotState.ENDED),
    ]
    found = attribute({"a": listing, "b": [*listing, sighting(3)]}, {}, {"a", "b"})
    assert found.strays == {"a": listing[:3], "b": [sighting(3)]}


def test_what_a_grid_submitted_that_is_configured_no_more_is_nobodys() -> None:
    found = attribute({"a": [sighting(0)]}, {"t": "gone"}, {"a"})
    assert found.strays == {"a": [sighting(0)]}
