"""What becomes of a gang: all outcomes, or all begin anew."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gridbot_server.cycles.gangs import decide_gang
from gridbot_server.cycles.job import Ended, Job, Rules
from gridbot_server.storage.rows import JobId

RULES = Rules(quorum=1, max_attempts=2, together=3)
NOW = datetime(2026, 11, 25, tzinfo=UTC)


def ended(replica: int, how: str, digest: bytes = b"a") -> Ended:
    return Ended(replica, 0, how, "", digest if how == "success" else None, None, NOW, 1)


def gang(*jobs: Job) -> dict[JobId, Job]:
    return {JobId(1, seq): job for seq, job in enumerate(jobs)}


def answered() -> Job:
    return Job(ended=[ended(1, "success")])


def test_a_gang_has_its_outcomes_when_all_have_answered() -> None:
    made = decide_gang(gang(answered(), answered(), answered()), RULES)
    assert [item.canonical for item in made.values()] == [1, 1, 1]
    assert not any(item.begins_anew for item in made.values())


@pytest.mark.parametrize("other", [Job(leased=[1]), Job(queued=[2]), Job()])
def test_an_answer_waits_for_members_that_run_or_are_to_come(other: Job) -> None:
    made = decide_gang(gang(answered(), other, Job(leased=[1])), RULES)
    assert not any(item.finishes or item.begins_anew or item.copies for item in made.values())


@pytest.mark.parametrize(
    "lost",
    [
        Job(ended=[ended(1, "error")]),
        Job(ended=[ended(1, "expired")]),
        Job(ended=[ended(1, "cancelled")]),
        Job(leased=[1], silent=[1]),
    ],
)
def test_all_that_were_sent_begin_anew_when_one_is_lost(lost: Job) -> None:
    made = decide_gang(gang(answered(), lost, Job()), RULES)
    assert all(item.begins_anew and not item.finishes for item in made.values())
    assert [item.copies for item in made.values()] == [1, 1, 0]


def test_a_late_answer_of_an_earlier_attempt_does_not_count() -> None:
    late = Job(leased=[2], ended=[ended(1, "success")])
    again = Job(ended=[ended(1, "cancelled"), ended(2, "success")])
    made = decide_gang(gang(late, again, again), RULES)
    assert not any(item.finishes for item in made.values())


def test_a_gang_fails_whole_when_a_member_has_failed_too_often() -> None:
    failed = Job(ended=[ended(1, "error"), ended(2, "error")])
    made = decide_gang(gang(Job(), failed, Job(leased=[2])), RULES)
    told = [item.failure for item in made.values()]
    assert told[1] == "2 attempts failed, the last one: error"
    assert told[0] == told[2] == f"job 1 of its gang: {told[1]}"
    assert not any(item.copies for item in made.values())
