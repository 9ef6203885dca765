from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gridbot.api.state import BotState, bot_state
from gridbot.show.explanation import idle_reason
from gridbot.show.progress import IDLE_SECONDS, PLAIN_SECONDS, changes, standing_still


def state(running: int = 0, **changes: Any) -> BotState:
    counts = {"jobs_total": 9, "jobs_done": 0, "jobs_failed": 0, "jobs_running": running}
    document: Any = {
        "id": 7, "name": "scan", "owner": "alice", "state": "running", **counts, **changes,
    }  # fmt: skip
    return bot_state(document)


def told(states: list[tuple[float, BotState]]) -> list[float]:
    """When somebody is told, for states that come at these seconds."""
    now = [0.0]
    heard: list[float] = []

    def coming() -> Iterator[BotState]:
        for now[0], item in states:
            yield item

    passed = list(standing_still(coming(), lambda _: heard.append(now[0]), lambda: now[0]))
    assert passed == [item for _, item in states]
    return heard


def test_a_bot_that_stands_still_is_told_once() -> None:
    late = IDLE_SECONDS
    assert told([(0, state()), (late - 1, state()), (late, state()), (2 * late, state())]) == [late]


def test_it_is_told_again_when_something_has_run_meanwhile() -> None:
    late = IDLE_SECONDS
    moments = [(late, state()), (late + 1, state(1)), (late + 2, state()), (3 * late, state())]
    assert told(moments) == [late, 3 * late]


@pytest.mark.parametrize("item", [state(1), state(state="done"), state(state="cancelled")])
def test_nothing_is_told_of_a_bot_that_runs_or_has_ended(item: BotState) -> None:
    assert told([(0, item), (5 * IDLE_SECONDS, item)]) == []


def shown(states: list[tuple[float, BotState]]) -> list[float]:
    """Seconds at which a line is printed without a terminal, for states at these seconds."""
    now = [0.0]
    heard: list[float] = []

    def coming() -> Iterator[BotState]:
        for now[0], item in states:
            yield item

    passed = list(changes(coming(), lambda _: heard.append(now[0]), lambda: now[0]))
    assert passed == [item for _, item in states]
    return heard


def test_an_unchanged_state_is_printed_once() -> None:
    moments = [0, 10 * PLAIN_SECONDS, 20 * PLAIN_SECONDS]
    assert shown([(moment, state(1)) for moment in moments]) == [0]


def test_a_new_rate_alone_is_not_printed() -> None:
    slower = state(1, jobs_per_second=0.1, eta_seconds=60)
    assert shown([(0, state(1, jobs_per_second=0.2)), (2 * PLAIN_SECONDS, slower)]) == [0]


def test_a_change_is_printed_once_the_line_before_is_old_enough() -> None:
    early, late = PLAIN_SECONDS / 2, PLAIN_SECONDS
    assert shown([(0, state()), (early, state(1)), (late, state(1))]) == [0, late]


def test_the_end_is_printed_at_once() -> None:
    assert shown([(0, state()), (1, state(state="done"))]) == [0, 1]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"state": "open"}, "its submission is not complete"),
        (
            {"match": {"hosts_known": 2, "hosts_matching": 0, "reason": "too small (2 hosts)"}},
            "no known host can run it now: too small (2 hosts);"
            " for the reasons: gridbot bot explain 7",
        ),
        (
            {"match": {"hosts_known": 0, "hosts_matching": 0, "reason": "no client has asked"}},
            "no known host can run it now: no client has asked",
        ),
        (
            {"match": {"hosts_known": 3, "hosts_matching": 1, "reason": ""}},
            "1 of 3 known hosts can run it; waiting for one of them to ask for work;"
            " for details: gridbot bot explain 7",
        ),
        (
            {"match": {"hosts_known": 3, "hosts_matching": 1}, "replicas": {"made": 2}},
            "no job is done after 2 replicas, and hosts back off when replicas fail;"
            " for the reasons: gridbot bot logs 7",
        ),
        (
            {
                "match": {"hosts_known": 3, "hosts_matching": 1},
                "replicas": {"made": 2},
                "jobs_done": 1,
            },
            "1 of 3 known hosts can run it; waiting for one of them to ask for work;"
            " for details: gridbot bot explain 7",
        ),
    ],
)
def test_the_reason_is_the_one_that_the_page_of_the_bot_gives(
    changed: dict[str, Any], reason: str
) -> None:
    assert idle_reason(state(**changed)) == reason
