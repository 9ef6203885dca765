"""The overlay's trials: slots over time, and the verdicts on what they claim."""

from pathlib import Path

import pytest
from scripts.overlay_trial import claims, picture
from scripts.overlay_trial.many_grids import Share
from scripts.overlay_trial.measure import Outcome
from scripts.overlay_trial.place import RunFailed
from scripts.overlay_trial.scenarios import Scenario
from scripts.overlay_trial.slots import Life, at, curve, most, reached
from scripts.overlay_trial.urgent import Responses

LIVES = [Life(1.0, 4.0), Life(2.0, 3.0), Life(3.0, 5.0)]


def test_a_slot_that_is_passed_on_at_once_is_one_slot() -> None:
    found = curve(LIVES)
    assert most(found) == 2
    assert [at(found, moment) for moment in (0.5, 1.0, 2.5, 3.0, 4.5, 9.0)] == [0, 1, 2, 2, 1, 0]
    assert (reached(found, 2), reached(found, 3)) == (2.0, None)
    assert most(curve([])) == 0


def an_outcome(**fields: object) -> Outcome:
    usual = dict(
        scenario="kill", jobs=400, job_seconds=1.0, makespan_seconds=60.0, first_result_seconds=5.0,
        leaving_seconds=9.0, pilots=8, most_pilots=8, submissions=2, pilot_hours=0.125,
        ideal_hours=0.1, burnt=0, lost=0, twice=0, faults=(),
    )  # fmt: skip
    return Outcome(**{**usual, **fields})  # type: ignore[arg-type]


SCENARIO = Scenario("all is killed", most_burnt=0.01, most_twice=0, most_hours=1.25)


@pytest.mark.parametrize(
    ("fields", "missed"),
    [
        ({}, set()),
        (
            {"faults": ("a pilot stays",)},
            {"all is killed: all answers right, invariants hold, no pilot stays"},
        ),
        ({"pilot_hours": 0.13}, {"pilot-hours ÷ the jobs' own"}),
        ({"burnt": 4}, {"jobs that failed"}),
        ({"twice": 1}, {"jobs that were done more than once"}),
    ],
)
def test_each_claim_of_a_scenario_can_be_missed(
    fields: dict[str, object], missed: set[str]
) -> None:
    made = list(claims.of_outcome(an_outcome(**fields), SCENARIO))
    assert {claim.claim for claim in made if not claim.is_met} == missed
    assert len(made) == 4


def test_a_scenario_without_limits_has_figures_and_no_verdict_on_them() -> None:
    fault, hours = claims.of_outcome(an_outcome(), Scenario("nothing"))
    assert fault.is_met
    assert (hours.goal, hours.measured, hours.is_met) == ("", "1.25", None)


def test_a_scenario_that_breaks_down_misses_its_claim_in_its_own_words() -> None:
    claim = claims.of_breakdown("gram", SCENARIO, RunFailed("gram does not start"))
    assert (claim.measured, claim.is_met) == ("gram does not start", False)


def test_a_grid_without_jobs_and_an_excluded_one_with_jobs_miss_the_claim() -> None:
    def claimed(slurm: int, local: int) -> bool | None:
        jobs = {"slurm": slurm, "local": local}
        shares = [
            Share(scenario="x", grid=grid, is_excluded=grid == "slurm", pilots=1, jobs=number)
            for grid, number in jobs.items()
        ]
        return claims.of_shares("x", shares).is_met

    assert [claimed(0, 5), claimed(1, 5), claimed(0, 0)] == [True, False, False]


def test_an_urgent_bot_that_waits_too_long_misses_its_claim() -> None:
    found = Responses(first_pilot=1.9, grown=9.0, first_urgent=6.1, last_urgent=9.0, shrunk=8.0)
    verdicts = [claim.is_met for claim in claims.of_responses(found)]
    assert verdicts == [True, None, False, None, None]


def test_the_plot_of_slots_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out" / "slots.png"
    jobs = {"broad": LIVES, "urgent": [Life(2.0, 2.5)]}
    picture.draw(path, jobs, LIVES, {"broad": 0.5, "urgent": 1.5}, slots=4)
    assert path.read_bytes().startswith(b"\x89PNG")
