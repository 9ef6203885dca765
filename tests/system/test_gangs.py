"""Gangs: jobs that start together or not at all, on a real server."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
from tests.db.dispatching import success
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, eventually
from tests.system.overlays import overlay

from gridbot_client.protocol.messages import ReplicaId, Report
from gridbot_server.storage import invariants

SLOTS = 8
SIZES = [2 + number % 7 for number in range(20)]  # 2 to 8

WHO = 'echo "$GRIDBOT_GANG_RANK of $GRIDBOT_GANG_SIZE: $GRIDBOT_GANG_MEMBERS"'
WHO_SAYS = ["sh", "-c", WHO]
# $0 is a folder.  A member shows itself there, and fails unless all others do within a minute.
MEET = """
touch "$0/$GRIDBOT_BOT.$GRIDBOT_GANG_RANK"
for n in $(seq 600); do
    there=$(ls "$0" | grep -c "^$GRIDBOT_BOT\\.")
    test "$there" = "$GRIDBOT_GANG_SIZE" && exit 0
    sleep 0.1
done
exit 1
"""


def programs(server: Deployment, *names: str) -> int:
    return sum(len(server.programs(name)) for name in names)


def check_invariants(server: Deployment) -> None:
    with server.database() as conn:
        assert invariants.check(conn, idle=False) == []


def test_a_gang_starts_when_all_of_it_have_a_core(running: Deployment) -> None:
    running.client("one", "--cpus", "2")
    gate = running.gate()
    bot = running.submit("--together", "3", "--range", "0:3", "--", *gate.command(WHO))
    eventually(lambda: len(running.leases(bot)) == 2, what="two members")
    eventually(lambda: len(running.rows("SELECT FROM arrival")) == 2, what="their arrival")
    assert not programs(running, "one")
    running.client("two", "--cpus", "2")
    eventually(lambda: programs(running, "one", "two") == 3, what="the start")
    check_invariants(running)
    gate.open()
    running.wait(bot)
    with running.session() as session:
        said = sorted(str(result.stdout) for result in session.bot(bot).results())
    ranks, members = zip(*(line.strip().split(": ") for line in said), strict=True)
    assert ranks == ("0 of 3", "1 of 3", "2 of 3")
    assert len(set(members)) == 1
    assert len(set(members[0].split(","))) == 3


def test_a_gang_runs_on_pilots_of_two_grids(running: Deployment) -> None:
    with overlay(running) as pilots:
        for grid in ("here", "there"):
            pilots.add("local", grid, "--max-running", "1", "--cpus", "1")
        pilots.start()
        bot = running.submit("--together", "2", "--range", "0:2", "--", *WHO_SAYS)
        running.wait(bot, 90.0)
        query = (
            "SELECT c.grid FROM ended e JOIN client c ON c.id = e.client WHERE e.how = 'success'"
        )
        assert sorted(running.rows(f"{query} AND e.bot = %s", bot)) == [("here",), ("there",)]
        pilots.wait_left()
    check_invariants(running)


def test_when_a_member_is_killed_all_end_and_start_again(running: Deployment) -> None:
    for name in ("one", "two"):
        running.client(name, "--cpus", "2")
    gate = running.gate()
    bot = running.submit("--together", "4", "--range", "0:4", "--", *gate.command())
    eventually(lambda: programs(running, "one", "two") == 4, what="the start")
    first = {process.pid for name in ("one", "two") for process in running.programs(name)}
    running.programs("one")[0].kill()

    def again() -> bool:
        now = {process.pid for name in ("one", "two") for process in running.programs(name)}
        return len(now) == 4 and not now & first

    eventually(again, what="another start of all")
    gate.open()
    running.wait(bot)
    ends = [how for _, how, _ in running.ended(bot).values()]
    assert sorted(ends) == ["cancelled"] * 3 + ["error"] + ["success"] * 4
    check_invariants(running)


def test_when_a_client_is_killed_and_comes_again_all_start_again(running: Deployment) -> None:
    for name in ("one", "two"):
        running.client(name, "--cpus", "1")
    gate = running.gate()
    bot = running.submit("--together", "2", "--range", "0:2", "--", *gate.command())
    eventually(lambda: programs(running, "one", "two") == 2, what="the start")
    [other] = running.programs("two")
    running.kill_client("one")
    running.client("one", "--cpus", "1")
    eventually(lambda: not other.is_running(), what="the end of the other member")
    eventually(lambda: programs(running, "one", "two") == 2, what="another start")
    gate.open()
    running.wait(bot)
    assert all(canonical for canonical in running.outcomes(bot).values())
    check_invariants(running)


def test_gangs_of_many_sizes_run_on_clients_one_after_the_other(running: Deployment) -> None:
    folder = running.folder / f"met-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o777)
    for name in ("one", "two"):
        running.client(name, "--cpus", str(SLOTS // 2))
    sizes = random.Random(4).sample(SIZES, len(SIZES))
    job = ["sh", "-c", MEET, str(folder)]
    with running.session() as session:
        bots = [
            session.submit(job, range(size), together=size, gather=5, memory=50, attempts=1).id
            for size in sizes
        ]
    for bot in bots:
        running.wait(bot, 150.0)
    assert [len(running.outcomes(bot)) for bot in bots] == sizes
    assert all(done for bot in bots for done in running.outcomes(bot).values())
    check_invariants(running)


class Member(threading.Thread):
    """A scripted client of one core: it starts what its gang starts, and notes with how many."""

    def __init__(self, server: Deployment, name: str, log: list[tuple[ReplicaId, int]]) -> None:
        super().__init__(name=name)
        self._client: BareClient = server.bare_client(name)
        self._log, self._is_over = log, threading.Event()

    def end(self) -> None:
        self._is_over.set()

    def run(self) -> None:
        reports: tuple[Report, ...] = ()
        while not self._is_over.is_set():
            try:
                reply = self._client.ask(1, reports)
            except requests.RequestException as error:  # a busy server refuses some
                print(f"{self.name}: {error}")
                self._is_over.wait(0.5)
                continue
            reports = ()
            for item in reply.assignments:
                if members := self._gather(item.id):
                    self._log.append((item.id, len(set(members))))
                    self._is_over.wait(random.uniform(0.0, 0.1))
                    reports = (success(item),)
            if not reply.assignments:
                self._is_over.wait(0.05)

    def _gather(self, name: ReplicaId) -> list[str]:
        """Arrive and wait for the start; the addresses of all, none if the gang is over."""
        address = f"{self.name}:{name.seq}"
        said = {"replica": list(name), "address": address, "run": uuid.uuid4().hex}
        path = "/api/v1/clients/self/gang"
        found = self._told("POST", path, json.dumps(said).encode())
        while found["state"] == "gathering" and not self._is_over.is_set():
            asked = f"{path}/{name.bot}/{name.seq}/{name.replica}?known=gathering&wait=5"
            found = self._told("GET", asked)
        return list(found["members"])

    def _told(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        while True:
            try:
                answer = self._client.call(method, path, body, JSON)
                answer.raise_for_status()
                return dict(answer.json())
            except requests.RequestException as error:
                print(f"{self.name}: {error}")
                if self._is_over.wait(0.5):
                    return {"state": "over", "members": []}


JSON = {"Content-Type": "application/json"}


@contextmanager
def scripted(server: Deployment, log: list[tuple[ReplicaId, int]]) -> Iterator[None]:
    members = [Member(server, f"scripted-{number}", log) for number in range(SLOTS)]
    for member in members:
        member.start()
    try:
        yield
    finally:
        for member in members:
            member.end()
        for member in members:
            member.join()


def test_no_gang_starves_or_blocks_another_and_none_starts_alone(running: Deployment) -> None:
    log: list[tuple[ReplicaId, int]] = []
    sizes = random.Random(16).sample(SIZES, len(SIZES))
    with scripted(running, log):
        with running.session() as session:
            bots = {
                session.submit(["true"], range(2 * size), together=size, gather=5).id: size
                for size in sizes
            }
        for bot in bots:
            running.wait(bot, 150.0)
    for bot, size in bots.items():
        started = [(name.seq, members) for name, members in log if name.bot == bot]
        assert sorted(started) == [(seq, size) for seq in range(2 * size)]
    assert running.rows("SELECT FROM gang") == running.rows("SELECT FROM gang_rest") == []
    check_invariants(running)
