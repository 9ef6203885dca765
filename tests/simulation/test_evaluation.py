"""Claims about the evaluation of the paper."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from scripts.evaluation.grids import COLLABORATIVE, COMMUNITY, CPUS_AT_WORK, GRIDS, hosts

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
