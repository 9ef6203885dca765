"""Claims about what is told to the owner of a machine that gets no work."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.server.test_explanation import OTHER, OWNER, demand, host

from gridbot_server.matching.hosts import BotRequirements, HostClient
from gridbot_server.matching.idleness import hindrances


def found(machine: HostClient, *bots: BotRequirements, **options: Any) -> list[tuple[str, int]]:
    told = hindrances(machine, bots, options.get("has_room", True), lambda: False)
    return [(item.reason, item.bots) for item in told]


def stranger(signed: bool = True, policy: str = "", **resources: int) -> BotRequirements:
    return replace(demand(policy, False, **resources), owner=OTHER, signed=signed)


@pytest.mark.parametrize(
    ("bot", "reason"),
    [
        (stranger(signed=False), "trust"),
        (demand(memory_mb=9000), "memory"),
        (demand(disk_mb=200_000), "disk"),
        (demand(cpus=8), "cpus"),
        (demand("JobRequirements = Host.ErrorRate < 0.01"), "requirements"),
        (demand("Concurrency = 0"), "concurrency"),
        (demand(), "free"),
    ],
)
def test_the_first_thing_that_keeps_a_bot_from_a_machine_is_told(
    bot: BotRequirements, reason: str
) -> None:
    assert found(host(), bot) == [(reason, 1)]


def test_the_policy_of_the_machines_own_owner_is_told() -> None:
    picky = host(Requirements='Bot.Owner == "bob"')
    assert found(picky, demand()) == [("owner", 1)]


def test_a_machine_that_is_full_of_a_bots_jobs_is_told_so() -> None:
    assert found(replace(host(), running=3), demand("Concurrency = 3")) == [("concurrency", 1)]


def test_unchecked_answers_bound_work_of_strangers_alone() -> None:
    assert found(host(), stranger(), demand(), has_room=False) == [("width", 1), ("free", 1)]
    assert found(host(), stranger(), demand(), has_room=True) == [("free", 2)]


def test_what_keeps_most_bots_away_comes_first() -> None:
    bots = [demand(), demand(memory_mb=9000), stranger(signed=False), demand(memory_mb=9001)]
    assert found(host(), *bots)[0] == ("memory", 2)


def test_nothing_of_another_persons_bot_is_told_but_what_it_needs() -> None:
    secret = stranger(policy="JobRequirements = Host.Memory == 424242")
    (told,) = hindrances(host(), [secret], True, lambda: False)
    assert (told.reason, "424242" in told.text) == ("requirements", False)


def test_bots_are_left_out_once_it_took_long_enough() -> None:
    patience = itertools.chain([False, False], itertools.repeat(True))
    told = hindrances(host(), [demand()] * 9, True, lambda: next(patience))
    assert [item.bots for item in told] == [2]


def test_an_owner_is_no_stranger_to_those_whom_the_machine_trusts() -> None:
    friend = replace(host(), trusts=[OWNER, OTHER])
    assert found(friend, stranger(), has_room=False) == [("free", 1)]
