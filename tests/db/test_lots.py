"""Checks of strangers' answers go to the crews that are drawn for them."""

from __future__ import annotations

import itertools

import pytest
from tests.db.dispatching import Caller, Dispatch, caller
from tests.db.test_assurance import (
    assured,
    hosts_and_crews,
    outcomes,
    strangers,
    trust,
    unchecked,
    work,
)

from gridbot_server.buffer.layout import Slot
from gridbot_server.matching import lots
from gridbot_server.matching.track_record import SEASON
from gridbot_server.storage.db import Connection

__all__ = ["unchecked"]  # a fixture

MANY = 2 * lots.FEW


def known(dispatch: Dispatch, conn: Connection, count: int) -> list[Caller]:
    """Hosts of so many owners, that have been there for a while."""
    callers = strangers(dispatch, count)
    for one in callers:
        one.ask(want=0)
    conn.execute("UPDATE client SET created_at = now() - interval '1 hour'")
    return callers


def waiting(dispatch: Dispatch) -> Slot:
    """The only copy in the buffer."""
    (slot,) = [slot for slot in dispatch.buffer.contents() if slot.detail]
    return slot


def later(dispatch: Dispatch, seconds: int) -> None:
    dispatch._now = itertools.count(next(dispatch._now) + seconds)
    dispatch.feed()


def test_a_check_goes_to_the_crew_that_is_drawn_whoever_asks_first(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    first, *others = known(dispatch, conn, MANY)
    bot = assured(conn, alice, 1)
    assert [name.replica for name in work(dispatch, first)] == [1]
    dispatch.feed()
    drawn = waiting(dispatch).drawn
    (chosen,) = [one for one in others if lots.mark(hosts_and_crews(conn, one)[1]) == drawn]
    for eager in others:
        if eager is not chosen:
            assert eager.ask().assignments == ()
    assert [item.id for item in chosen.ask().assignments] == [(bot, 0, 2)]


def test_a_check_that_nobody_comes_for_is_drawn_anew(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    first, *_ = known(dispatch, conn, MANY)
    assured(conn, alice, 1)
    work(dispatch, first)
    drawn = set()
    for _ in range(lots.MOST_VAIN - 1):  # then anybody may check
        later(dispatch, seconds=4000)  # beyond the patience with hosts that ask once in an hour
        dispatch.feed()
        drawn.add(waiting(dispatch).drawn)
    assert len(drawn) > 1


def test_while_all_have_just_come_only_a_vouched_for_machine_checks(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    first, *others = known(dispatch, conn, MANY)
    conn.execute("UPDATE client SET created_at = now()")
    bot = assured(conn, alice, 1)
    work(dispatch, first)
    dispatch.feed()
    assert all(other.ask().assignments == () for other in others)
    work(dispatch, caller(dispatch, alice))
    assert len(outcomes(conn, bot)) == 1


@pytest.mark.usefixtures("unchecked")
def test_a_host_is_never_full_of_answers_that_nobody_will_check(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    bot = assured(conn, alice, 100)
    bob, carol = strangers(dispatch, 2)
    trust(conn, bob, carol)
    conn.execute("UPDATE host SET width = 8")
    assert len(work(dispatch, bob)) == 8
    for _ in range(3):
        work(dispatch, carol, want=1)
    assert len(outcomes(conn, bot)) == 5
    assert len(work(dispatch, bob)) == 8


@pytest.mark.usefixtures("unchecked")
def test_checks_count_once_those_of_all_earlier_answers_have_come_back(
    dispatch: Dispatch, conn: Connection, alice: int
) -> None:
    """Liars check each other at once, before an honest host has found out about any."""
    bot = assured(conn, alice, 100)
    bob, carol = strangers(dispatch, 2)
    trust(conn, bob, carol)
    work(dispatch, bob)
    conn.execute(
        "UPDATE provisional SET is_due = true, due_at = now()"
        " WHERE seq IN (SELECT seq FROM provisional ORDER BY seq LIMIT 4)"
    )
    conn.execute("INSERT INTO pending (bot, seq) SELECT bot, seq FROM provisional WHERE is_due")
    dispatch.settle()
    for _ in range(SEASON):
        work(dispatch, carol, want=1)
    assert outcomes(conn, bot) == {}
    work(dispatch, carol, want=1)
    assert len(outcomes(conn, bot)) == 4
