"""One simulation: an event loop under a virtual clock, around the server's own decisions.

Theory of operation
===================

Time goes in steps of `grain` seconds, a hundredth of the median job, but 1 to 20 s.  In each step
what was due happens, in its order: replicas end, hosts go and come, clients ask.  Requests are
served in batches by `dispatch.transaction`, as in a web process; then the cycles run that have
something to do, and the feeder.  The clock jumps over steps in which nothing is due.

The replication cycle looks at running jobs every second step, or at each where they are more than
two looks sample.  While nothing but the time changes, it waits for a hundredth of the time since
the last change, if that is more: ages, of which policies speak, are then seen within 1 %.

Two things of real clients are left out.  Idle ones poll: no request is kept by the server.  And
nothing is called back that a client has not started.

A request that would change nothing but the time of the client's last one is not made: the client's
row gets the time.  That are those of clients that are busy, and of idle ones while the buffer holds
no more than they were refused a moment ago (`idle.py`).
"""

from __future__ import annotations

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from itertools import count

from gridbot_client.protocol.manifest import Manifest, Resources
from gridbot_client.protocol.messages import ReplicaId, Report
from gridbot_server.cycles import deadline, replication, transitioner
from gridbot_server.cycles.silence import Silence
from gridbot_server.dispatch.dispatcher import Dispatcher
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.dispatch.transaction import transact
from gridbot_server.feeder.feeding import Feeder
from gridbot_server.matching.policies import bot_policies
from gridbot_server.matching.spending import Spending
from gridbot_simulator.buffer import MemoryBuffer
from gridbot_simulator.store.memory_store import MemoryStore
from gridbot_simulator.store.tables import (
    DAY,
    StoredBot,
    StoredClient,
    StoredHost,
    StoredOwner,
    Tables,
)
from gridbot_simulator.world.chance import stream
from gridbot_simulator.world.client import Run, SimulatedClient, SimulatedHost
from gridbot_simulator.world.idle import REFUSED_SECONDS, IdleClients
from gridbot_simulator.world.jobs import Workload

BEGINS_AT = 1_767_225_600.0  # 2026-01-01, a day like others
OWNER, BOT, GENERATION = 1, 1, 1
SLOTS = 4096  # of the buffer, as in `Settings`
SILENT_SECONDS = 60.0
MOST_SECONDS = 60 * 86_400.0
PATIENCE = 86_400.0  # seconds without a replica in progress, after which no host is expected
_BATCH = 256
_GRAIN, _LEAST_GRAIN, _MOST_GRAIN = 0.01, 1.0, 20.0  # of the median job; seconds
# Between two looks for silent clients; the cycle takes more than 30 for a time without server.
_LOOK_SECONDS = 10.0
_LOOKS_AGAIN_PART = (
    0.01  # of the time without a change, after which running jobs are looked at again
)
_PAST_RESULTS = 100


class EventKind(IntEnum):
    """What is due at a time."""

    ENDS = auto()  # a replica
    GOES = auto()  # a host
    COMES = auto()
    ASKS = auto()


@dataclass(slots=True)
class Spent:
    """CPU seconds that replicas took."""

    reported: float = 0.0
    aborted: float = 0.0
    lost: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.reported + self.aborted + self.lost


@dataclass(slots=True)
class BotCourse:
    """How a BOT went on."""

    bot: StoredBot
    left: list[tuple[float, int]]  # jobs without an outcome, at each time when they became fewer
    answers: int = 0  # that hosts gave; all but one of each job are discarded


@dataclass(slots=True)
class Ran:
    """What came of a simulation."""

    bot: StoredBot
    begins_at: float
    ended_at: float
    useful_by_grid: Mapping[str, float]  # CPU seconds of the answers that count; "": of no grid
    spent: Spent
    decisions: str  # digest of who got what, in order
    why_not: str  # it did not end; empty if it did
    steps: int
    courses: Sequence[BotCourse]  # of the BOT and of further ones

    @property
    def useful(self) -> float:
        """CPU seconds of the answers that count."""
        return sum(self.useful_by_grid.values())


@dataclass(frozen=True, slots=True)
class SimulatedBot:
    """A BOT that is submitted when a simulation begins."""

    policy: str
    workload: Workload


@dataclass(slots=True)
class Scenario:
    """What is simulated."""

    policy: str
    workload: Workload
    hosts: Sequence[SimulatedHost]
    seed: int
    are_known: bool = True  # the server has had results of the hosts before
    bot: int = BOT
    begins_at: float = BEGINS_AT  # seconds since the epoch
    further: Sequence[SimulatedBot] = ()  # BOTs with the numbers after its own
    answers_today: int = 0  # that each host gave which is known
    aborts: bool = True  # replicas whose job is over; else they run to their end
    finds_silent: bool = True  # clients; else only deadlines show what is lost with a host
    slots: int = SLOTS  # of the scheduling buffer

    @property
    def submissions(self) -> Mapping[int, SimulatedBot]:
        """All its BOTs by their numbers."""
        all_of_them = (SimulatedBot(self.policy, self.workload), *self.further)
        return dict(enumerate(all_of_them, self.bot))


class Simulation:
    """A scenario from the submission of its BOTs to the end of all."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._begins_at = scenario, scenario.begins_at
        # Streams of their own: with another policy hosts come, go and fail as before.
        self._hosts_chance = stream(scenario.seed, "hosts")
        chance = stream(scenario.seed, "server")
        self.tables = Tables(self._begins_at)
        self.store = MemoryStore(self.tables)
        self.buffer = MemoryBuffer(scenario.slots)
        self._dispatcher = Dispatcher(
            GENERATION, clock=self._steady, wall=self._wall, chance=chance
        )
        self._feeder = Feeder(self.store, self.buffer, chance)
        self._silence = Silence(SILENT_SECONDS)
        self._spending = Spending()
        self._chance = chance
        self._polls = stream(scenario.seed, "clients")
        self._events: list[tuple[float, int, EventKind, int, ReplicaId | float | None]] = []
        self._order = count()
        self._clients: dict[int, SimulatedClient] = {}
        self._client_numbers = count(1)
        self._hosts = {host.id: host for host in scenario.hosts}
        self._there: dict[int, SimulatedClient] = {}  # clients whose hosts are up
        self._idle = IdleClients(self.buffer)
        self._gone: set[int] = set()  # clients that went with replicas, and are not known as silent
        self._looked_at = self._worked_at = self._begins_at
        self._replicated_at = self._changed_at = self._begins_at
        self._spent = Spent()
        self._decisions = hashlib.blake2b(digest_size=16)
        self._submissions = scenario.submissions
        self._copied = [
            bot
            for bot, item in self._submissions.items()
            if bot_policies("simulated", item.policy).may_replicate
        ]
        self._grain = min(max(_LEAST_GRAIN, _GRAIN * scenario.workload.median), _MOST_GRAIN)
        self._add_rows()
        bots = [self.tables.bots[bot] for bot in self._submissions]
        self._watched = {bot.id: BotCourse(bot, [(0.0, bot.size - bot.outcomes)]) for bot in bots}

    def _steady(self) -> float:
        return self.tables.now - self._begins_at

    def _wall(self) -> float:
        return self.tables.now

    # ----------------------------------------------------------------------------- set-up

    def _add_rows(self) -> None:
        scenario, tables = self._scenario, self.tables
        tables.owners[OWNER] = StoredOwner(OWNER, "scientist")
        manifest = Manifest("scientist", ("program", "{i}"), {"i": "int"}, resources=Resources())
        for bot, item in self._submissions.items():
            tables.bots[bot] = StoredBot(
                bot, OWNER, "simulated", len(item.workload.seconds), item.policy, manifest,
                tables.now,
            )  # fmt: skip
        for host in scenario.hosts:
            tables.hosts[host.id] = self._host_row(host)
            is_up, seconds = host.model.begin(self._hosts_chance)
            if is_up:
                self._come(host)
            self._at(tables.now + seconds, EventKind.GOES if is_up else EventKind.COMES, host.id)

    def _host_row(self, host: SimulatedHost) -> StoredHost:
        now = self.tables.now
        row = StoredHost(host.id, OWNER, host.model.grid, now, host.name)
        if self._scenario.are_known:
            seconds = self._scenario.workload.median / host.traits.speed / host.traits.part
            lost = 0.0 if host.model.keeps_work else seconds / host.model.up.mean_seconds
            chance = self._hosts_chance
            row.error_rate = host.traits.past_error_rate(chance, min(1.0, lost), _PAST_RESULTS)
            row.mean_turnaround = seconds
            row.good, row.jobs_day = self._scenario.answers_today, int(now // DAY)
        return row

    def _client_row(self, host: SimulatedHost, number: int, token: bytes) -> StoredClient:
        """A new client on a host."""
        now, grid = self.tables.now, host.model.grid
        return StoredClient(number, token, host.id, OWNER, grid, now, (OWNER,), (OWNER,))

    def _at(
        self, when: float, kind: EventKind, who: int, what: ReplicaId | float | None = None
    ) -> None:
        heapq.heappush(self._events, (when, next(self._order), kind, who, what))

    # ---------------------------------------------------------------------- hosts and time

    def _come(self, host: SimulatedHost) -> None:
        """Let a host be there: with what it had, or with a new client."""
        now = self.tables.now
        client = host.client
        if client is None:
            number = next(self._client_numbers)
            row = self._client_row(host, number, hashlib.sha256(b"%d" % number).digest())
            self.tables.add_client(row)
            client = host.client = SimulatedClient(number, row.hash, host)
            self._clients[number] = client
        client.is_there = True
        self._gone.discard(client.id)
        self._there[client.id] = client
        for name, run in client.runs.items():  # it was suspended since `began_at`
            run.ends_at += now - run.began_at
            run.began_at = now
            self._at(run.ends_at, EventKind.ENDS, client.id, name)
        self._ask_at(client, now)

    def _go(self, host: SimulatedHost) -> None:
        """Let a host go: what it does is suspended or lost."""
        now, client = self.tables.now, host.client
        assert client is not None
        row = self.tables.clients[client.id]
        row.seen_at = max(row.seen_at, now - self._polls.random() * (row.contact_seconds or 0.0))
        if self.tables.held.get(client.id):
            self._note_gone(client.id)
        self._idle.forget(client)
        client.is_there, client.ask_at = False, None
        del self._there[client.id]
        for run in client.runs.values():
            run.done += now - run.began_at
            run.began_at = now
        if not host.model.keeps_work:
            for name, run in client.runs.items():
                self._spend("lost", host, name, run.done)
            host.client = None
            client.runs.clear()

    def _note_gone(self, client: int) -> None:
        """Begin to look for silent clients, unless some are looked for."""
        if not self._scenario.finds_silent:
            return
        if not self._gone:
            # Between two passes of the same one it would miss the time without any.
            self._silence, self._looked_at = Silence(SILENT_SECONDS), self.tables.now
        self._gone.add(client)

    def _spend(self, how: str, host: SimulatedHost, name: ReplicaId, seconds: float) -> None:
        if name.bot not in self._watched:
            return
        spent = seconds * host.traits.part
        setattr(self._spent, how, getattr(self._spent, how) + spent)

    # ------------------------------------------------------------------------------- runs

    def _start(self, client: SimulatedClient) -> None:
        for name in client.to_start():
            run = self._run_of(client.host, name)
            client.start(name, run)
            self._at(run.ends_at, EventKind.ENDS, client.id, name)

    def _run_of(self, host: SimulatedHost, name: ReplicaId) -> Run:
        """What becomes of a replica, which belongs to it and its host, whatever the policy is."""
        now, limit = self.tables.now, self._resources_of(name.bot).seconds
        seconds = self._seconds_of(name) / host.traits.speed / host.traits.part
        chance = stream(self._scenario.seed, *name, host.id)
        fails = chance.random() < host.traits.failure_rate
        if fails:
            seconds *= chance.random()
        run = Run(now, now + min(seconds, limit), fails)
        if seconds > limit:
            run.fails, run.reason = True, "time_limit"
        return run

    def _seconds_of(self, name: ReplicaId) -> float:
        """Seconds that a replica takes a host of speed 1."""
        return self._submissions[name.bot].workload.seconds[name.seq]

    def _resources_of(self, bot: int) -> Resources:
        """What a replica may use."""
        return self.tables.bots[bot].manifest.resources

    def _end(self, client: SimulatedClient, name: ReplicaId, due: float) -> None:
        run = client.runs.get(name)
        if run is None or not client.is_there or run.ends_at != due:
            return
        seconds = run.done + due - run.began_at
        self._spend("reported", client.host, name, seconds)
        self._count_answer(name, run)
        cpu = seconds * client.host.traits.part
        how: tuple[str, str, int] = ("error", run.reason, 1) if run.fails else ("success", "", 0)
        report = Report(name, how[0], how[1], how[2], cpu, seconds)  # type: ignore[arg-type]
        client.end(name, report)
        self._start(client)
        self._ask_at(client, self.tables.now)

    def _count_answer(self, name: ReplicaId, run: Run) -> None:
        if name.bot in self._watched and not run.fails:
            self._watched[name.bot].answers += 1

    def _taken(self, client: SimulatedClient, run: Run) -> float:
        """Seconds that a replica has run up to now."""
        return run.done + (self.tables.now - run.began_at if client.is_there else 0.0)

    def _ask_at(self, client: SimulatedClient, when: float) -> None:
        """Plan a request, unless one is planned before."""
        if client.is_there and (client.ask_at is None or when < client.ask_at):
            client.ask_at = when
            self._at(when, EventKind.ASKS, client.id, when)

    # --------------------------------------------------------------------------- the loop

    def run(self) -> Ran:
        """Simulate until all BOTs have ended, or nothing more is to be expected."""
        tables, bots = self.tables, [item.bot for item in self._watched.values()]
        self._feeder.forget_claims()
        self._feeder.run_once(self._steady())
        steps = 0
        while True:
            steps += 1
            self._step()
            self._note_courses()
            if all(bot.state != "running" for bot in bots) or self._why_hopeless():
                break
            self._advance()
        self._end_all()
        has_ended = all(bot.ended_at is not None for bot in bots)
        return Ran(
            bots[0], self._begins_at, tables.now, self._useful(), self._spent,
            self._decisions.hexdigest(), "" if has_ended else self._why_hopeless(), steps,
            list(self._watched.values()),
        )  # fmt: skip

    def _note_courses(self) -> None:
        for item in self._watched.values():
            left = item.bot.size - item.bot.outcomes
            if left != item.left[-1][1]:
                item.left.append((self._steady(), left))

    def _end_all(self) -> None:
        """Account for the replicas in progress when nothing is left to do."""
        for client in self._clients.values():
            for name, run in client.runs.items():
                if self._scenario.aborts:
                    self._spend("aborted", client.host, name, self._taken(client, run))
                else:
                    whole = run.done + run.ends_at - run.began_at
                    self._spend("reported", client.host, name, whole)
                    self._count_answer(name, run)

    def _why_hopeless(self) -> str:
        """Why a BOT will not end; empty while all may."""
        now = self.tables.now
        for item in self._watched.values():
            if stopped := item.bot.held or item.bot.suspended:
                return stopped
        if now > self._worked_at + PATIENCE:
            return "no host had a replica for a day: none meets the policy"
        return "it took more than 60 days" if now > self._begins_at + MOST_SECONDS else ""

    def _useful(self) -> Mapping[str, float]:
        found: defaultdict[str, float] = defaultdict(float)
        for (bot, seq), outcome in self.tables.outcomes.items():
            if bot in self._watched and outcome.canonical is not None:
                end = self.tables.find_end(bot, seq, outcome.canonical)
                if end is not None:
                    grid = self.tables.hosts[end.lease.host].grid or ""
                    found[grid] += end.cpu_seconds or 0.0
        return found

    def _step(self) -> None:
        tables = self.tables
        self._serve(self._due())
        while tables.pending:
            self._note_change()
            transitioner.run_once(self.store)
        if tables.deadlines and tables.deadlines[0][0] < tables.now:
            deadline.run_once(self.store)
            transitioner.run_once(self.store)
        self._look_for_silent()
        self._tell_of_aborts()
        if self._may_replicate() and tables.now >= self._replicates_at():
            self._replicated_at = tables.now
            self._hear_of_hosts()
            replication.run_once(self.store, tables.now, self._spending, self._chance)
        self._feeder.run_once(self._steady())
        self._wake_idle()

    def _note_change(self) -> None:
        self._changed_at = self.tables.now

    def _may_replicate(self) -> bool:
        tables = self.tables
        return any(tables.bots[bot].tail and tables.running[bot] for bot in self._copied)

    def _replicates_at(self) -> float:
        """When the replication cycle looks at running jobs again."""
        steps = 2 if len(self.tables.leases) <= 2 * replication.SAMPLE else 1
        quiet = self._replicated_at - self._changed_at
        return self._replicated_at + max(steps * self._grain, _LOOKS_AGAIN_PART * quiet)

    def _advance(self) -> None:
        """Go to the step in which something is due next."""
        tables = self.tables
        runs = any(tables.running[bot] for bot in self._watched)
        if runs:
            self._worked_at = tables.now
        due = [self._worked_at + PATIENCE + 1, self._begins_at + MOST_SECONDS + 1]
        due += [self._events[0][0]] if self._events else []
        due += [tables.deadlines[0][0]] if tables.deadlines else []
        due += [self._looked_at + _LOOK_SECONDS] if self._gone else []
        due += [self._replicates_at()] if self._may_replicate() else []
        due += [tables.now] if tables.pending else []
        asks_at = self._idle.asks_at(self._changed_at)
        due += [] if asks_at is None else [asks_at]
        tables.now = max(tables.now + self._grain, min(due))
        if runs:  # until now: no replica ends before something is due
            self._worked_at = tables.now

    def _due(self) -> list[SimulatedClient]:
        """Let happen what is due; return the clients that ask."""
        asking: dict[int, SimulatedClient] = {}
        now = self.tables.now
        while self._events and self._events[0][0] <= now:
            when, _, kind, who, what = heapq.heappop(self._events)
            match kind:
                case EventKind.ENDS:
                    assert isinstance(what, ReplicaId)
                    self._end(self._clients[who], what, when)
                case EventKind.ASKS:
                    client = self._clients[who]
                    if client.ask_at == what:
                        client.ask_at = None
                        asking[who] = client
                case EventKind.GOES:
                    host = self._hosts[who]
                    self._go(host)
                    self._at(
                        when + host.model.down.seconds(self._hosts_chance), EventKind.COMES, who
                    )
                case EventKind.COMES:
                    host = self._hosts[who]
                    self._come(host)
                    self._at(when + host.model.up.seconds(self._hosts_chance), EventKind.GOES, who)
        return [client for client in asking.values() if client.is_there]

    # ----------------------------------------------------------------------------- requests

    def _serve(self, asking: Iterable[SimulatedClient]) -> None:
        now = self.tables.now
        clients = [client for client in asking if not self._idle.asks_in_vain(client, now)]
        for at in range(0, len(clients), _BATCH):
            batch = {client.token: client for client in clients[at : at + _BATCH]}
            requests = {token: client.request() for token, client in batch.items()}
            served = transact(self.store, self.buffer, self._dispatcher, requests, ())
            for token, client in batch.items():
                reply = served.answers[token]
                assert isinstance(reply, ReplyParts), "no client is unknown or banned"
                self._take_in(client, reply)
            if served.feeder_wanted:
                self._feeder.run_once(self._steady())

    def _wake_idle(self) -> None:
        """Let idle clients ask within their polls, if there is something else for them."""
        now = self.tables.now
        for client in self._idle.woken(now, self._changed_at):
            self._ask_at(client, now + self._polls.random() * REFUSED_SECONDS)

    def _take_in(self, client: SimulatedClient, reply: ReplyParts) -> None:
        names = [_name_of(assignment) for assignment in reply.assignments]
        for name in names:
            self._decisions.update(b"%d:%d,%d,%d;" % (client.id, *name))
        heard = reply if self._scenario.aborts else replace(reply, abort=())
        for name, run in client.take_in(heard, names, self._resources_of):
            self._spend("aborted", client.host, name, self._taken(client, run))
        self._start(client)
        self._idle.forget(client)
        if names:
            self._note_change()
        if not client.is_busy:
            if not names:
                self._idle.refuse(client, self.tables.now)
            self._ask_at(client, self.tables.now + client.poll_in(reply, self._polls))

    # -------------------------------------------------------------------------------- cycles

    def _look_for_silent(self) -> None:
        tables = self.tables
        if not self._gone or tables.now < self._looked_at + _LOOK_SECONDS:
            return
        self._looked_at = tables.now
        self._hear_of_hosts()
        if self._silence.run_once(self.store, self._steady()):
            self._note_change()
            transitioner.run_once(self.store)
        self._gone = {client for client in self._gone if self._is_missed(client)}

    def _hear_of_hosts(self) -> None:
        """Note that clients whose hosts are up were heard of: their requests are not all made."""
        for number in self._there:
            self.tables.clients[number].seen_at = self.tables.now

    def _is_missed(self, client: int) -> bool:
        """Whether a client is still to be found to be silent."""
        return bool(self.tables.held.get(client)) and not self.tables.is_silent(client)

    def _tell_of_aborts(self) -> None:
        """Let clients whose replicas nobody wants any more ask by their next contact."""
        for number in self.tables.cancelled:
            if number not in self._clients:  # it was gone before the simulation began
                continue
            contact = self.tables.clients[number].contact_seconds or 0.0
            self._ask_at(self._clients[number], self.tables.now + self._polls.random() * contact)
        self.tables.cancelled.clear()


def _name_of(assignment: bytes) -> ReplicaId:
    """The replica of a rendered assignment (`buffer/assignment.py`)."""
    numbers = assignment[assignment.index(b"[") + 1 : assignment.index(b"]")]
    return ReplicaId(*map(int, numbers.split(b",")))
