"""Claims about simulated BOTs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gridbot_policies import examples
from gridbot_simulator.estimate import Asked, estimate, simulate

NO_COPIES = "ReplicationRequirements = false;"
SMALL: dict[str, Any] = {
    "jobs": 120,
    "seconds": (300.0, 400.0),
    "hosts": [("collaborative", 25), ("campus", 10)],
    "seeds": 2,
}


def one(policy: str = "", **changes: Any) -> dict[str, Any]:
    found = estimate({**SMALL, "seeds": 1, **changes}, {"policy": policy})
    run: dict[str, Any] = found["policies"][0]["runs"][0]
    return run


def test_each_job_of_a_bot_has_an_answer_at_its_end() -> None:
    run = one(examples.text("p2"))
    assert (run["has_ended"], run["done"], run["failed"]) == (True, 120, 0)
    least = 120 / 35 * 300 / 3  # no host is three times as fast as a usual one
    assert run["makespan_seconds"] > least
    assert run["cpu_hours"] > 120 * 300 / 3600 / 3


def test_a_policy_without_replication_has_no_speculative_replicas() -> None:
    assert one(NO_COPIES)["replicas_percent"] == 0.0
    assert one(examples.text("p1"))["replicas_percent"] > 0.0


def test_what_vanishes_with_its_host_is_computed_again() -> None:
    run = one(NO_COPIES, hosts=[("campus", 20)], seconds=(3600.0, 7200.0), jobs=40)
    assert run["done"] == 40
    assert run["resent_percent"] > 0.0
    assert run["lost_cpu_hours"] > 0.0


def test_machines_that_go_and_come_continue_their_work() -> None:
    run = one(NO_COPIES, hosts=[("volunteers", 12)], seconds=(10_800.0, 14_400.0), jobs=48)
    assert (run["done"], run["lost_cpu_hours"]) == (48, 0.0)


def test_a_policy_that_no_host_meets_is_told_after_a_day() -> None:
    run = one("JobRequirements = Host.Memory > 1000000;", jobs=2, hosts=[("collaborative", 1)])
    assert (run["has_ended"], run["makespan_seconds"]) == (False, None)
    assert run["why_not"] == "no host had a replica for a day: none meets the policy"


def test_what_a_host_sees_of_the_past_decides_under_a_policy_of_error_rates() -> None:
    strict = "JobRequirements = Host.ErrorRate < 0.05;"
    known, new = (one(strict, are_known=known, jobs=20) for known in (True, False))
    assert known["has_ended"] and not new["has_ended"]


def test_policies_meet_the_same_hosts_jobs_and_failures() -> None:
    asked = Asked(**SMALL)  # with one BOT, Rank changes nothing
    one, other = (simulate(asked, text, 1) for text in (NO_COPIES, NO_COPIES + "Rank = 1;"))
    assert (one.decisions, one.ended_at, one.spent) == (
        other.decisions,
        other.ended_at,
        other.spent,
    )
    assert simulate(asked, NO_COPIES, 2).decisions != one.decisions


def test_the_clock_jumps_over_times_in_which_nothing_is_due() -> None:
    # Four jobs of most of a day: each takes 3,000 steps of 20 s.
    ran = simulate(Asked(4, (60_000.0, 80_000.0), [("volunteers", 4)], 1), NO_COPIES, 1)
    assert ran.ended_at - ran.begins_at > 60_000
    assert ran.steps < 200


def test_a_bot_whose_only_host_is_away_with_a_job_for_more_than_a_day_is_waited_for() -> None:
    patient = NO_COPIES + "Deadline = 30 * 86400;"
    asked = Asked(3, (20_000.0, 40_000.0), [("volunteers", 1)], 1)
    for seed in (11, 63, 117):
        assert simulate(asked, patient, seed).why_not == ""


def test_a_host_that_stays_is_not_silent_however_long_its_jobs_are() -> None:
    silent = "ReplicationRequirements = Job.Replica1.SilentSeconds > 300;"
    run = one(silent, jobs=4, hosts=[("collaborative", 6)], seconds=(3000.0, 3600.0))
    assert (run["done"], run["resent_percent"]) == (4, 0.0)  # no host went
    assert run["replicas_percent"] == 0.0


def test_a_lookout_for_ages_takes_steps_that_grow_with_them() -> None:
    aged = "ReplicationRequirements = Job.Age > 864000;"
    ran = simulate(Asked(1, (80_000.0, 80_000.0), [("collaborative", 1)], 1), aged, 1)
    assert ran.steps < (ran.ended_at - ran.begins_at) / 20 / 5  # a fifth of steps of 20 s


def test_hosts_of_an_unknown_kind_are_refused_with_the_kinds_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"no hosts of the kind 'moon', only campus, collab"):
        one(hosts=[("moon", 3)])


# ------------------------------------------------------------------------------ the command


def command(file: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gridbot", "policy", "simulate", str(file), *options],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


OPTIONS = ("--jobs", "60", "--time", "5m..6m", "--hosts", "collaborative:12,volunteers:5")


@pytest.fixture
def tail(tmp_path: Path) -> Path:
    file = tmp_path / "tail.ad"
    file.write_text(examples.text("p2"), encoding="utf-8")
    return file


def test_the_same_seeds_give_the_same_bytes_in_each_process(tail: Path) -> None:
    found = [
        command(tail, *OPTIONS, "--seeds", "2", "--json", PYTHONHASHSEED=hash_seed, TZ=zone)
        for hash_seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert [each.returncode for each in found] == [0, 0], found[0].stderr
    assert found[0].stdout == found[1].stdout
    document = json.loads(found[0].stdout)
    first, second = document["policies"][0]["runs"]
    assert first["decisions"] != second["decisions"]
    assert document["policies"][0]["figures"]["makespan_seconds"]["median"] > 300


def test_people_see_the_median_and_the_range_of_each_figure(tail: Path) -> None:
    found = command(tail, *OPTIONS, "--seeds", "2")
    assert found.returncode == 0, found.stderr
    assert "60 jobs of 5 min 0 s to 6 min 0 s on 12 collaborative and 5 volunteers" in found.stdout
    for word in ("makespan", "tail phase", "speculative replicas", "CPU time", "discarded"):
        assert word in found.stdout
    assert "seed 2 of 2" in found.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--jobs", "0"), "--jobs"),
        (("--time", "9m..5m"), "9m..5m: times go from the lesser to the greater"),
        (("--time", "soon"), "'soon' is not a duration"),
        (("--hosts", "campus"), "'campus' is not a kind with a number"),
        (("--hosts", "campus:0"), "campus:0: between 1 and"),
        (("--hosts", "moon:3"), "there are no hosts of the kind 'moon', only campus"),
    ],
)
def test_what_cannot_be_simulated_is_told_with_its_value(
    tail: Path, options: tuple[str, ...], told: str
) -> None:
    found = command(tail, *OPTIONS, *options)
    assert found.returncode == 2
    assert told in found.stderr
    assert found.stdout == ""


def test_a_policy_with_an_error_is_shown_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "bad.ad"
    file.write_text("Rank = 1 +;", encoding="utf-8")
    found = command(file, *OPTIONS)
    assert found.returncode == 2
    assert "bad.ad" in found.stderr and "^" in found.stderr
