"""What a BOT and its result say of a job of ARC."""

from __future__ import annotations

from typing import Any

import pytest

from gridbot.api.results import Result
from gridbot.api.state import bot_state
from gridbot.gatekeeper.states import ArcState, end_of, of_bot


@pytest.mark.parametrize(
    ("state", "running", "shown"),
    [
        ("running", 0, ArcState.QUEUING),
        ("running", 1, ArcState.RUNNING),
        ("open", 0, ArcState.QUEUING),
        ("held", 0, ArcState.HELD),
        ("held", 1, ArcState.RUNNING),
    ],
)
def test_a_job_is_where_its_bot_is(state: Any, running: int, shown: ArcState) -> None:
    document: Any = {
        "id": 1, "name": "", "owner": "", "state": state, "jobs_total": 1, "jobs_done": 0,
        "jobs_failed": 0, "jobs_running": running,
    }  # fmt: skip
    assert of_bot(bot_state(document)) is shown


@pytest.mark.parametrize(
    ("state", "exit_code", "is_killed", "end", "reason"),
    [
        ("done", 0, False, ArcState.FINISHED, ""),
        ("done", 0, True, ArcState.FINISHED, ""),
        ("done", 3, False, ArcState.FAILED, "the program exited with 3"),
        ("failed", None, False, ArcState.FAILED, "missing_output"),
        ("failed", None, True, ArcState.KILLED, "killed by its owner"),
    ],
)
def test_a_job_ends_as_its_result_says(
    state: str, exit_code: int | None, is_killed: bool, end: ArcState, reason: str
) -> None:
    result = Result(
        n=1, seq=0, args={}, state=state, replica=0, exit_code=exit_code, reason="missing_output",
        host="", cpu_seconds=1.6, wall_seconds=2.4, outputs={},
    )  # fmt: skip
    found = end_of(result, is_killed=is_killed)
    assert (found.state, found.reason, found.exit_code) == (end, reason, exit_code)
    assert (found.cpu_seconds, found.wall_seconds) == (2, 2)
