"""Hosts, honest and lying, on one BOT under a clock of their own; the product's decisions.

What a job needs next, whom to believe, what a host may hold: `cycles.transition.decide`,
`matching.track_record` and `matching.width` say so, as in the server.  What the server keeps in
tables is kept in dictionaries here.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gridbot_server.cycles.transition import Decision, Ended, Job, Rules, decide
from gridbot_server.matching import assurance, lots, width
from gridbot_server.matching.assurance import AssuranceTerms, Credence
from gridbot_server.matching.lots import Elector, Electorate
from gridbot_server.matching.track_record import (
    DISTRUSTED_WIDTH,
    NEWCOMER,
    SEASON,
    TrackRecord,
    checks_at_the_end,
    most_agreements,
)
from gridbot_server.storage.states import State
from scripts.sabotage.strategies import STRATEGIES, Occasion

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
JOB_SECONDS = 600.0
DEADLINE_SECONDS = 7200.0
IDLE_SECONDS = 60.0
# As `feeder.electors` counts crews: often while they are few.
SOON_SECONDS, SOME, COUNT_SECONDS = 1.0, 50, 10.0
DRAW_SECONDS = lots.patience(JOB_SECONDS / 12)  # of 8 or 16 cores
ASSEMBLY_SECONDS = 600.0  # within which the first hosts arrive
LOOKS = 64  # copies that are looked at for one request
RIGHT = b"right"
BOINC_STREAK = 10  # consecutive valid results from which on BOINC trusts a host


@dataclass(slots=True, eq=False)
class Machine:
    """A host, who owns it, and what it has proven."""

    number: int
    crew: int
    is_liar: bool
    cpus: int
    seconds: float  # for a job
    arrived: float
    width: float = width.START
    unjudged: int = 0
    answers: int = 0  # given so far
    running: int = 0
    came: float | None = None  # when it first asked for work
    gone: bool = False
    full_at: float | None = None  # when its width first sufficed for its cores
    last_caught: float = -1.0
    was_punished: bool = False
    firsts: dict[Task, float] = field(default_factory=dict)  # unjudged first answers: when given


@dataclass(slots=True, eq=False)
class Task:
    """A job of the BOT, who works on it, and what became of it."""

    seq: int
    coin: float
    job: Job = field(default_factory=Job)
    holders: dict[int, Machine] = field(default_factory=dict)  # by replica
    passed: dict[int, int] = field(
        default_factory=dict
    )  # by replica that was relied on: checks since
    passed_at: float = 0.0  # when the last answer was given of those that passed them
    is_seasoned: bool = False
    freed: set[int] = field(default_factory=set)  # replicas that count against no width any more
    replicas: int = 0
    late: int = 0  # replicas that were made after the cold start
    first_late: bool = False
    vain: int = 0  # draws of crews that did not come for its copy
    provisional_at: float | None = None
    is_due: bool = False
    due_at: float = 0.0
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is about."""

    strategy: str
    rule: str  # assured, q1, q2, q3, adaptive
    jobs: int = 100_000
    hosts: int = 200
    liars: int = 20
    errors: float = 0.01  # of honest replicas that end in an error
    slips: float = 0.0  # of honest answers that are wrong
    leaves: float = 0.0005  # probability per answer that an honest host goes for good
    assurance: float = 0.999
    cold_jobs: int = 50  # answers of a host that count as its cold start


@dataclass(slots=True)
class Tally:
    """What came out."""

    accepted: int = 0
    wrong: int = 0
    replicas: int = 0
    late_jobs: int = 0
    late_replicas: int = 0
    honest: int = 0
    punished: int = 0
    catches: int = 0
    delays: list[float] = field(default_factory=list)
    ramps: list[float] = field(default_factory=list)
    failed: int = 0
    undone: int = 0


class Model:
    """One run."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.random = random.Random(f"{setting.strategy} {seed}")
        self.now = 0.0
        self.tally = Tally()
        self.hosts: list[Machine] = []
        self._crews = itertools.count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.standing: dict[int, TrackRecord] = defaultdict(lambda: NEWCOMER)
        self.crew_standing: dict[int, TrackRecord] = defaultdict(lambda: NEWCOMER)
        self.crew_width: dict[int, float] = defaultdict(lambda: width.START)
        self.crew_unjudged: dict[int, int] = defaultdict(int)
        self.relying: dict[int, set[Task]] = defaultdict(set)
        self.copies: dict[int, deque[Task]] = defaultdict(deque)  # by the crew drawn for them
        self.crew_of: dict[int, int] = {}  # by the mark with which it is drawn
        self.electors: list[Elector] = []  # as counted last
        self.electorate = Electorate(())
        self.at(0.0, self._count_electors)
        self.agreements: dict[tuple[int, int], int] = defaultdict(int)  # of untrusted crews
        self.fresh = 0
        self.settled = 0  # jobs with an outcome
        self.provisional: set[Task] = set()
        self._streaks: dict[int, int] = defaultdict(int)  # of BOINC's adaptive rule
        terms = None
        if setting.rule == "assured":
            terms = AssuranceTerms(setting.assurance)
        quorum = int(setting.rule[1]) if setting.rule[0] == "q" else 1
        if setting.rule.endswith("p"):  # a quorum as the server judges it among strangers
            terms = AssuranceTerms(quorum=quorum, is_explicit=False)
        if setting.rule == "adaptive":
            quorum = 2
        self.rules = Rules(quorum, 10, terms=terms)
        self.strategy = STRATEGIES[setting.strategy]
        shared = next(self._crews)
        for index in range(setting.hosts):
            is_liar = index < setting.liars
            self._arrive(is_liar, shared if is_liar and self.strategy.is_one_owner else None)

    # ------------------------------------------------------------------------------ hosts

    def _arrive(self, is_liar: bool, crew: int | None = None) -> Machine:
        greedy = is_liar and self.strategy.is_greedy
        host = Machine(
            number=len(self.hosts),
            crew=next(self._crews) if crew is None else crew,
            is_liar=is_liar,
            cpus=4096 if greedy else self.random.choice((8, 16)),
            seconds=1.0 if greedy else JOB_SECONDS * self.random.lognormvariate(0, 0.5),
            arrived=self.now,
        )
        self.hosts.append(host)
        self.at(self.now + self._way(host), lambda: self.ask(host))
        return host

    def _way(self, host: Machine) -> float:
        """Return the seconds until a new host first asks: greedy ones are there at once."""
        if self.now:
            return self.random.uniform(0, IDLE_SECONDS)
        greedy = host.is_liar and self.strategy.is_greedy
        return self.random.uniform(0, ASSEMBLY_SECONDS / 100 if greedy else ASSEMBLY_SECONDS)

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def run(self) -> Tally:
        """Run until every job has its outcome, or nobody can get on."""
        most = 400 * JOB_SECONDS * (1 + self.setting.jobs / 1000)
        while self.settled < self.setting.jobs and self._events:
            self.now, _, act = heapq.heappop(self._events)
            if self.now > most:
                break
            act()
        self.tally.undone = self.setting.jobs - self.settled
        honest = [host for host in self.hosts if not host.is_liar]
        self.tally.honest = len(honest)
        self.tally.punished = sum(host.was_punished for host in honest)
        self.tally.ramps = [
            host.full_at - host.arrived for host in honest if host.full_at is not None
        ]
        return self.tally

    # --------------------------------------------------------------------------- dispatch

    def ask(self, host: Machine) -> None:
        """Give a host what it has room for."""
        if host.gone:
            return
        if host.came is None:
            host.came = self.now
            self.crew_of[lots.mark(str(host.crew))] = host.crew
        partners: set[int] = set()
        while host.running < host.cpus * 2:
            task = self._copy_for(host, partners) if self._may_check(host) else None
            if task is None and self._room(host) > 0:
                task = self._first_for(host)
            if task is None:
                break
            self._send(host, task)
        if host.running == 0:
            pause = IDLE_SECONDS * self.random.uniform(0.5, 1.5)
            self.at(self.now + pause, lambda: self.ask(host))

    def _room(self, host: Machine) -> int:
        """Return how many first copies the host may have."""
        if self.rules.terms is None:
            return host.cpus
        room = min(
            width.room(host.width, host.unjudged),
            width.room(self.crew_width[host.crew], self.crew_unjudged[host.crew]),
        )
        if self.standing[host.number].is_distrusted:
            room = min(room, DISTRUSTED_WIDTH - host.unjudged)
        return room

    def _may_check(self, host: Machine) -> bool:
        """Whether the host may have a copy: only what it has in progress counts."""
        if self.rules.terms is None:
            return True
        if self.standing[host.number].is_distrusted:
            return host.running < DISTRUSTED_WIDTH
        return host.running < host.width

    def _copy_for(self, host: Machine, partners: set[int]) -> Task | None:
        """Take a copy, rather one whose crews the host has not checked in this request."""
        for waiting in (self.copies[host.crew], self.copies[lots.ANYBODY]):
            if task := self._copy_of(waiting, host, partners):
                return task
        return None

    def _copy_of(self, waiting: deque[Task], host: Machine, partners: set[int]) -> Task | None:
        chosen = None
        for index in range(min(LOOKS, len(waiting))):
            crews = {other.crew for other in waiting[index].holders.values()}
            if host.crew in crews:
                continue
            if not self.rules.terms or crews.isdisjoint(partners):
                chosen = index
                break
            if self.fresh >= self.setting.jobs:
                chosen = index if chosen is None else chosen
        if chosen is None:
            return None
        task = waiting[chosen]
        partners |= {other.crew for other in task.holders.values()}
        del waiting[chosen]
        task.job.queued.pop()
        return task

    def _count_electors(self) -> None:
        """Count the crews at work, as the feeder does, and draw among them what waits."""
        here = {host.crew: host for host in self.hosts if host.came is not None and not host.gone}
        now = self.now - lots.NEW_SECONDS
        self.electors = [
            Elector(str(crew), crew, host.came is None or host.came > now)
            for crew, host in sorted(here.items())
        ]
        self.electorate = Electorate(self.electors)
        pause = SOON_SECONDS if len(here) < SOME else COUNT_SECONDS
        self.at(self.now + pause, self._count_electors)
        undrawn = [*self.copies[lots.NOBODY], *self.copies[lots.ANYBODY]]
        self.copies[lots.NOBODY].clear()
        self.copies[lots.ANYBODY].clear()
        for task in undrawn:
            self._queue(task)

    def _queue(self, task: Task) -> None:
        """Let a copy wait for the crew that is drawn for it."""
        holders = {other.crew for other in task.holders.values()}
        drawn = lots.ANYBODY
        if self.rules.terms:
            workers = self._workers() if task.vain else ()
            drawn = self.electorate.draw(holders, self.random.random(), task.vain, workers)
        crew = self.crew_of.get(drawn, drawn)
        self.copies[crew].append(task)
        if drawn not in (lots.ANYBODY, lots.NOBODY):
            self.at(self.now + DRAW_SECONDS, lambda: self._draw_again(task, crew))

    def _workers(self) -> list[Elector]:
        return [elector for elector in self.electors if self.crew_unjudged[elector.owner]]

    def _draw_again(self, task: Task, crew: int) -> None:
        if task in self.copies[crew]:
            self.copies[crew].remove(task)
            task.vain += 1
            self._queue(task)

    def _first_for(self, host: Machine) -> Task | None:
        if self.fresh >= self.setting.jobs:
            return None
        task = Task(self.fresh, self.random.random(), late=0)
        task.job.coin = task.coin
        task.first_late = host.answers >= self.setting.cold_jobs
        self.fresh += 1
        more = self.rules.quorum - 1
        if self.rules.terms:
            answer = Credence(self.standing[host.number], self.crew_standing[host.crew])
            more = assurance.further_copies(answer, self.rules.terms, task.coin)
        elif self.setting.rule == "adaptive":
            streak = self._streaks[host.number]
            more = int(streak < BOINC_STREAK or self.random.random() < 1 / streak)
            task.is_due = more > 0
        task.replicas = 1 + more
        for copy in range(more):
            task.job.queued.append(2 + copy)
        return task

    def _send(self, host: Machine, task: Task) -> None:
        replica = len(task.holders) + 1
        task.holders[replica] = host
        if replica == 1:
            for _ in task.job.queued:
                self._queue(task)
        task.job.leased.append(replica)
        host.running += 1
        host.unjudged += 1
        self.crew_unjudged[host.crew] += 1
        self.tally.replicas += 1
        if task.first_late:
            self.tally.late_replicas += 1
        seconds = host.seconds * self.random.uniform(0.8, 1.2) * max(1, host.running / host.cpus)
        self.at(self.now + seconds, lambda: self._report(host, task, replica))

    # ---------------------------------------------------------------------------- reports

    def _report(self, host: Machine, task: Task, replica: int) -> None:
        host.running -= 1
        if host.gone:
            self.at(
                self.now + DEADLINE_SECONDS, lambda: self._end(host, task, replica, State.EXPIRED)
            )
            return
        is_first = replica == 1
        how, digest = State.SUCCESS, RIGHT
        if host.is_liar:
            if self.strategy.lies(self._occasion(host, task, is_first)):
                own = b"" if self.strategy.colludes else str(host.number).encode()
                digest = b"wrong " + own
        elif self.random.random() < self.setting.errors:
            how = State.ERROR
        elif self.random.random() < self.setting.slips:
            digest = f"slip {host.number}".encode()
        host.answers += 1
        if is_first and how == State.SUCCESS:
            host.firsts[task] = self.now
        self._end(host, task, replica, how, digest)
        if not host.is_liar and self.random.random() < self.setting.leaves:
            host.gone = True
            self._arrive(is_liar=False)
        self.ask(host)

    def _occasion(self, host: Machine, task: Task, is_first: bool) -> Occasion:
        if self.rules.terms:
            is_trusted = self.standing[host.number].doubt <= 1 - self.setting.assurance
        else:
            is_trusted = host.answers > BOINC_STREAK
        progress = self.fresh / self.setting.jobs
        in_company = any(other.is_liar and other is not host for other in task.holders.values())
        return Occasion(is_trusted, is_first, in_company, progress, self.random)

    def _end(
        self, host: Machine, task: Task, replica: int, how: State, digest: bytes | None = None
    ) -> None:
        if replica not in task.job.leased:
            return
        task.job.leased.remove(replica)
        ended = EPOCH + timedelta(seconds=self.now)
        task.job.ended.append(
            Ended(
                replica,
                0,
                how,
                "",
                digest if how == State.SUCCESS else None,
                None,
                ended,
                host.crew,
            )
        )
        self.decide(task)

    # -------------------------------------------------------------------------- decisions

    def decide(self, task: Task) -> None:
        """Judge a job and what follows from it, as a pass of the transitioner does."""
        waiting = [task]
        while waiting:
            task = waiting.pop()
            waiting.extend(self._settle(task))
            waiting.extend(self._relieve(task))
            if not waiting:
                waiting.extend(self._close())

    def _settle(self, task: Task) -> set[Task]:
        job = task.job
        if job.has_outcome and not any(item.valid is None for item in job.ended):
            return set()
        if self.rules.terms:
            job.ended = [self._believed(task, item) for item in job.ended]
        if self.setting.rule == "adaptive" and not task.is_due and not job.has_outcome:
            decision = decide(job, Rules(1, 10))
        else:
            decision = decide(job, self.rules)
        self._judge(task, decision)
        touched = self._learn(task, decision)
        due_at = task.due_at if task.is_due else -math.inf
        self._keep(task, decision)
        seasoned: set[Task] = set()
        for copy in range(decision.copies):
            job.queued.append(job.last_replica + copy + 1)
            task.replicas += 1
            task.vain = 0
            self._queue(task)
        for replica in decision.right:
            if replica == 1:
                seasoned |= self._season(task, due_at)
        woken: set[Task] = set()
        for host, (old, new) in touched.items():
            leaves = 1 - self.setting.assurance
            if new.caught != old.caught or new.doubt <= leaves < old.doubt:
                woken |= self.relying[host]
        return woken | seasoned

    def _season(self, task: Task, due_at: float) -> set[Task]:
        """Season what a host said, by its later first answer that proved right."""
        host = task.holders[1]
        given = host.firsts.pop(task, None)
        if given is None:
            return set()
        for other in self.relying[host.number]:
            is_lone = len(other.job.relied_on) == 1
            for replica in other.job.relied_on:
                if other.holders[replica] is not host:
                    continue
                answer = next(item for item in other.job.ended if item.replica == replica)
                if (answer.ended_at - EPOCH).total_seconds() < max(given, due_at if is_lone else 0):
                    other.passed[replica] += 1
                    if other.passed[replica] <= SEASON:
                        other.passed_at = max(other.passed_at, given)
        return self._seasoned(host)

    def _seasoned(self, host: Machine) -> set[Task]:
        """Return the outcomes for which all checks of earlier answers have come back."""
        awaited = min(
            (given for task, given in host.firsts.items() if _is_awaited(task)), default=math.inf
        )
        seasoned = {
            task
            for task in self.relying[host.number]
            if not task.is_seasoned
            and task.passed_at < awaited
            and any(
                task.holders[replica] is host and task.passed[replica] >= SEASON
                for replica in task.job.relied_on
            )
        }
        for task in seasoned:
            task.is_seasoned = True
        return seasoned

    def _believed(self, task: Task, item: Ended) -> Ended:
        host = task.holders[item.replica]
        now = self.standing[host.number]
        credence = Credence(
            now,
            self.crew_standing[host.crew],
            is_seasoned=task.is_seasoned and task.passed.get(item.replica, 0) >= SEASON,
            is_due=task.is_due and item.replica in task.job.relied_on,
            is_first=item.replica == 1,
        )
        return item._replace(credence=credence)

    def _judge(self, task: Task, decision: Decision) -> None:
        """Give verdicts, which change widths and the streaks of BOINC's rule."""
        ended = []
        for item in task.job.ended:
            verdict = decision.valid.get(item.replica)
            if verdict is not None and item.valid is None:
                host = task.holders[item.replica]
                is_wrong = not verdict and item.how == State.SUCCESS
                change = width.WidthChange().after(verdict, not (verdict or is_wrong), is_wrong)
                self._widen(host, change)
                self._streaks[host.number] = self._streaks[host.number] + 1 if verdict else 0
                if item.replica not in task.freed:
                    self._free(host)
                if is_wrong:
                    self._catch(host, item)
                item = item._replace(valid=verdict)
            ended.append(item)
        task.job.ended = ended

    def _widen(self, host: Machine, change: width.WidthChange) -> None:
        host.width = width.changed(host.width, change)
        self.crew_width[host.crew] = width.changed(self.crew_width[host.crew], change)
        if host.full_at is None and host.width >= 2 * host.cpus:
            host.full_at = self.now

    def _free(self, host: Machine) -> None:
        host.unjudged -= 1
        self.crew_unjudged[host.crew] -= 1

    def _catch(self, host: Machine, item: Ended) -> None:
        self.tally.catches += 1
        if not host.is_liar:
            host.was_punished |= item.digest == RIGHT
        elif self.strategy.returns and not host.gone:
            host.gone = True
            self._arrive(is_liar=True)

    def _learn(self, task: Task, decision: Decision) -> dict[int, tuple[TrackRecord, TrackRecord]]:
        """Let records follow what proved right or wrong; return the hosts' before and after."""
        touched: dict[int, tuple[TrackRecord, TrackRecord]] = {}
        if not self.rules.terms:
            return touched
        for replica in self._rights(task, decision):
            host = task.holders[replica]
            old = self.standing[host.number]
            self.standing[host.number] = old.after_right()
            self.crew_standing[host.crew] = self.crew_standing[host.crew].after_right()
            first = touched.get(host.number, (old, old))[0]
            touched[host.number] = (first, self.standing[host.number])
            self._widen(host, width.WidthChange(growth=1))
        for replica in decision.wrong:
            host = task.holders[replica]
            old, crew = self.standing[host.number], self.crew_standing[host.crew]
            self.standing[host.number] = old.after_wrong()
            self.crew_standing[host.crew] = crew.after_wrong_of_a_host()
            touched[host.number] = (old, self.standing[host.number])
            host.firsts.pop(task, None)
        return touched

    def _rights(self, task: Task, decision: Decision) -> list[int]:
        """Return the replicas that count as proven right, as `cycles.reputation` has them."""
        if not decision.provisional or decision.is_backed:
            return list(decision.right)
        crews = {replica: task.holders[replica].crew for replica in decision.provisional}
        pairs = {
            (min(one, other), max(one, other))
            for one in crews.values()
            for other in crews.values()
            if one != other
        }
        most = most_agreements(
            len({host.crew for host in self.hosts if host.came is not None and not host.gone})
        )
        fresh = {pair for pair in pairs if self.agreements[pair] < most} if decision.right else ()
        for pair in fresh:
            self.agreements[pair] += 1
        counted = {crew for pair in fresh for crew in pair}
        return [replica for replica in decision.right if crews[replica] in counted]

    def _keep(self, task: Task, decision: Decision) -> None:
        """Keep the outcome, or what is provisional; forget what is not any more."""
        job = task.job
        if job.has_outcome:
            return
        for replica in job.relied_on:
            self.relying[task.holders[replica].number].discard(task)
        if decision.provisional:
            if task.provisional_at is None:
                task.provisional_at = self.now
            for replica in decision.provisional:
                host = task.holders[replica]
                is_proven = decision.is_backed and len(decision.provisional) > 1
                if is_proven and replica not in task.freed:
                    task.freed.add(replica)
                    self._free(host)
                self.relying[host.number].add(task)
            self.provisional.add(task)
        else:
            self.provisional.discard(task)
        if job.relied_on != decision.provisional:
            task.is_due = task.is_seasoned = False
            task.passed, task.passed_at = dict.fromkeys(decision.provisional, 0), 0.0
        job.relied_on = decision.provisional
        if decision.finishes:
            self._finish(task, decision)

    def _finish(self, task: Task, decision: Decision) -> None:
        job = task.job
        job.has_outcome, job.canonical = True, decision.canonical
        self.settled += 1
        for replica in job.leased:
            self._free(task.holders[replica])
        while job.queued:
            job.queued.pop()
            self._withdraw(task)
        job.leased.clear()
        if decision.canonical is None:
            self.tally.failed += 1
            return
        self.tally.accepted += 1
        answer = next(item for item in job.ended if item.replica == decision.canonical)
        if answer.digest != RIGHT:
            self.tally.wrong += 1
        if task.first_late:
            self.tally.late_jobs += 1
        since = task.provisional_at
        self.tally.delays.append(0.0 if since is None else self.now - since)

    def _withdraw(self, task: Task) -> None:
        for waiting in self.copies.values():
            if task in waiting:
                waiting.remove(task)
                return

    def _close(self) -> list[Task]:
        """At the BOT's end, have some open answers of each host checked."""
        if self.fresh < self.setting.jobs or not self.provisional:
            return []
        if self.settled + len(self.provisional) < self.setting.jobs:
            return []
        due: list[Task] = []
        for tasks in list(self.relying.values()):
            due.extend(_sample(tasks))
            due.extend(task for task in tasks if len(task.job.relied_on) > 1 and not task.is_due)
        due = [*dict.fromkeys(due)]  # an agreement is relied on by each of its hosts
        self._make_due(due)
        return due

    def _relieve(self, task: Task) -> list[Task]:
        """Have some open answers of a host checked when they fill most of its width."""
        if len(task.job.relied_on) != 1:
            return []
        host = task.holders[task.job.relied_on[0]]
        tasks = self.relying[host.number]
        lone = sum(len(other.job.relied_on) == 1 for other in tasks)
        room = min(host.width, self.crew_width[host.crew])
        due = _sample(tasks) if lone >= width.CROWDED_PART * room else []
        self._make_due(due)
        return due

    def _make_due(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            task.is_due, task.due_at = True, self.now


def _is_awaited(task: Task) -> bool:
    """Whether a check of a job's first answer is on its way."""
    return not task.job.has_outcome and (not task.job.relied_on or task.is_due)


def _sample(tasks: Iterable[Task]) -> list[Task]:
    """Choose those of a host's open answers that are checked."""
    lone = sorted((task for task in tasks if len(task.job.relied_on) == 1), key=_coin)
    count = checks_at_the_end(len(lone)) - sum(task.is_due for task in lone)
    return [task for task in lone if not task.is_due][: max(0, count)]


def _coin(task: Task) -> float:
    return task.coin
