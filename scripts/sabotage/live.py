"""The same over HTTP: scripted hosts speak the native protocol with a real server."""

from __future__ import annotations

import hashlib
import http.client
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from gridbot_server.matching.assurance import DEFAULT_ASSURANCE
from gridbot_server.matching.track_record import NEWCOMER, TrackRecord
from scripts.benchmarks.harness.database import Database, database
from scripts.benchmarks.harness.installation import BenchFailed, Installation, installation
from scripts.benchmarks.harness.load.native_hosts import HOST, token
from scripts.sabotage.strategies import STRATEGIES, Occasion, Strategy

HOSTS, LIARS = 200, 20
SPARE = 200  # further owners, as whom those return who were caught
JOBS = 1200
_LEAST_SECONDS, _SECONDS_PER_JOB = 280.0, 0.2  # after which a run is given up
_ARRIVAL_SECONDS = 10.0  # within which hosts arrive; greedy ones are there at once
_ROUND_SECONDS = 0.3  # an honest host takes as long for what it holds, a greedy one no time
_COMMAND = ["echo", "{i}"]
_WAYS = {"quorum 2": ("", 2), "Assurance = 0.999": ("Assurance = 0.999; ", 1)}


@dataclass(frozen=True, slots=True)
class Live:
    """What came of one strategy against one way of asking for right results."""

    strategy: str
    asked: str
    jobs: int
    accepted: int
    wrong: int
    failed: int  # jobs that were given up
    undone: int
    lies: int  # that were told
    replicas_per_job: float
    seconds: float


@dataclass(slots=True)
class Ring:
    """What the liars tell each other, and know of the server."""

    strategy: Strategy
    jobs: int
    records: Mapping[int, TrackRecord] = field(default_factory=dict)  # as the server has them
    holders: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # by job
    lies: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def meet(self, number: int, given: Sequence[Assignment]) -> None:
        """Tell the others which jobs a liar was given."""
        for item in given:
            self.holders[item.id.seq].add(number)

    def lie(self, number: int, name: ReplicaId) -> str | None:
        """What a liar says of a job; None: the truth."""
        record = self.records.get(number, NEWCOMER)
        occasion = Occasion(
            is_trusted=record.doubt <= 1 - DEFAULT_ASSURANCE,
            is_first=name.replica == 1,
            in_company=bool(self.holders[name.seq] - {number}),
            # Jobs are sent in order: the last one that a liar saw says how many were sent.
            progress=max(self.holders) / self.jobs,
            random=self.chance,
        )
        if not self.strategy.lies(occasion):
            return None
        self.lies += 1
        own = "" if self.strategy.colludes else f" {number}"
        return f"lie {name.seq}{own}\n"


@dataclass(slots=True)
class Scripted:
    """A client that answers what it is given, truly or not."""

    number: int
    arrives: float  # s after the first
    ring: Ring | None = None  # None: honest
    seqno: int = 0
    holding: list[Assignment] = field(default_factory=list)

    @property
    def is_greedy(self) -> bool:
        """Whether it claims many cores and answers at once."""
        return self.ring is not None and self.ring.strategy.is_greedy

    def ask(self, connection: http.client.HTTPConnection) -> None:
        """Report what it holds, and ask for more."""
        self.seqno += 1
        reports = tuple(self._report(item) for item in self.holding)
        host = {**HOST, "NumCpus": 4096 if self.is_greedy else 4}
        want = 200 if self.is_greedy else 4
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
        if self.ring is not None:
            self.ring.meet(self.number, self.holding)

    def _report(self, item: Assignment) -> Report:
        lie = self.ring.lie(self.number, item.id) if self.ring is not None else None
        content = (lie or f"{item.args['i']}\n").encode()
        output = Output("stdout", hashlib.sha256(content).hexdigest(), len(content), content)
        return Report(
            item.id, "success", exit_code=0, cpu_seconds=0.1, wall_seconds=0.1, outputs=(output,)
        )


def play(strategies: Sequence[str], jobs: int) -> Iterator[Live]:
    """Run each strategy against each way of asking, on a new server each."""
    for name in strategies:
        for asked in _WAYS:
            with installation("--sign-on-submit") as place, database(place) as known:
                known.add_hosts(HOSTS + SPARE, HOSTS + SPARE)
                if STRATEGIES[name].is_one_owner:
                    known.join_owner(LIARS)
                yield _run(place, known, name, asked, jobs)


def _run(place: Installation, known: Database, name: str, asked: str, jobs: int) -> Live:
    extra, quorum = _WAYS[asked]
    policy = f"{extra}Concurrency = 1000;"
    ring = Ring(STRATEGIES[name], jobs)
    with place.session() as session:
        bot = session.submit(_COMMAND, range(jobs), policy=policy, quorum=quorum)
        began = time.monotonic()
        ends = began + max(_LEAST_SECONDS, _SECONDS_PER_JOB * jobs)
        _work(place, known, ring, lambda: time.monotonic() > ends or bot.show().is_final)
        state = bot.show()
        results = list(bot.results())
    done = [result for result in results if result.state == "done"]
    wrong = sum(result.stdout != f"{result.args['i']}\n" for result in done)
    made = state.document["replicas"]["made"]
    return Live(
        strategy=name,
        asked=asked,
        jobs=jobs,
        accepted=len(done),
        failed=len(results) - len(done),
        wrong=wrong,
        undone=jobs - len(results),
        lies=ring.lies,
        replicas_per_job=made / jobs,
        seconds=time.monotonic() - began,
    )


def _work(place: Installation, known: Database, ring: Ring, is_over: Callable[[], bool]) -> None:
    """Let the hosts ask in turn until the BOT is over; greedy ones ask more often."""
    port = int(place.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    hosts = _hosts(ring)
    newcomers = iter(range(HOSTS, HOSTS + SPARE))
    began = time.monotonic()
    while not is_over():
        ring.records = known.records()
        if ring.strategy.returns:
            _return(hosts, ring, newcomers)
        round_began = time.monotonic()
        here = [host for host in hosts if host.arrives <= round_began - began]
        greedy = [host for host in here if host.is_greedy]
        ring.chance.shuffle(here)
        for place_, host in enumerate(here):
            host.ask(connection)
            if place_ % 20 == 0:
                for other in greedy:
                    other.ask(connection)
        time.sleep(max(0.0, round_began + _ROUND_SECONDS - time.monotonic()))
    connection.close()


def _hosts(ring: Ring) -> list[Scripted]:
    """Make hosts that arrive one after the other, greedy ones first."""
    hosts = []
    for number in range(HOSTS):
        arrives = ring.chance.uniform(0, _ARRIVAL_SECONDS)
        host = Scripted(number, arrives, ring if number < LIARS else None)
        if host.is_greedy:
            host.arrives = 0.0
        hosts.append(host)
    return hosts


def _return(hosts: list[Scripted], ring: Ring, newcomers: Iterator[int]) -> None:
    """Let liars who were caught come back as new owners, as long as there are names."""
    for place, host in enumerate(hosts):
        if host.ring is not None and ring.records.get(host.number, NEWCOMER).caught:
            number = next(newcomers, None)
            if number is not None:
                hosts[place] = Scripted(number, host.arrives, ring)
