"""What the paper's figures are judged by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripts.evaluation.experiments import EXPERIMENTS, Era
from scripts.evaluation.judging import verdicts
from scripts.evaluation.runs import BotRun, Run

from gridbot_policies import PolicySet


def run(figure: str, name: str, *bots: BotRun, seed: int = 1, era: Era = "now") -> Run:
    why_not = "" if all(bot.hours is not None for bot in bots) else "it did not end"
    return Run(figure, name, era, 1.0, seed, "", why_not, bots, 9.0, 1.0, 1.0, {"OSG": 7.0}, "")


def bot(hours: float | None, replicas: float = 0.0, waste: float = 0.0) -> BotRun:
    return BotRun(12, 0, hours, replicas, waste, [(12, 0.0), (6, 1.0), (0, hours or 9.0)])


def words(runs: list[Run], figure: str) -> dict[str, str]:
    return {item.what: item.word for item in verdicts(runs, "now") if item.figure == figure}


def figure_9(**hours: float) -> list[Run]:
    found = {"P1": 4.1, "P2": 3.2, "P3": 4.2, "P4": 5.1, "P5": 5.8} | hours
    parts = {"P1": (58, 30), "P2": (11, 7), "P3": (73, 57)}
    return [run("9", name, bot(at, *parts.get(name, (0, 0)))) for name, at in found.items()]


def test_the_papers_own_numbers_pass() -> None:
    assert set(words(figure_9(), "9").values()) == {"pass"}


def test_another_order_and_other_hours_fail() -> None:
    found = words(figure_9(P5=4.9), "9")
    assert (found["order of turnaround"], found["P5, hours"]) == ("fail", "pass")
    assert words(figure_9(P2=1.0), "9")["P2, hours"] == "fail"


def test_a_figure_with_a_run_that_is_missing_or_did_not_end_is_open() -> None:
    assert words(figure_9()[:-1], "9")["order of turnaround"] == "open"
    without_end = [*figure_9()[:-1], run("9", "P5", bot(None))]
    assert words(without_end, "9")["P5, hours"] == "open"


@pytest.mark.parametrize(("seeds", "word"), [(6, "pass"), (2, "open")])
def test_an_order_that_must_be_proven_needs_seeds(seeds: int, word: str) -> None:
    runs = [
        run("8", name, bot(hours + seed / 100 + place * seed / 1000), seed=seed)
        for seed in range(1, seeds + 1)
        for place, (name, hours) in enumerate({"B4": 1, "B1": 2, "B3": 3, "B2": 4}.items())
    ]
    assert words(runs, "8")["order of turnaround"] == word
    swap = {"B4": "B2", "B2": "B4", "B1": "B3", "B3": "B1"}
    swapped = [replace(item, name=swap[item.name]) for item in runs]
    assert words(swapped, "8")["order of turnaround"] == {"pass": "fail"}.get(word, word)


def test_ranks_are_not_judged_while_a_bot_of_them_has_no_end() -> None:
    ended = [
        BotRun(12, 0, 3.0 + n, 0.0, 0.0, [(12, 0.0), (10, 1.0 + n), (5, 2.0 + n), (0, 3.0 + n)])
        for n in range(50)
    ]
    few = [run("7", f"{bots} BOTs", *ended[:bots]) for bots in (1, 10, 20, 30, 40)]
    without_end = BotRun(12, 0, None, 0.0, 0.0, [(12, 0.0)])
    runs = [*few, run("7", "50 BOTs", *ended[1:], without_end)]
    assert {item.word for item in verdicts(runs, "now")} == {"open"}
    runs = [*few, run("7", "50 BOTs", *ended)]
    assert "open" not in {item.word for item in verdicts(runs, "now")}


def test_a_bot_of_a_queue_begins_when_1000_of_1200_jobs_are_left() -> None:
    left = [(1200, 0.0), (1190, 2.0), (1000, 3.0), (500, 4.0), (0, 7.0)]
    assert BotRun(1200, 0, 7.0, 0.0, 0.0, left).run_hours == 4.0
    assert BotRun(1200, 1, None, 0.0, 0.0, left[:2]).run_hours is None


def test_parts_of_the_throughput_are_compared_by_grid_and_volunteers_are_in_none() -> None:
    useful = {"": 47.0, "EGEE": 16.0, "Madison": 29.0, "OSG": 3.0, "Technion": 5.0}
    line = BotRun(3, 0, 360.0, 0.0, 0.0, [(3, 0.0), (2, 120.0), (1, 240.0), (0, 360.0)])
    found = words([replace(run("6", "2.2 M jobs", line), useful_cpu_hours=useful)], "6")
    assert found == {
        "days": "pass",
        "straight line, r²": "pass",
        "part of Madison, %": "fail",
        "part of OSG, %": "fail",
        "part of EGEE, %": "pass",
        "part of Technion, %": "pass",
        "part of Superlink@Technion, %": "pass",
    }


def test_a_naive_tail_has_steps_of_days() -> None:
    tail = [(3, 1.0), (2, 73.0), (1, 146.0), (0, 219.0)]
    naive = BotRun(12, 0, 219.0, 0.0, 0.0, [(12, 0.0), *tail])
    runs = [run("5", "naive", naive, era="2009"), run("5", "GridBot", bot(8.0))]
    assert words(runs, "5") == {
        "naive BOINC, hours": "open",
        "GridBot, hours": "pass",
        "naive by GridBot": "pass",
        "the naive tail waits for Deadlines": "pass",
    }


def test_each_policy_of_the_paper_has_a_deadline_and_a_concurrency() -> None:
    for item in EXPERIMENTS:
        found = item.scenario("now", 0.001, seed=1)
        for bot in found.submissions.values():
            policy = PolicySet.parse(bot.policy)
            assert policy.has_deadline
            assert policy.has_concurrency


def test_the_threshold_of_figure_10_follows_the_scale() -> None:
    late, early = [item for item in EXPERIMENTS if item.figure == "10"]
    found = [item.scenario("now", 0.01, 1).submissions[4].policy for item in (late, early)]
    assert ["JobsLeft < 20;" in found[0], "JobsLeft < 40;" in found[1]] == [True, True]
