"""Hosts, honest and lying, on one BOT under a clock of their own; the product's decisions.

What a job needs next, whom to believe, what a host may hold: `cycles.transition.decide`,
`matching.track_record` and `matching.width` say so, as in the server.
"""

from __future__ import annotations

import heapq
import itertools
from datetime import timedelta

from gridbot_server.cycles.job import Ended
from gridbot_server.matching import assurance, width
from gridbot_server.matching.assurance import Credence
from gridbot_server.storage.states import State
from scripts.sabotage.judging import Judging
from scripts.sabotage.state import (
    EPOCH,
    JOB_SECONDS,
    RIGHT,
    Machine,
    Setting,
    Tally,
    Task,
    World,
)
from scripts.sabotage.strategies import Occasion
from scripts.sabotage.waiting import Waiting

DEADLINE_SECONDS = 7200.0
IDLE_SECONDS = 60.0
ASSEMBLY_SECONDS = 600.0  # within which the first hosts arrive
BOINC_STREAK = 10  # consecutive valid results from which on BOINC trusts a host


class Model:
    """One run: hosts come, ask, answer and go."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._world = world = World(setting, seed)
        self._waiting = Waiting(world)
        self._judging = Judging(world, self._waiting, lambda: self._arrive(is_liar=True))
        self._crews = itertools.count(1)
        self._shared = next(self._crews)
        for index in range(setting.hosts):
            self._arrive(index < setting.liars, self._crew(index))

    def _crew(self, index: int) -> int | None:
        """Return whose one of the first hosts is; None if it is the first of its owner."""
        setting = self._world.setting
        if index < setting.liars:
            return self._shared if self._world.strategy.is_one_owner else None
        place = (index - setting.liars) % setting.machines
        return self._world.hosts[index - place].crew if place else None

    def _arrive(self, is_liar: bool, crew: int | None = None) -> Machine:
        greedy = is_liar and self._world.strategy.is_greedy
        host = Machine(
            number=len(self._world.hosts),
            crew=next(self._crews) if crew is None else crew,
            is_liar=is_liar,
            cpus=4096 if greedy else self._world.random.choice((8, 16)),
            seconds=1.0 if greedy else JOB_SECONDS * self._world.random.lognormvariate(0, 0.5),
            arrived=self._world.now,
        )
        self._world.hosts.append(host)
        self._world.machines[host.crew].append(host)
        self._world.at(self._world.now + self._way(host), lambda: self.ask(host))
        return host

    def _way(self, host: Machine) -> float:
        """Return the seconds until a new host first asks: greedy ones are there at once."""
        if self._world.now:
            return self._world.random.uniform(0, IDLE_SECONDS)
        greedy = host.is_liar and self._world.strategy.is_greedy
        return self._world.random.uniform(0, ASSEMBLY_SECONDS / 100 if greedy else ASSEMBLY_SECONDS)

    def run(self) -> Tally:
        """Run until every job has its outcome, or nobody can get on."""
        most = 400 * JOB_SECONDS * (1 + self._world.setting.jobs / 1000)
        while self._world.settled < self._world.setting.jobs and self._world.events:
            self._world.now, _, act = heapq.heappop(self._world.events)
            if self._world.now > most:
                break
            act()
        self._world.tally.undone = self._world.setting.jobs - self._world.settled
        honest = [host for host in self._world.hosts if not host.is_liar]
        self._world.tally.honest = len(honest)
        self._world.tally.punished = sum(host.was_punished for host in honest)
        self._world.tally.ramps = [
            host.full_at - host.arrived for host in honest if host.full_at is not None
        ]
        return self._world.tally

    def ask(self, host: Machine) -> None:
        """Give a host what it has room for."""
        if host.gone:
            return
        if host.came is None:
            host.came = self._world.now
            self._waiting.meet(host)
        partners: set[int] = set()
        while host.running < host.cpus * 2:
            task = self._waiting.take(host, partners) if self._may_check(host) else None
            if task is None and self._room(host) > 0:
                task = self._first_for(host)
            if task is None:
                break
            self._send(host, task)
        if host.running == 0:
            pause = IDLE_SECONDS * self._world.random.uniform(0.5, 1.5)
            self._world.at(self._world.now + pause, lambda: self.ask(host))

    def _room(self, host: Machine) -> int:
        """Return how many first copies the host may have."""
        if self._world.rules.terms is None:
            return host.cpus
        room = min(
            width.room(host.width, host.unjudged),
            width.room(self._world.crew_width[host.crew], self._world.crew_unjudged[host.crew]),
        )
        if (most := self._world.standing[host.number].most_held) is not None:
            room = min(room, most - host.unjudged)
        return room

    def _may_check(self, host: Machine) -> bool:
        """Whether the host may have a copy: only what it has in progress counts."""
        if self._world.rules.terms is None:
            return True
        most = self._world.standing[host.number].most_held
        return host.running < (host.width if most is None else most)

    def _first_for(self, host: Machine) -> Task | None:
        if self._world.fresh >= self._world.setting.jobs:
            return None
        task = Task(self._world.fresh, self._world.secret, late=0)
        task.job.coin = task.coin(0)
        task.first_late = host.answers >= self._world.setting.cold_jobs
        self._world.fresh += 1
        more = self._world.rules.quorum - 1
        if self._world.rules.terms:
            answer = Credence(
                self._world.standing[host.number],
                self._world.crew_standing[host.crew],
                coin=task.coin(1),
            )
            more = assurance.further_copies(answer, self._world.rules.terms)
        elif self._world.setting.rule == "adaptive":
            streak = self._world.streaks[host.number]
            more = int(streak < BOINC_STREAK or self._world.random.random() < 1 / streak)
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
                self._waiting.add(task)
        task.job.leased.append(replica)
        host.running += 1
        host.unjudged += 1
        self._world.crew_unjudged[host.crew] += 1
        self._world.tally.replicas += 1
        if task.first_late:
            self._world.tally.late_replicas += 1
        seconds = (
            host.seconds * self._world.random.uniform(0.8, 1.2) * max(1, host.running / host.cpus)
        )
        self._world.at(self._world.now + seconds, lambda: self._report(host, task, replica))

    def _report(self, host: Machine, task: Task, replica: int) -> None:
        host.running -= 1
        if host.gone:
            self._world.at(
                self._world.now + DEADLINE_SECONDS,
                lambda: self._end(host, task, replica, State.EXPIRED),
            )
            return
        is_first = replica == 1
        how, digest = State.SUCCESS, RIGHT
        if host.is_liar:
            if self._world.strategy.lies(self._occasion(host, task, is_first)):
                own = b"" if self._world.strategy.colludes else str(host.number).encode()
                digest = b"wrong " + own
        elif self._world.random.random() < self._world.setting.errors:
            how = State.ERROR
        elif self._world.random.random() < self._world.setting.slips:
            digest = f"slip {host.number}".encode()
        host.answers += 1
        if is_first and how == State.SUCCESS:
            host.firsts[task] = self._world.now
        self._end(host, task, replica, how, digest)
        if not host.is_liar and self._world.random.random() < self._world.setting.leaves:
            host.gone = True
            self._arrive(is_liar=False)
        self.ask(host)

    def _occasion(self, host: Machine, task: Task, is_first: bool) -> Occasion:
        if self._world.rules.terms:
            answer = Credence(
                self._world.standing[host.number], self._world.crew_standing[host.crew]
            )
            is_trusted = assurance.is_trusted(answer, self._world.rules.terms)
        else:
            is_trusted = host.answers > BOINC_STREAK
        progress = self._world.fresh / self._world.setting.jobs
        in_company = any(other.is_liar and other is not host for other in task.holders.values())
        return Occasion(is_trusted, is_first, in_company, progress, self._world.random)

    def _end(
        self, host: Machine, task: Task, replica: int, how: State, digest: bytes | None = None
    ) -> None:
        if replica not in task.job.leased:
            return
        task.job.leased.remove(replica)
        ended = EPOCH + timedelta(seconds=self._world.now)
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
        self._judging.decide(task)
