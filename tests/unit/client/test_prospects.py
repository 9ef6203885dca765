"""Claims about what `gridbot client status` makes of what a server says."""

from __future__ import annotations

from typing import Any

import pytest

from gridbot_client.standing import Prospects


def document(*reasons: tuple[str, str, int], waiting: int | None = None) -> dict[str, Any]:
    return {
        "bots_waiting": sum(bots for *_, bots in reasons) if waiting is None else waiting,
        "reasons": [{"reason": r, "text": t, "bots": n} for r, t, n in reasons],
        "jobs_today": 3,
        "credit": 12.5,
    }


def idle(*reasons: tuple[str, str, int], waiting: int | None = None) -> str:
    found = Prospects.read(document(*reasons, waiting=waiting))
    assert found is not None
    return found.idle()


def test_an_empty_server_is_told_from_one_whose_bots_do_not_suit() -> None:
    assert idle() == "idle: the server has no unsent jobs"
    assert idle(("memory", "needs 9000 MB memory", 1)).startswith("idle: 1 BOT waits, and none")


def test_each_reason_comes_with_its_count_and_what_to_do() -> None:
    said = idle(("trust", "nobody has signed it", 2), ("memory", "needs 9000 MB memory", 1))
    assert said == (
        "idle: 3 BOTs wait, and none suits: 2: nobody has signed it (to run those of a person whom"
        " you know: gridbot client trust FINGERPRINT); 1: needs 9000 MB memory (if it has more to"
        " lend: gridbot client run --memory SIZE)"
    )


def test_work_that_may_come_is_no_reason_to_do_anything() -> None:
    said = idle(("trust", "nobody has signed it", 2), ("free", "wait", 1))
    assert said == "idle: 3 BOTs wait to be sent, and the next request may bring some"
    assert "after the first request" in idle(waiting=2)


def test_a_reason_that_a_newer_server_gives_is_told_in_its_words() -> None:
    assert idle(("phase", "needs a full moon", 1)).endswith("1: needs a full moon")


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {**document(), "reasons": "many"},
        {**document(), "reasons": [7]},
        {**document(), "bots_waiting": "many"},
        {**document(), "bots_waiting": True},
        {**document(), "credit": -1},
        {**document(), "jobs_today": float("nan")},
        {**document(), "credit": float("inf")},
        {**document(), "reasons": [{"reason": "trust", "text": None, "bots": 1}]},
        {**document(), "reasons": [{"reason": "trust", "text": "x", "bots": 2**60}]},
    ],
)
def test_what_is_no_such_document_is_not_shown(said: object) -> None:
    assert Prospects.read(said) is None


def test_a_hostile_server_fills_no_screen() -> None:
    found = Prospects.read(document(*[("x" * 10_000, "y" * 10_000, 1)] * 500))
    assert found is not None
    assert len(found.reasons) == 20
    assert len(found.idle()) < 20 * 300
