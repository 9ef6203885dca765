"""Requests that wait for news of a BOT."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from typing import Any

import pytest
import requests
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.waiting_hosts import is_silent

OF_A_KEY = 64  # as server/README.md says


@pytest.fixture(scope="module")
def shared() -> Iterator[Deployment]:
    """A server with one web process: what one process bounds is seen."""
    with deployment() as made:
        made.configure(web_workers=1, web_threads=16)
        made.start()
        yield made


class Waiting:
    """A request that waits, on a connection of its own."""

    def __init__(self, server: Deployment, path: str, key: str | None = None) -> None:
        self.wire = socket.create_connection(("127.0.0.1", server.port), 60)
        self.wire.sendall(
            f"GET /api/v1/{path} HTTP/1.1\r\nHost: here\r\n"
            f"Authorization: Bearer {key or server.operator_key}\r\n\r\n".encode()
        )

    def answer(self) -> tuple[int, str]:
        """The status and the body of the answer."""
        answer = HTTPResponse(self.wire)
        answer.begin()
        return answer.status, answer.read().decode()

    def is_silent(self) -> bool:
        """Whether no answer has come so far."""
        return is_silent(self.wire)


@contextmanager
def waiting(server: Deployment, *paths: str) -> Iterator[list[Waiting]]:
    with ExitStack() as stack:
        found = [Waiting(server, path) for path in paths]
        for item in found:
            stack.enter_context(item.wire)
        yield found


def get(server: Deployment, path: str) -> requests.Response:
    """Ask at once; a request that was sent before has been looked at by then, or is being."""
    headers = {"Authorization": f"Bearer {server.operator_key}"}
    return requests.get(f"{server.url}/api/v1/{path}", headers=headers, timeout=60)


@pytest.fixture
def held(running: Deployment) -> Iterator[tuple[int, Any]]:
    """A BOT of two jobs that end when the gate is opened."""
    gate = running.gate()
    bot = running.submit("--range", "0:2", "--", *gate.command("echo $1"))
    running.client("worker", "--cpus", "2")
    eventually(lambda: len(running.leases(bot)) == 2, what="two leases")
    yield bot, gate
    running.kill_clients()


def test_results_come_when_a_job_has_ended(running: Deployment, held: tuple[int, Any]) -> None:
    bot, gate = held
    with waiting(running, f"bots/{bot}/results?wait=50", f"bots/{bot}?wait=50") as (results, end):
        assert get(running, f"bots/{bot}").json()["state"] == "running"
        assert results.is_silent() and end.is_silent()
        gate.open()
        assert '"state":"done"' in results.answer()[1]
        assert '"state":"done"' in end.answer()[1]


def test_results_of_a_group_come_also_from_a_bot_that_came_into_it_later(
    running: Deployment,
) -> None:
    gates = [running.gate(), running.gate()]
    bots = [
        running.submit("--group", "waited", "--range", "0:1", "--", *gates[0].command("echo one"))
    ]
    path = "groups/waited/results?wait=50"
    with waiting(running, path) as (first,):
        assert get(running, f"bots/{bots[0]}").json()["group"] == "waited"
        assert first.is_silent()
        bots.append(
            running.submit(
                "--group", "waited", "--range", "0:1", "--", *gates[1].command("echo two")
            )
        )
        running.client("worker", "--cpus", "2")
        gates[1].open()
        line = json.loads(first.answer()[1])
    assert (line["n"], line["bot"], line["state"]) == (1, bots[1], "done")
    with waiting(running, f"{path}&after=1", "groups/waited?wait=50") as (second, end):
        assert get(running, f"bots/{bots[0]}").json()["state"] == "running"
        assert second.is_silent() and end.is_silent()
        gates[0].open()
        assert json.loads(second.answer()[1])["bot"] == bots[0]
        assert json.loads(end.answer()[1])["bots_unfinished"] == 0
    running.kill_clients()


def test_what_has_ended_is_told_at_once(running: Deployment, held: tuple[int, Any]) -> None:
    bot, gate = held
    gate.open()
    running.wait(bot)
    with running.session() as session:
        assert len(list(session.bot(bot).results(follow=True))) == 2
    assert get(running, f"bots/{bot}/results?after=2&wait=50").text == ""
    assert get(running, f"bots/{bot}?wait=50").json()["state"] == "done"


def test_waiting_ends_in_time(running: Deployment, held: tuple[int, Any]) -> None:
    bot, _ = held
    assert get(running, f"bots/{bot}/results?wait=1").text == ""
    assert get(running, f"bots/{bot}?wait=1").json()["state"] == "running"


def test_those_that_wait_hold_no_thread_and_one_key_has_its_share(
    running: Deployment, held: tuple[int, Any]
) -> None:
    bot, _ = held
    path = f"bots/{bot}/results?wait=50"
    with waiting(running, *[path] * (OF_A_KEY + 6)) as many:
        eventually(lambda: count_silent(many) == OF_A_KEY, what="six answers")
        # There are four times as many as threads.
        assert get(running, f"bots/{bot}").json()["state"] == "running"
        assert count_silent(many) == OF_A_KEY

        def waits() -> bool:
            with waiting(running, path) as (later,):
                get(running, f"bots/{bot}")
                return later.is_silent()

        next(item for item in many if item.is_silent()).wire.close()
        eventually(waits, what="a free place")


def count_silent(many: Iterable[Waiting]) -> int:
    """How many have no answer so far."""
    return sum(item.is_silent() for item in many)


def test_a_stranger_does_not_wait(running: Deployment, held: tuple[int, Any]) -> None:
    bot, _ = held
    stranger = Waiting(running, f"bots/{bot}/results?wait=50", key="gb_nobody")
    with stranger.wire:
        assert stranger.answer()[0] == 401


@pytest.mark.parametrize("wait", ["51", "-1", "soon"])
def test_a_bad_time_is_refused(running: Deployment, held: tuple[int, Any], wait: str) -> None:
    answer = get(running, f"bots/{held[0]}/results?wait={wait}")
    assert (answer.status_code, answer.json()["detail"]) == (
        400, f"wait: expected a whole number from 0 to 50, got '{wait}'",
    )  # fmt: skip


def test_results_come_although_the_listeners_connection_was_lost(
    running: Deployment, held: tuple[int, Any]
) -> None:
    bot, gate = held
    listeners = "SELECT pid FROM pg_stat_activity WHERE application_name = 'gridbot-news'"
    with waiting(running, f"bots/{bot}/results?wait=50") as (results,):
        (before,) = eventually(lambda: running.rows(listeners), what="a listener")
        running.rows("SELECT pg_terminate_backend(%s)", before[0])
        eventually(lambda: before not in running.rows(listeners) != [], what="another listener")
        gate.open()
        assert '"state":"done"' in results.answer()[1]


def test_a_server_that_stops_answers_those_that_wait(fresh: Deployment) -> None:
    fresh.start()
    bot = fresh.submit("--range", "0:1", "--", "true")
    with waiting(fresh, f"bots/{bot}?wait=50") as (end,):
        get(fresh, f"bots/{bot}")
        fresh.stop()
        status, body = end.answer()
        assert (status, json.loads(body)["state"]) == (200, "running")
