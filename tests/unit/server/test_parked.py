"""Which of the parked requests are offered work, and when."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gridbot_client.protocol.messages import Resources, WorkRequest
from gridbot_policies import PolicySet
from gridbot_policies.classad import record
from gridbot_server.dispatch.candidates import Candidate, HostView
from gridbot_server.dispatch.engine import Queued
from gridbot_server.web.parked import ParkedRequest, ParkedRequests

OWNER = 1


def request(name: str, memory: int | None = 1000, until: float = 50.0) -> ParkedRequest:
    """A parked request of a host; without memory, of one that the engine has not seen."""
    item = Queued(name.encode(), WorkRequest(name, 1, {}, 1, wait=50.0), lambda _: None)
    parked = ParkedRequest(name, item, until)
    if memory is not None:
        ad = {"NumCpus": 4, "Memory": memory}
        parked.host = HostView(7, OWNER, ad, record(ad), running=0, want=1, trusts=[OWNER])
    return parked


def work(*sizes: int, **changes: Any) -> Mapping[str, Candidate]:
    """A BOT for each amount of memory, by what it needs."""
    found = {}
    for number, size in enumerate(sizes, 1):
        made = Candidate(
            number, OWNER, PolicySet.parse(""), record({}), Resources(memory_mb=size), 10, None,
            owner_signed=True, needs=f"{size} MB",
        )  # fmt: skip
        found[made.needs] = replace(made, **changes)
    return found


@pytest.fixture
def parked() -> ParkedRequests:
    found = ParkedRequests()
    for item in (request("small", 100), request("large", 1000), request("huge", 9000)):
        found.add(item)
    return found


def names(found: list[ParkedRequest]) -> list[str]:
    return [item.conn for item in found]


def test_only_hosts_that_meet_the_needs_of_some_bot_are_offered_it(parked: ParkedRequests) -> None:
    assert names(parked.ready(0.0, 16, work(500, 5000))) == ["large", "huge"]
    assert names(parked.ready(0.0, 16, work(500))) == []
    assert names(parked.ready(0.0, 16, work(50, 500))) == ["small"]
    assert len(parked) == 0


def test_the_oldest_of_those_are_offered_work_first(parked: ParkedRequests) -> None:
    assert names(parked.ready(0.0, 1, work(500))) == ["large"]
    assert names(parked.ready(0.0, 1, work(500))) == ["huge"]


def test_a_host_that_the_engine_has_not_seen_may_suit(parked: ParkedRequests) -> None:
    parked.add(request("unknown", None))
    assert names(parked.ready(0.0, 16, work(10_000))) == ["unknown"]


def test_without_work_nobody_is_offered_any(parked: ParkedRequests) -> None:
    assert parked.ready(0.0, 16, {}) == []


def test_after_an_attempt_in_vain_a_request_rests_each_time_longer() -> None:
    parked, rests, now = ParkedRequests(), [], 0.0
    parked.add(request("box"))
    for _ in range(7):
        (tried,) = parked.ready(now, 16, work(500))
        parked.add(tried)
        assert parked.ready(now, 16, work(500)) == []
        rests.append(round(tried.ready_at - now, 3))
        now = tried.ready_at
    assert rests == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_the_oldest_is_asked_for_news_though_it_rests(parked: ParkedRequests) -> None:
    (scout,) = parked.scout(0.0)
    assert scout.conn == "small"
    parked.add(scout)
    assert names(parked.scout(0.0)) == ["large"]  # who came back is the youngest now
    assert parked.remove("huge") is not None
    assert names(parked.scout(0.0)) == ["small"]
    assert parked.scout(0.0) == []


def test_requests_end_when_their_time_is_over_whatever_came_after_them() -> None:
    parked = ParkedRequests()
    for name, until in (("late", 9.0), ("soon", 3.0), ("next", 5.0)):
        parked.add(request(name, until=until))
    assert parked.expired(2.9) == []
    assert names(parked.expired(3.0)) == ["soon"]
    parked.add(request("new", until=4.0))
    assert names(parked.expired(5.0)) == ["next", "new"]
    assert parked.expired(8.9) == []
    assert names(parked.expired(9.0)) == ["late"]
    assert len(parked) == 0


def test_a_request_that_is_tried_in_vain_ends_once_and_at_its_time() -> None:
    found = ParkedRequests()
    found.add(request("tried", until=3.0))
    for now in (0.0, 1.0, 2.9):
        [tried] = found.scout(now)
        assert found.expired(now) == []
        found.add(tried)
    assert names(found.expired(3.0)) == ["tried"]
    assert found.expired(100.0) == []


def test_a_request_whose_time_is_over_during_an_attempt_ends_after_it() -> None:
    found = ParkedRequests()
    found.add(request("tried", until=3.0))
    [tried] = found.scout(2.0)
    assert found.expired(4.0) == []
    found.add(tried)
    assert names(found.expired(4.0)) == ["tried"]


def test_requests_that_were_answered_take_no_memory_until_their_end() -> None:
    found, answered = ParkedRequests(), []
    for number in range(3000):
        item = request(f"answered {number}", None)
        found.add(item)
        found.remove(item.conn)
        answered.append(weakref.ref(item.item.tell))
        del item
    assert sum(item() is not None for item in answered) < 1500
    late = request("late")
    found.add(late)
    assert found.expired(50.0) == [late]
