"""Claims about calls to a server that is away or slow, over real connections."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.http.loopback import serve

from gridbot import reliable
from gridbot.api.connection import Connection, patiently
from gridbot.api.errors import ServerAway
from gridbot.api.following import follow_results
from gridbot.dag.run.following import LotFollower
from gridbot.dag.run.lot import LotTable
from gridbot_client.net.discovery import Endpoint

OK = ("200 OK", "0")
BUSY = ("503 Busy", "0")
LATER = ("503 Busy", "3600")


@dataclass
class Script:
    """Answers with a status and a Retry-After, one after the other; the last one for ever."""

    answers: list[tuple[str, str]]
    asked: int = 0
    is_asked: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def __call__(self, _: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        status, seconds = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        self.is_asked.set()
        self.may_answer.wait(30)
        start_response(status, [("Retry-After", seconds), ("Content-Type", "application/json")])
        return [b'{"status": "ok"}']


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script([OK])
    made.may_answer.set()
    yield made
    made.may_answer.set()


@pytest.fixture
def connection(script: Script) -> Iterator[Connection]:
    with serve(script) as url:
        made = Connection(Endpoint(url, "key"))
        yield made
        made.close()
        script.may_answer.set()


class Broken(Exception):
    pass


def test_a_call_succeeds_once_the_server_is_back(script: Script, connection: Connection) -> None:
    script.answers = [BUSY, ("502 Bad Gateway", ""), OK]
    assert connection.health()["status"] == "ok"
    assert script.asked == 3


def test_a_server_that_wants_to_be_left_alone_is(script: Script, connection: Connection) -> None:
    script.answers = [LATER]
    with pytest.raises(ServerAway) as raised:
        connection.health()
    assert (script.asked, raised.value.retry_after) == (1, 3600)


def test_what_may_not_happen_twice_is_asked_for_once(
    script: Script, connection: Connection
) -> None:
    script.answers = [LATER]
    with pytest.raises(ServerAway) as raised:
        connection.send("POST", "/tokens", {})
    assert (script.asked, raised.value.retry_after) == (1, 3600)


def test_a_limit_around_a_call_ends_the_wait_for_its_answer(
    script: Script, connection: Connection
) -> None:
    script.may_answer.clear()
    with pytest.raises(reliable.OutOfTime):
        reliable.trying(for_=0.3)(connection.health)()


def test_patience_has_a_limit_for_an_answer_that_does_not_come(
    script: Script, connection: Connection
) -> None:
    script.may_answer.clear()
    with pytest.raises(ServerAway, match=r"did not answer in 0\.3 s"):
        patiently(connection.health, for_=0.3)


def test_a_limit_around_patience_is_no_fault_of_the_server(
    script: Script, connection: Connection
) -> None:
    script.may_answer.clear()
    with pytest.raises(reliable.OutOfTime):
        reliable.trying(for_=0.3)(patiently)(connection.health)


def test_patience_tells_of_the_first_error_and_raises_the_last() -> None:
    calls: list[int] = []
    told: list[str] = []

    def call() -> None:
        calls.append(1)
        raise ServerAway(f"away {len(calls)}")

    with pytest.raises(ServerAway, match="away 3"):
        patiently(call, lambda error: told.append(str(error)), times=3)
    assert told == ["away 1"]


def test_who_waits_without_a_word_of_their_own_finds_it_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = [ServerAway("away"), ServerAway("still away")]

    def call() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    assert patiently(call) == "done"
    assert caplog.messages == ["away; waiting for the server"]


@dataclass(frozen=True)
class Row:
    n: int


def test_results_go_on_behind_the_last_one_and_each_absence_is_told_once() -> None:
    asked: list[int] = []
    told: list[str] = []

    def read(after: int, _: int) -> Iterator[Row]:
        asked.append(after)
        if len(asked) <= 2:
            raise ServerAway("away")
        if after < 2:
            yield Row(after + 1)
            raise ServerAway(f"cut after {after + 1}")

    found = follow_results(
        read, lambda: True, after=0, follow=True, told=lambda error: told.append(str(error))
    )
    assert list(found) == [Row(1), Row(2)]
    assert asked[:5] == [0, 0, 0, 1, 2]
    assert told == ["away", "cut after 1", "cut after 2"]


def test_a_cancelled_branch_waits_for_its_server_no_more(
    script: Script, connection: Connection
) -> None:
    script.answers = [LATER]

    def branch(name: str) -> None:
        if name == "waits":
            patiently(connection.health)
        script.is_asked.wait(30)
        raise Broken

    with pytest.raises(Broken):
        reliable.all_of(["waits", "fails"], branch)
    assert script.asked == 1


def test_a_run_says_once_that_its_server_is_away_for_all_of_its_bots() -> None:
    said: list[str] = []
    follower = LotFollower(LotTable(), lambda _: None, said.append, lambda *_: {})
    both = threading.Barrier(2)

    def branch(_: int) -> None:
        errors = [ServerAway("away")]

        def call() -> None:
            both.wait(60)  # neither succeeds before the other has said what it says
            if errors:
                raise errors.pop()

        follower.patiently(call)

    for absences in (1, 2):
        reliable.all_of(range(2), branch)
        assert said == ["away; waiting for the server"] * absences


def test_a_run_that_is_over_waits_for_its_server_no_more(
    script: Script, connection: Connection
) -> None:
    script.answers = [LATER]
    follower = LotFollower(LotTable(), lambda _: None, lambda _: None, lambda *_: {})

    def branch(name: str) -> None:
        if name == "ends":
            script.is_asked.wait(30)
            follower.is_over.set()
            return
        with pytest.raises(ServerAway, match="the run is over"):
            follower.patiently(connection.health)

    reliable.all_of(["waits", "ends"], branch)
    assert script.asked == 1
