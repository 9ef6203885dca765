"""Machines that work for friends' servers while their own leaves them idle."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from tests.system.deployment import NO_COPIES, Deployment, Gate, deployment, eventually

from gridbot_server.storage import invariants

GIVEN_BACK_SECONDS = 60.0


@pytest.fixture
def servers() -> Iterator[list[Deployment]]:
    """Home, and two friends."""
    with ExitStack() as stack:
        made = [stack.enter_context(deployment()) for _ in range(3)]
        with ThreadPoolExecutor() as threads:
            list(threads.map(Deployment.start, made))
            yield made
            list(threads.map(Deployment.stop, made))


def befriend(home: Deployment, *friends: Deployment) -> None:
    """A machine of home that has friends, in this order, with a half of it for each."""
    home.run("client", "join", home.url, "--data", str(home.folder / "lender"))
    for friend in friends:
        home.run(
            *("client", "join", friend.url, "--friend", "--share", "50"),
            *("--key", friend.operator_key, "--data", str(home.folder / "lender")),
        )


def refused(home: Deployment, folder: str, code: int) -> str:
    """What a client in a folder says that shall have home as a friend."""
    words = ("--key", home.operator_key, "--friend", "--data", str(home.folder / folder))
    return home.run("client", "join", home.url, *words, code=code)


def lend(home: Deployment, *friends: Deployment) -> None:
    """Start that machine; its tasks may look at the gates of these servers."""
    folders = ":".join(str(server.folder) for server in (home, *friends))
    options = ("--cpus", "2", "--lend-after", "1s")
    home.client("lender", *options, env={**home.env, "GRIDBOT_ALLOW_WRITE": folders})


def friends_of(home: Deployment) -> list[dict[str, Any]]:
    told = home.run("client", "friends", "--json", "--data", str(home.folder / "lender"))
    found: list[dict[str, Any]] = json.loads(told)["friends"]
    return found


def runs(server: Deployment, bot: int) -> bool:
    """Whether a job of the BOT is in the midst of its work."""
    return bool(server.leases(bot))


def check(server: Deployment, bot: int, jobs: int) -> None:
    """Each job has one outcome, an answer, and nothing contradicts itself."""
    outcomes = server.outcomes(bot)
    assert len(outcomes) == jobs
    assert all(outcomes.values())
    with server.database() as conn:
        assert invariants.check(conn, idle=False) == []


def gated(server: Deployment, home: Deployment) -> tuple[int, Gate]:
    """A BOT of two jobs that wait at a gate, and fail if they can read tokens of the machine."""
    gate, folder = server.gate(), home.folder / "lender"
    assert len(list(folder.rglob("client.json"))) == 3
    secrets = " ".join(f"{folder}/{name}" for name in ("", "friends/", "friends/*/"))
    looks = f"for place in {secrets}; do cat $place/client.json && exit 7; done"
    jobs = ("--range", "0:2", "--", *gate.command(f"{looks}; echo $1"))
    return server.submit(*jobs, policy=NO_COPIES), gate


def reasons(server: Deployment, bot: int) -> set[str]:
    """Why replicas ended that have not succeeded."""
    query = "SELECT DISTINCT reason FROM ended WHERE bot = %s AND how <> 'success'"
    return {reason for (reason,) in server.rows(query, bot)}


def test_friends_have_what_home_leaves_idle_also_while_it_is_away(
    servers: list[Deployment],
) -> None:
    home, first, second = servers
    befriend(home, first, second)
    assert "so no friend" in refused(home, "lender", 1)
    assert "join that first" in refused(home, "nobody", 3)
    (of_first, first_gate), (of_second, _) = gated(first, home), gated(second, home)
    lend(home, first, second)
    eventually(lambda: runs(first, of_first) and runs(second, of_second), what="friends' jobs")

    own, own_gate = gated(home, home)
    eventually(
        lambda: not runs(first, of_first) and not runs(second, of_second),
        GIVEN_BACK_SECONDS, "the machine given back",
    )  # fmt: skip
    eventually(lambda: len(home.leases(own)) == 2, what="home's jobs")
    assert reasons(first, of_first) == reasons(second, of_second) == {"client_left"}
    own_gate.open()
    home.wait(own)
    eventually(lambda: runs(first, of_first) and runs(second, of_second), what="friends' jobs")

    home.crash()
    first_gate.open()
    first.wait(of_first)
    assert [item["url"] for item in friends_of(home)] == [first.url, second.url]
    eventually(lambda: friends_of(home)[1]["state"] == "running", what="what is told of guests")
    # Guests do not outlive the client that lends to them, however that ends.
    home.client_ends("lender", signal.SIGKILL)
    eventually(lambda: not runs(second, of_second), what="what the guest returned")
    assert reasons(second, of_second) == {"client_left"}
    home.start()
    check(home, own, 2)
    check(first, of_first, 2)
    check(second, of_second, 0)
