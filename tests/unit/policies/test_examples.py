from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from gridbot_policies import Ads, PolicySet, examples
from gridbot_policies.classad import record
from gridbot_policies.lint.check import warnings

NAMES = examples.names()

GOOD: Mapping[str, object] = {"ErrorRate": 0.005, "JobsToday": 9, "RecentCpuTime": 5000.0}
POOR: Mapping[str, object] = {"ErrorRate": 0.3, "JobsToday": 0, "RecentCpuTime": 0.0}


def example(name: str) -> PolicySet:
    return PolicySet.parse(examples.text(name))


def asked(by: Mapping[str, object], *, tail: bool = True, left: int = 100, running: int = 0) -> Ads:
    host = {"Name": "is3.myhost", "NumCpus": 4, "Grid": "OSG", **by}
    bot = {"Tail": tail, "JobsLeft": left, "MeanTurnaround": 600.0, "JobsRunning": running}
    return Ads(host=record(host), bot=record(bot), queue=record({"BOTsInQueue": 1}))


def running(
    *replicas: tuple[float, Mapping[str, object]], tail: bool = True, left: int = 100
) -> Ads:
    """Return ads of a job with replicas of these ages (s) on such hosts; no host asks."""
    job: dict[str, object] = {
        "Name": "job1",
        "NumberOfReplicas": len(replicas),
        "Age": max(age for age, _ in replicas),
    }
    for number, (age, host) in enumerate(replicas, 1):
        job[f"Replica{number}"] = {"Age": age, "Host": {"Name": f"h{number}", **host}}
    bot = record({"Tail": tail, "JobsLeft": left, "MeanTurnaround": 600.0})
    return Ads(host=record({}), bot=bot, queue=record({"BOTsInQueue": 1}), job=record(job))


VOLUNTEER: Mapping[str, object] = {**GOOD, "Grid": None}
ELSEWHERE: Mapping[str, object] = {**GOOD, "Grid": "other"}

# For each example, a host and a state of the BOT that it accepts, and one that it refuses;
# None where it accepts every host.
REQUIREMENTS: dict[str, tuple[Ads, Ads | None]] = {
    "data-first": (asked(POOR), None),
    "io-community": (
        asked({**GOOD, "CachedMB": 5.0}, tail=False, running=9),
        asked({**GOOD, "CachedMB": 0.0}, tail=False, running=2),
    ),
    "io-community-grid": (
        asked({**GOOD, "Grid": "cluster", "CachedMB": 0.0}, tail=False),
        asked({**GOOD, "Grid": "other", "CachedMB": 0.0}, tail=False),
    ),
    "throughput": (asked(POOR), None),
    "reliable-tail": (asked(POOR, tail=False), asked(POOR)),
    "figure3": (asked(GOOD), asked({**GOOD, "Name": "pc7.other.org"})),
    "b1": (asked(POOR), asked(VOLUNTEER)),
    "b2": (asked(POOR), asked(ELSEWHERE)),
    "b3": (asked(POOR), asked(VOLUNTEER)),
    "b4": (asked(GOOD), asked(POOR)),
    "p1": (asked(POOR), None),
    "p2": (asked(GOOD), asked(POOR)),
    "p3": (asked(POOR, tail=False), asked(POOR)),
    "p4": (asked(GOOD), asked({})),  # a host without a history
    "p5": (asked(POOR), None),
    "r1": (asked(VOLUNTEER), None),
    "r2": (asked(VOLUNTEER, tail=False), asked(VOLUNTEER)),
    "r3": (asked(POOR), asked(VOLUNTEER)),
    "r4": (asked(VOLUNTEER, left=2000), asked(VOLUNTEER, left=1999)),
}

# For each example, a running job that gets another replica, and one that does not; None
# where no job does.
FIVE: list[tuple[float, Mapping[str, object]]] = [(60.0, GOOD)] * 5
REPLICATION: dict[str, tuple[Ads | None, Ads]] = {
    "data-first": (running((1801, GOOD)), running((1799, GOOD))),
    "io-community": (running((1801, GOOD)), running((1799, GOOD))),
    "io-community-grid": (running((1801, GOOD)), running((1799, GOOD))),
    "throughput": (running((1801, GOOD)), running((1801, GOOD), tail=False)),
    "reliable-tail": (running((1201, GOOD), (60, GOOD)), running((1199, GOOD))),
    "figure3": (running((60, POOR), (60, GOOD)), running((60, GOOD), (60, POOR))),
    "b1": (running((1001, GOOD)), running((5000, GOOD), (999, GOOD))),
    "b2": (running((5001, GOOD)), running((4999, GOOD))),
    "b3": (running((1001, POOR)), running((1001, GOOD))),
    "b4": (running((1001, GOOD), (1002, GOOD)), running((999, GOOD))),
    "p1": (running(*FIVE[:4]), running(*FIVE)),
    "p2": (running((60, GOOD), (60, POOR)), running((1800, GOOD))),
    "p3": (running(*FIVE[:4]), running(*FIVE)),
    "p4": (None, running((9999, POOR))),
    "p5": (None, running((9999, POOR))),
    "r1": (running(*FIVE[:4]), running(*FIVE)),
    "r2": (running(*FIVE[:4]), running(*FIVE)),
    "r3": (running((901, GOOD), (902, POOR)), running((899, POOR), (902, POOR))),
    "r4": (running((60, GOOD), left=1999), running((60, GOOD), left=2000)),
}


def test_every_example_is_tried_below() -> None:
    assert sorted(REQUIREMENTS) == sorted(REPLICATION) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_names_only_what_is_published(name: str) -> None:
    assert warnings(example(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_accepts_and_refuses_hosts(name: str) -> None:
    accepted, refused = REQUIREMENTS[name]
    assert example(name).requirements(accepted) is True
    if refused is not None:
        assert example(name).requirements(refused) is False


@pytest.mark.parametrize("name", NAMES)
def test_an_example_replicates_some_jobs_and_not_others(name: str) -> None:
    wanted, unwanted = REPLICATION[name]
    if wanted is not None:
        assert example(name).wants_replica(wanted) is True
    assert example(name).wants_replica(unwanted) is False


def test_the_restrictive_replication_looks_at_each_of_its_three_signs() -> None:
    p2 = example("p2")
    assert p2.wants_replica(running((1801, GOOD))) is True
    assert p2.wants_replica(running((60, {**GOOD, "ErrorRate": 0.02}))) is True
    assert p2.wants_replica(running((60, {**GOOD, "JobsToday": 0}))) is True
    assert p2.wants_replica(running(*[(1801.0, POOR)] * 4, (60, GOOD))) is False


Number = Callable[[PolicySet, Ads], float]


@pytest.mark.parametrize(
    ("name", "number", "ads", "expected"),
    [
        ("figure3", PolicySet.rank, asked(GOOD), 9.0),
        ("figure3", PolicySet.rank, asked(GOOD, tail=False), 1.0),
        ("figure3", PolicySet.concurrency, asked(GOOD), 8),
        ("figure3", PolicySet.deadline, asked(GOOD), 16_000.0),
        ("data-first", PolicySet.rank, asked({**GOOD, "CachedMB": 12.5}), 12.5),
        ("throughput", PolicySet.concurrency, asked(GOOD), 20),
        ("throughput", PolicySet.deadline, asked(GOOD), 259_200.0),
        ("reliable-tail", PolicySet.rank, asked(GOOD), 0.995),
        ("reliable-tail", PolicySet.rank, asked(GOOD, tail=False), 0.0),
        ("reliable-tail", PolicySet.concurrency, asked(GOOD), 4),
        ("reliable-tail", PolicySet.concurrency, asked(GOOD, tail=False), 8),
        ("b1", PolicySet.concurrency, asked(GOOD), 1),
        ("b2", PolicySet.concurrency, asked(POOR), 5),
        ("b3", PolicySet.concurrency, asked(GOOD), 5),
        ("b3", PolicySet.concurrency, asked(POOR), 1),
        ("b4", PolicySet.concurrency, asked(GOOD), 1),
        ("p1", PolicySet.deadline, asked(GOOD), 86_400.0),
        ("r4", PolicySet.deadline, asked(GOOD), 259_200.0),
    ],
)
def test_an_example_gives_its_numbers(name: str, number: Number, ads: Ads, expected: float) -> None:
    assert number(example(name), ads) == expected


def test_the_bots_of_figure_10_come_in_the_order_of_their_names() -> None:
    ranks = [example(name).rank(asked(GOOD)) for name in ("r1", "r2", "r3", "r4")]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 4


def test_no_example_makes_dispatch_look_at_replicas() -> None:
    assert not any(example(name).looks_at_replicas for name in NAMES)
