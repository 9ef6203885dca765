"""Claims about the evaluation of the paper."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner
from scripts.evaluation.cli import paper
from scripts.evaluation.grids import COLLABORATIVE, COMMUNITY, CPUS_AT_WORK, GRIDS, hosts

from gridbot_policies import examples
from gridbot_simulator.world.chance import stream
from gridbot_simulator.world.jobs import Workload
from gridbot_simulator.world.simulation import Ran, Scenario, SimulatedBot, Simulation

SHARES = {"Madison": 0.20, "OSG": 0.10, "EGEE": 0.16, "Technion": 0.05, COMMUNITY: 0.47}


def test_as_many_hosts_of_a_grid_work_as_its_part_of_the_throughput_asks_for() -> None:
    at_work: defaultdict[str, float] = defaultdict(float)
    for grid in GRIDS:
        at_work[grid.name] += grid.cpus_at_work / CPUS_AT_WORK
    assert dict(at_work) == pytest.approx(SHARES, abs=0.015)


@pytest.mark.parametrize("name", SHARES)
def test_as_many_hosts_of_a_grid_are_there_as_it_takes_when_a_simulation_begins(name: str) -> None:
    chance = random.Random(7)
    there = 0.0
    for host in hosts([name], scale=1.0, seed=7):
        is_up, _ = host.model.begin(chance)
        there += is_up * host.model.cpus * host.model.mean_part
    assert there == pytest.approx(SHARES[name] * CPUS_AT_WORK, rel=0.25)


def test_a_host_is_the_same_whichever_grids_are_drawn() -> None:
    alone = [(host.name, host.traits) for host in hosts(["EGEE"], 0.1, seed=3)]
    among = [(host.name, host.traits) for host in hosts(COLLABORATIVE, 0.1, seed=3)]
    assert alone and set(alone) <= set(among)


# -------------------------------------------------------------------------------- simulations


def simulate(
    policy: str, *others: str, hours: float = 0.2, aborts: bool = True, finds_silent: bool = True
) -> Ran:
    low, high = 3000 * hours, 4500 * hours
    first, *further = (
        SimulatedBot(text, Workload.between(60, low, high, stream(1, "jobs", bot)))
        for bot, text in enumerate((policy, *others))
    )
    return Simulation(
        Scenario(
            first.policy, first.workload, hosts(["Madison"], 0.02, seed=1), seed=1,
            further=further, answers_today=1, aborts=aborts, finds_silent=finds_silent,
        )
    ).run()  # fmt: skip


def test_of_bots_that_are_queued_together_the_one_with_the_higher_rank_ends_first() -> None:
    ran = simulate("Rank = 1;", "Rank = 3;", "Rank = 2;")
    assert [item.bot.done for item in ran.courses] == [60, 60, 60]
    last, first, middle = (item.bot.ended_at or 0.0 for item in ran.courses)
    assert first < middle < last == ran.ended_at


def test_jobs_left_become_fewer_until_none_is() -> None:
    (item,) = simulate("").courses
    assert (item.left[0], item.left[-1][1]) == ((0.0, 60), 0)
    assert [*item.left] == sorted(item.left, key=lambda point: (point[0], -point[1]))
    assert len({jobs for _, jobs in item.left}) == len(item.left)


def test_without_aborts_copies_run_on_and_their_answers_are_discarded() -> None:
    now, then = (simulate(examples.text("p1"), aborts=aborts) for aborts in (True, False))
    assert now.spent.aborted > 0.0
    assert then.spent.aborted == 0.0
    discarded = [ran.courses[0].answers - ran.bot.done for ran in (now, then)]
    assert discarded[1] > discarded[0]


def test_where_silent_hosts_are_not_found_deadlines_bring_back_what_they_had() -> None:
    policy = "Deadline = 86400; ReplicationRequirements = false;"
    now, then = (simulate(policy, hours=3, finds_silent=found) for found in (True, False))
    assert now.bot.counts["sent_silent"] > 0
    assert then.bot.counts["sent_silent"] == 0
    assert then.bot.counts["sent_expired"] > 0
    assert (now.bot.done, then.bot.done) == (60, 60)


def test_the_cpu_time_of_answers_that_count_is_told_by_grid() -> None:
    ran = simulate("")
    assert set(ran.useful_by_grid) == {"Madison"}
    assert 0 < ran.useful <= ran.spent.reported


# ------------------------------------------------------------------------------------- script


def figures(out: Path) -> str:
    asked = ["figures", "--figure", "5", "--figure", "8", "--scale", "0.01", "--seeds", "1"]
    found = CliRunner().invoke(paper, [*asked, "--out", str(out)])
    assert found.exit_code in (0, 1), found.output  # 1: a claim of the paper fails
    return found.stderr


def test_the_same_seed_gives_the_same_bytes_and_what_was_simulated_is_kept(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert "Figure 5, naive, 2009: seed 1 of 1" in figures(one)
    figures(other)
    names = sorted(path.name for path in one.iterdir())
    assert {"runs.jsonl", "table.md", "figure8-now.png", "figure5-2009.png"} <= set(names)
    for name in ("runs.jsonl", "table.md"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    kept = (one / "runs.jsonl").read_bytes()
    (one / "runs.jsonl").write_bytes(kept[:-9])  # its process was killed as it wrote
    again = figures(one)
    assert again.count("seed 1 of 1") == 1
    assert (one / "runs.jsonl").read_bytes() == kept
