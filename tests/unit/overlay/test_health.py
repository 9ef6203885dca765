"""Claims about pauses: nodes before grids, each incident doubles, one pilot probes, then all go."""

import pytest
from tests.overlay_factories import NOW, pilot

from gridbot_overlay.decide.health import (
    EVERYWHERE,
    PAUSES,
    SERVER_AWAY,
    WHY_HELD,
    judge,
)
from gridbot_overlay.decide.model import Pilot, PilotState


def broken(index: int, ago: float = 5.0, **changes: object) -> Pilot:
    """A pilot that ended before it spoke with the server."""
    values = {"submitted_at": NOW - ago - 10, "ended_at": NOW - ago, "native_id": "x"}
    return pilot(index, PilotState.ENDED, **{**values, **changes})


def worked(index: int, ago: float = 5.0, **changes: object) -> Pilot:
    """A pilot that ran ten replicas well."""
    return broken(index, ago, **{"has_joined": True, "jobs": 10, **changes})


def idle(index: int, ago: float = 5.0) -> Pilot:
    return worked(index, ago, jobs=0)


def test_a_grid_without_history_is_fine() -> None:
    assert judge([], NOW).most_new is None


def test_a_few_broken_pilots_are_no_trouble_three_in_a_row_are() -> None:
    assert judge([broken(0), broken(1)], NOW).most_new is None
    assert judge([broken(0), broken(1), broken(2)], NOW).most_new == 0


def test_a_pause_shows_the_last_pilots_own_words() -> None:
    pilots = [broken(n, stderr="first line\nno module named venv\n") for n in range(3)]
    assert "no module named venv" in judge(pilots, NOW).reason


def test_after_a_pause_one_pilot_probes_and_while_it_does_no_other_is_sent() -> None:
    pilots = [broken(n, ago=100) for n in range(3)]
    assert judge(pilots, NOW).most_new == 1
    assert judge([*pilots, pilot(9, submitted_at=NOW)], NOW).most_new == 0


def test_a_probe_that_joins_ends_the_trouble() -> None:
    probe = pilot(9, PilotState.RUNNING, submitted_at=NOW - 20, has_joined=True)
    assert judge([*(broken(n, ago=100) for n in range(3)), probe], NOW).most_new is None


def test_each_further_incident_doubles_the_pause_up_to_an_hour() -> None:
    def pause(incidents: int) -> float:
        """Measure it: a probe after each pause, all of them broken."""
        pilots, at = [broken(n, ago=0) for n in range(3)], NOW
        for number in range(incidents):
            since = at
            while judge(pilots, at).most_new == 0:
                at += 1
            length = at - since
            probe = broken(10 + number, submitted_at=at, ended_at=at)
            pilots.append(probe)
        return length

    assert [pause(n) for n in (1, 2, 3)] == [60, 120, 240]
    assert pause(9) == PAUSES.most


def test_pilots_that_were_sent_together_are_one_incident() -> None:
    pilots = [broken(n, ago=50) for n in range(40)]
    assert "paused for 10 s" in judge(pilots, NOW).reason


def test_an_old_pilot_that_still_runs_does_not_hide_that_new_ones_fail() -> None:
    old = pilot(9, PilotState.RUNNING, submitted_at=NOW - 5000, has_joined=True, jobs=50)
    assert judge([old, *(broken(n) for n in range(3))], NOW).most_new == 0


def test_a_bad_node_is_paused_and_its_grid_is_not() -> None:
    good = [worked(n, node="n1") for n in range(3)]
    bad = [broken(n, node="n2") for n in range(10, 13)]
    found = judge([*good, *bad], NOW)
    assert (found.most_new, found.bad_nodes) == (None, ("n2",))
    assert "node n2 is paused" in found.reason


def test_where_all_nodes_are_bad_the_grid_is_paused() -> None:
    found = judge([broken(n, node=f"n{n % 2}") for n in range(8)], NOW)
    assert (found.most_new, found.bad_nodes) == (0, ())


def test_a_black_hole_that_goes_on_eating_pilots_pauses_the_grid() -> None:
    good = [worked(n, node="n1") for n in range(3)]
    bad = [broken(n, ago=30, node="n2") for n in range(10, 13)]
    more = [broken(n, ago=1, submitted_at=NOW - 5, node="n2") for n in range(20, 23)]
    assert judge([*good, *bad], NOW).most_new is None
    assert judge([*good, *bad, *more], NOW).most_new == 0


def test_a_node_on_which_replicas_fail_is_paused() -> None:
    good = worked(0, node="n1")
    hole = pilot(
        1, PilotState.RUNNING, node="n2", has_joined=True, failures=4, error="exit code 127"
    )
    found = judge([good, hole], NOW)
    assert found.bad_nodes == ("n2",)
    assert "exit code 127" in found.reason


def test_failing_fast_is_noticed_though_some_replicas_succeed() -> None:
    good = worked(0, node="n1")
    fast = pilot(
        1, PilotState.RUNNING, node="n2", started_at=NOW - 30, has_joined=True, jobs=12, failures=8
    )
    slow = pilot(
        2,
        PilotState.RUNNING,
        node="n3",
        started_at=NOW - 9000,
        has_joined=True,
        jobs=12,
        failures=8,
    )
    assert judge([good, fast, slow], NOW).bad_nodes == ("n2",)


def test_a_nodes_pause_ends_by_itself() -> None:
    good, bad = [worked(0, node="n1")], [broken(n, ago=100, node="n2") for n in range(10, 13)]
    found = judge([*good, *bad], NOW)
    assert (found.most_new, found.bad_nodes) == (None, ())


def test_pilots_that_find_nothing_to_do_are_throttled_until_one_does() -> None:
    wasted = [idle(n) for n in range(3)]
    assert judge(wasted, NOW).most_new == 0
    later = NOW + 100
    assert judge(wasted, later).most_new == 1
    probe = pilot(9, PilotState.RUNNING, submitted_at=NOW + 90, has_joined=True, holding=1)
    assert judge([*wasted, probe], later).most_new is None


@pytest.mark.parametrize("why", ["no longer needed", "the grid is drained"])
def test_pilots_that_we_took_back_are_no_failures(why: str) -> None:
    found = judge([broken(n, cancelled=why) for n in range(5)], NOW)
    assert (found.most_new, found.failure_rate) == (None, 0.0)


def test_pilots_that_were_held_are_failures() -> None:
    pilots = [broken(n, cancelled=WHY_HELD, reason="JobHeldAdmin") for n in range(3)]
    found = judge(pilots, NOW)
    assert found.most_new == 0
    assert "JobHeldAdmin" in found.reason


def test_an_operator_who_resumes_a_grid_forgives_what_was() -> None:
    assert judge([broken(n) for n in range(5)], NOW, resumed_at=NOW - 1).most_new is None


def test_the_failure_rate_is_that_of_the_last_pilots() -> None:
    pilots = [broken(n, ago=1000) for n in range(50)]
    assert judge(pilots, NOW).failure_rate == 1.0
    pilots += [worked(100 + n, ago=10) for n in range(15)]
    assert judge(pilots, NOW).failure_rate == 0.25


def test_pilots_that_were_killed_in_their_first_job_had_something_to_do() -> None:
    assert judge([worked(n, jobs=0, has_held=True) for n in range(9)], NOW).most_new is None


def test_pilots_that_did_not_reach_the_server_say_nothing_of_their_node_or_grid() -> None:
    away = [broken(n, node=f"n{n % 2}", exit_code=SERVER_AWAY) for n in range(6)]
    idle_then = [worked(n, jobs=0, exit_code=SERVER_AWAY) for n in range(6, 9)]
    found = judge([*away, *idle_then, worked(9, node="n9")], NOW)
    assert (found.most_new, found.bad_nodes, found.failure_rate) == (None, (), 0.0)


def test_a_grid_from_which_no_pilot_reaches_the_server_is_paused_and_probed() -> None:
    away = [broken(n, ago=100, node=f"n{n}", exit_code=SERVER_AWAY) for n in range(3)]
    found = judge(away, NOW - 60)
    assert (found.most_new, found.bad_nodes) == (0, ())
    assert "paused for 20 s more: 3 pilots did not reach the server" in found.reason
    assert "URL" in found.reason and "firewall" in found.reason
    assert judge(away, NOW).most_new == 1
    probe = pilot(9, PilotState.RUNNING, submitted_at=NOW - 20, has_joined=True)
    assert judge([*away, probe], NOW).most_new is None


def failing(index: int, **changes: object) -> Pilot:
    """A pilot that runs, and on which every replica fails."""
    values = {"has_joined": True, "failures": 9, "error": "no such file", "node": f"n{index}"}
    return pilot(index, PilotState.RUNNING, **{**values, **changes})


def test_a_bot_that_fails_everywhere_pauses_neither_nodes_nor_the_grid() -> None:
    found = judge([failing(n) for n in range(5)], NOW, others=[failing(9, grid="other")])
    assert (found.most_new, found.bad_nodes, found.failure_rate) == (None, (), 0.0)
    assert found.reason == f"{EVERYWHERE}; the last one: no such file"


def test_a_grid_is_paused_when_the_same_owners_replicas_end_well_in_another() -> None:
    fine = worked(9, grid="other", owners=("ann", "bob"))
    found = judge([failing(n) for n in range(5)], NOW, others=[fine])
    assert found.most_new == 0
    assert found.failure_rate == 0.0  # none has ended
    assert "replicas fail on 5 pilots" in found.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"owners": ("bob",)},
        {"submitted_at": NOW - 900, "ended_at": NOW - 800},  # before
        {"failures": 90},
        {"grid": "g", "node": "n0"},  # the very place
    ],
)
def test_who_succeeds_for_others_or_at_another_time_blames_nobody(
    changes: dict[str, object],
) -> None:
    other = worked(9, 5.0, **{"grid": "other", **changes})
    assert judge([failing(0)], NOW, others=[other]).most_new is None
