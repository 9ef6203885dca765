"""The same over HTTP: scripted hosts speak the native protocol with a real server."""

from __future__ import annotations

import hashlib
import http.client
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gridbot_client.protocol.messages import (
    Assignment,
    Output,
    ReplicaId,
    Report,
    WorkRequest,
    decode_reply,
    encode_request,
)
from scripts.benchmarks.harness.database import database
from scripts.benchmarks.harness.installation import BenchFailed, Installation, installation
from scripts.benchmarks.harness.load.native_hosts import HOST, token
from scripts.sabotage.strategies import STRATEGIES, Strategy

HOSTS, LIARS = 200, 20
JOBS = 1200
_MOST_SECONDS = 280.0
_ROUND_SECONDS = 0.3  # an honest host takes as long for what it holds, a greedy one no time
_COMMAND = ["echo", "{i}"]
_WAYS = {"quorum 2": ("", 2), "Assurance = 0.999": ("Assurance = 0.999; ", 1)}


@dataclass(frozen=True, slots=True)
class Live:
    """What came of one strategy against one way of asking for right results."""

    strategy: str
    asked: str
    accepted: int
    wrong: int
    failed: int  # jobs that were given up
    undone: int
    replicas_per_job: float
    seconds: float


@dataclass(slots=True)
class Scripted:
    """A client that answers what it is given, truly or not."""

    number: int
    strategy: Strategy | None  # None: honest
    seqno: int = 0
    holding: list[Assignment] = field(default_factory=list)

    @property
    def is_greedy(self) -> bool:
        """Whether it claims many cores and answers at once."""
        return self.strategy is not None and self.strategy.is_greedy

    def ask(self, connection: http.client.HTTPConnection, is_over: bool = False) -> None:
        """Report what it holds, and ask for more."""
        self.seqno += 1
        reports = tuple(self._report(item.id, int(item.args["i"])) for item in self.holding)
        host = {**HOST, "NumCpus": 4096 if self.is_greedy else 4}
        want = 0 if is_over else 200 if self.is_greedy else 4
        request = WorkRequest(uuid.uuid4().hex, self.seqno, host, want, (), reports)
        headers = {
            "Authorization": f"Bearer {token(self.number)}",
            "Content-Type": "application/json",
        }
        connection.request("POST", "/rpc", encode_request(request), headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == http.client.SERVICE_UNAVAILABLE:
            return
        if answer.status != http.client.OK:
            raise BenchFailed(f"a host request was answered {answer.status}: {body[:200]!r}")
        self.holding = list(decode_reply(body).assignments)

    def _report(self, name: ReplicaId, argument: int) -> Report:
        text = f"{argument}\n"
        if self.strategy is not None:
            own = "" if self.strategy.colludes else f" {self.number}"
            text = f"lie {argument}{own}\n"
        content = text.encode()
        output = Output("stdout", hashlib.sha256(content).hexdigest(), len(content), content)
        return Report(
            name, "success", exit_code=0, cpu_seconds=0.1, wall_seconds=0.1, outputs=(output,)
        )


def play(strategies: Sequence[str], jobs: int) -> Iterator[Live]:
    """Run each strategy against each way of asking, on a new server each."""
    for name in strategies:
        for asked in _WAYS:
            with installation("--sign-on-submit") as place, database(place) as known:
                known.add_hosts(HOSTS, HOSTS)
                yield _run(place, name, asked, min(jobs, JOBS))


def _run(place: Installation, name: str, asked: str, jobs: int) -> Live:
    extra, quorum = _WAYS[asked]
    policy = f"{extra}Concurrency = 1000;"
    with place.session() as session:
        bot = session.submit(_COMMAND, range(jobs), policy=policy, quorum=quorum)
        began = time.monotonic()
        _work(place, STRATEGIES[name], lambda: bot.show().is_final)
        state = bot.show()
        results = list(bot.results())
    done = [result for result in results if result.state == "done"]
    wrong = sum(result.stdout != f"{result.args['i']}\n" for result in done)
    made = state.document["replicas"]["made"]
    return Live(
        strategy=name,
        asked=asked,
        accepted=len(done),
        failed=len(results) - len(done),
        wrong=wrong,
        undone=jobs - len(results),
        replicas_per_job=made / jobs,
        seconds=time.monotonic() - began,
    )


def _work(place: Installation, strategy: Strategy, is_over: Callable[[], bool]) -> None:
    """Let the hosts ask in turn until the BOT is over; greedy ones ask more often."""
    port = int(place.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    chance = random.Random(1)
    hosts = [Scripted(number, strategy if number < LIARS else None) for number in range(HOSTS)]
    greedy = [host for host in hosts if host.is_greedy]
    until = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < until and not is_over():
        began = time.monotonic()
        chance.shuffle(hosts)
        for place_, host in enumerate(hosts):
            host.ask(connection)
            if place_ % 20 == 0:
                for other in greedy:
                    other.ask(connection)
        time.sleep(max(0.0, began + _ROUND_SECONDS - time.monotonic()))
    connection.close()
