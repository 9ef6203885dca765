"""Clients, native ones and such as BOINC's, whose messages may be lost, late or repeated."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gridbot_client.protocol.messages import Output, ReplicaId, Report, WorkRequest
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.errors import ServerError, Unauthorized
from gridbot_simulator.store.tables import StoredClient, StoredHost, Tables
from gridbot_simulator.world.client import Run, SimulatedClient, SimulatedHost
from gridbot_simulator.world.hosts import HostModel, HostTraits, Stays

OWNER = 1
_PATIENCE = 6.0  # s after which a request is sent again
_WAIT = 10.0  # s for which the server may keep a request that finds no work
_BOINC_POLLS = 20.0, 60.0  # s; a real one waits for minutes, in which nothing would happen here
_RUNS = 4.0, 40.0  # s that replicas take
_ERRORS, _WRONG = 0.06, 0.05  # parts of replicas
_STAYS = Stays(1.0, 1e6)


@dataclass(slots=True)
class SentRequest:
    """A request on its way."""

    token: bytes
    request: WorkRequest
    due: float  # when it arrives, by the time that goes on
    sender: ClientMachine
    is_heard: bool = True  # its reply arrives
    was_parked: bool = False  # it was served before, and found no work


@dataclass(slots=True)
class ClientMachine:
    """A host with its client."""

    host: SimulatedHost
    is_stock: bool  # its client is as BOINC's
    client: SimulatedClient = field(init=False)
    pending: WorkRequest | None = None  # without a reply so far
    ask_at: float = 0.0
    awake_at: float = 0.0  # until then it sleeps, and what it runs goes no further
    _chance: random.Random = field(default_factory=random.Random)

    # ------------------------------------------------------------------------------- joining

    @classmethod
    def make(cls, number: int, is_stock: bool, chance: random.Random) -> ClientMachine:
        """A host with no client yet."""
        model = HostModel(_STAYS, _STAYS, cpus=1 + number % 2)
        host = SimulatedHost(number, f"host{number}", model, HostTraits(1.0, 1.0, _ERRORS))
        return cls(host, is_stock, _chance=chance)

    def join(self, tables: Tables, number: int, now: float) -> None:
        """Get a new client, with nothing."""
        token = hashlib.sha256(b"client %d" % number).digest()
        host = self.host.id
        tables.hosts.setdefault(host, StoredHost(host, OWNER, None, tables.now, self.host.name))
        tables.add_client(
            StoredClient(number, token, host, OWNER, None, tables.now, (OWNER,), (OWNER,))
        )
        self.client = SimulatedClient(number, token, self.host)
        self.pending, self.ask_at = None, now

    # ------------------------------------------------------------------------------ requests

    def work(self, now: float) -> None:
        """End the replicas whose time has come."""
        client = self.client
        if now < self.awake_at:
            return
        ended = [(name, run) for name, run in client.runs.items() if run.ends_at <= now]
        for name, run in ended:
            client.end(name, self._report(name, run))
            self.ask_at = min(self.ask_at, now)
        if ended:
            self._start(now)

    def _start(self, now: float) -> None:
        for name in self.client.to_start():
            seconds = self._chance.uniform(*_RUNS)
            is_bad = self._chance.random() < _ERRORS
            self.client.start(name, Run(now, now + seconds, is_bad))

    def _report(self, name: ReplicaId, run: Run) -> Report:
        seconds = run.ends_at - run.began_at
        if run.fails:
            stderr = f"error {self._chance.randrange(3)}"
            return Report(name, "error", "exit_nonzero", 1, seconds, seconds, stderr=stderr)
        lie = self._chance.randrange(1 << 60) if self._chance.random() < _WRONG else 0
        content = f"{name.seq} {lie}".encode()
        digest = hashlib.sha256(content).hexdigest()
        output = Output("answer", digest, len(content), content)
        return Report(name, "success", "", 0, seconds, seconds, (output,))

    def ask(self, now: float, leases: Callable[[int], Sequence[ReplicaId]]) -> WorkRequest | None:
        """The request that is due, or that is sent again; `leases` says what a client has."""
        if now < max(self.ask_at, self.awake_at):
            return None
        if self.pending is None or self.is_stock:
            self.pending = self.client.request()
            if not (self.is_stock or self.pending.reports or self.pending.holding):
                self.pending = replace(self.pending, wait=_WAIT)
            if self.is_stock:
                self.pending = self._as_stock(self.pending, leases(self.client.id))
        patience = _PATIENCE * self._chance.uniform(1, 2)
        self.ask_at = now + self.pending.wait + patience
        return self.pending

    def sleep(self, now: float, seconds: float) -> None:
        """Do nothing for a while; what it runs takes so much longer."""
        asleep = max(self.awake_at, now)
        self.awake_at = max(asleep, now + seconds)
        for run in self.client.runs.values():
            run.ends_at += self.awake_at - asleep

    def _as_stock(self, request: WorkRequest, leases: Sequence[ReplicaId]) -> WorkRequest:
        """As `boinc/session/scheduler_rpc.py` asks for a client that does not say what it holds."""
        reported = {report.id for report in request.reports}
        held = {*request.holding, *leases} if self._chance.random() < 0.5 else request.holding
        holding = tuple(sorted(set(held) - reported))
        return replace(request, key=f"rpc {request.seqno}", holding=holding, ahead=())

    # ------------------------------------------------------------------------------- replies

    def hear(
        self, request: WorkRequest, answer: ReplyParts | ServerError, tables: Tables, now: float
    ) -> bool:
        """Take in an answer; return whether its client is unknown and must join again."""
        if isinstance(answer, Unauthorized):
            return True
        if isinstance(answer, ServerError) or self.pending is not request:
            return False  # asked again later; or an answer to what was asked before
        self.pending = None
        names = [name_of(assignment) for assignment in answer.assignments]
        self.client.take_in(answer, names, lambda bot: tables.bots[bot].manifest.resources)
        self._start(now)
        wait = (
            self._chance.uniform(*_BOINC_POLLS)
            if self.is_stock
            else self.client.poll_in(answer, self._chance)
        )
        self.ask_at = now + wait
        return False


def name_of(assignment: bytes) -> ReplicaId:
    """The replica of a rendered assignment (`buffer/assignment.py`)."""
    numbers = assignment[assignment.index(b"[") + 1 : assignment.index(b"]")]
    return ReplicaId(*map(int, numbers.split(b",")))
