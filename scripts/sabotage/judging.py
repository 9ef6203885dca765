"""What becomes of jobs and of hosts as answers come, by the server's decisions.

What the server keeps in tables is kept in dictionaries here.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

from gridbot_server.cycles.job import Decision, Ended, Rules
from gridbot_server.cycles.transition import decide
from gridbot_server.matching import lots, width
from gridbot_server.matching.assurance import Credence
from gridbot_server.matching.track_record import (
    SEASON,
    TrackRecord,
    most_agreements,
    sample_size,
    sample_size_at_the_end,
)
from gridbot_server.storage.states import State
from scripts.sabotage.state import EPOCH, MAX_ATTEMPTS, RIGHT, Machine, Task, World
from scripts.sabotage.waiting import Waiting


class Changes(dict[int, tuple[TrackRecord, TrackRecord]]):
    """Records before and after, of hosts or of crews."""

    def make(self, records: dict[int, TrackRecord], number: int, new: TrackRecord) -> None:
        """Change a record."""
        self[number] = (self.get(number, (records[number],))[0], new)
        records[number] = new


class Judging:
    """The transitioner of a run."""

    def __init__(self, world: World, waiting: Waiting, return_as_new: Callable[[], object]) -> None:
        self._world = world
        self._waiting = waiting
        self._return_as_new = return_as_new  # what a liar does that was caught
        self._agreements: dict[tuple[int, int], int] = defaultdict(int)  # of untrusted crews
        self._changed: set[int] = set()  # hosts whose open answers are others than at the last look

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
        if self._world.rules.terms:
            job.ended = [self._believed(task, item) for item in job.ended]
        if job.has_several_answers:
            job.crews = len(self._world.crews_at_work())
        if self._world.setting.rule == "adaptive" and not task.is_due and not job.has_outcome:
            decision = decide(job, Rules(1, MAX_ATTEMPTS))
        else:
            decision = decide(job, self._world.rules)
        self._judge(task, decision)
        hosts, crews = self._learn(task, decision)
        due_at = task.due_at if task.is_due else -math.inf
        self._keep(task, decision)
        seasoned: set[Task] = set()
        for copy in range(decision.copies):
            job.queued.append(job.last_replica + copy + 1)
            task.replicas += 1
            task.vain = 0
            self._waiting.add(task)
        for replica in decision.right:
            if replica == 1:
                seasoned |= self._season(task, due_at)
        woken: set[Task] = set()
        for number, (old, new) in hosts.items():
            if new.caught != old.caught or self._is_proven_now(old, new):
                woken |= self._world.relying[number]
        for crew, (old, new) in crews.items():
            if self._is_proven_now(old, new):
                for host in self._world.machines[crew]:
                    woken |= self._world.relying[host.number]
        return woken | seasoned

    def _is_proven_now(self, old: TrackRecord, new: TrackRecord) -> bool:
        return new.doubt <= 1 - self._world.setting.assurance < old.doubt

    def _season(self, task: Task, due_at: float) -> set[Task]:
        """Season what a host said, by its later first answer that proved right."""
        host = task.holders[1]
        given = host.firsts.pop(task, None)
        if given is None:
            return set()
        for other in self._world.relying[host.number]:
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
            for task in self._world.relying[host.number]
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
        now = self._world.standing[host.number]
        credence = Credence(
            now,
            self._world.crew_standing[host.crew],
            is_seasoned=task.is_seasoned and task.passed.get(item.replica, 0) >= SEASON,
            is_due=task.is_due and item.replica in task.job.relied_on,
            coin=task.coin(item.replica),
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
                self._world.streaks[host.number] = (
                    self._world.streaks[host.number] + 1 if verdict else 0
                )
                if item.replica not in task.freed:
                    self._free(host)
                if is_wrong:
                    self._catch(host, item)
                item = item._replace(valid=verdict)
            ended.append(item)
        task.job.ended = ended

    def _widen(self, host: Machine, change: width.WidthChange) -> None:
        host.width = width.changed(host.width, change)
        self._world.crew_width[host.crew] = width.changed(self._world.crew_width[host.crew], change)
        if host.full_at is None and host.width >= 2 * host.cpus:
            host.full_at = self._world.now

    def _free(self, host: Machine) -> None:
        host.unjudged -= 1
        self._world.crew_unjudged[host.crew] -= 1

    def _catch(self, host: Machine, item: Ended) -> None:
        self._world.tally.catches += 1
        if not host.is_liar:
            host.was_punished |= item.digest == RIGHT
        elif self._world.strategy.returns and not host.gone:
            host.gone = True
            self._return_as_new()

    def _learn(self, task: Task, decision: Decision) -> tuple[Changes, Changes]:
        """Let records follow what proved right or wrong; return the changes of hosts and crews."""
        hosts, crews = Changes(), Changes()
        if not self._world.rules.terms:
            return hosts, crews
        standing, crew_standing = self._world.standing, self._world.crew_standing
        for replica in self._rights(task, decision):
            host = task.holders[replica]
            hosts.make(standing, host.number, standing[host.number].after_right())
            crews.make(crew_standing, host.crew, crew_standing[host.crew].after_right())
            self._widen(host, width.WidthChange(growth=1))
        for replica in decision.wrong:
            host = task.holders[replica]
            hosts.make(standing, host.number, standing[host.number].after_wrong())
            caught = crew_standing[host.crew].after_wrong_of_a_host()
            crews.make(crew_standing, host.crew, caught)
            host.firsts.pop(task, None)
        return hosts, crews

    def _rights(self, task: Task, decision: Decision) -> list[int]:
        """Return the replicas that count as proven right, as `cycles.track_records` has them."""
        if not decision.provisional or decision.is_backed:
            return list(decision.right)
        crews = {replica: task.holders[replica].crew for replica in decision.provisional}
        pairs = {
            (min(one, other), max(one, other))
            for one in crews.values()
            for other in crews.values()
            if one != other
        }
        most = self._most_agreements()
        fresh = {pair for pair in pairs if self._agreements[pair] < most} if decision.right else ()
        for pair in fresh:
            self._agreements[pair] += 1
        counted = {crew for pair in fresh for crew in pair}
        return [replica for replica in decision.right if crews[replica] in counted]

    def _most_agreements(self) -> int:
        here = self._world.crews_at_work()
        new = sum((host.came or 0) > self._world.now - lots.NEW_SECONDS for host in here.values())
        return most_agreements(len(here), lots.are_gathering(len(here), new))

    def _keep(self, task: Task, decision: Decision) -> None:
        """Keep the outcome, or what is provisional; forget what is not any more."""
        job = task.job
        if job.has_outcome:
            return
        for replica in job.relied_on:
            self._world.relying[task.holders[replica].number].discard(task)
        if job.relied_on != decision.provisional:
            both = {*job.relied_on, *decision.provisional}
            self._changed |= {task.holders[replica].number for replica in both}
        if decision.provisional:
            if task.provisional_at is None:
                task.provisional_at = self._world.now
            for replica in decision.provisional:
                host = task.holders[replica]
                is_proven = decision.is_backed and len(decision.provisional) > 1
                if is_proven and replica not in task.freed:
                    task.freed.add(replica)
                    self._free(host)
                self._world.relying[host.number].add(task)
            self._world.provisional.add(task)
        else:
            self._world.provisional.discard(task)
        if job.relied_on != decision.provisional:
            task.is_due = task.is_seasoned = False
            task.passed, task.passed_at = dict.fromkeys(decision.provisional, 0), 0.0
        job.relied_on = decision.provisional
        if decision.finishes:
            self._finish(task, decision)

    def _finish(self, task: Task, decision: Decision) -> None:
        job = task.job
        job.has_outcome, job.canonical = True, decision.canonical
        self._world.settled += 1
        for replica in job.leased:
            self._free(task.holders[replica])
        while job.queued:
            job.queued.pop()
            self._waiting.withdraw(task)
        job.leased.clear()
        if decision.canonical is None:
            self._world.tally.failed += 1
            return
        self._world.tally.accepted += 1
        answer = next(item for item in job.ended if item.replica == decision.canonical)
        if answer.digest != RIGHT:
            self._world.tally.wrong += 1
        if task.first_late:
            self._world.tally.late_jobs += 1
        since = task.provisional_at
        self._world.tally.delays.append(0.0 if since is None else self._world.now - since)

    def _close(self) -> list[Task]:
        """At the BOT's end, have some open answers of each host checked."""
        if self._world.fresh < self._world.setting.jobs or not self._world.provisional:
            return []
        if self._world.settled + len(self._world.provisional) < self._world.setting.jobs:
            return []
        setting = self._world.setting
        part = len(self._world.provisional) / setting.jobs
        due: list[Task] = []
        changed = [tasks for host, tasks in self._world.relying.items() if host in self._changed]
        self._changed.clear()
        for tasks in changed:
            due.extend(_sample(tasks, lambda n: sample_size_at_the_end(n, part, setting.assurance)))
            due.extend(task for task in tasks if len(task.job.relied_on) > 1 and not task.is_due)
        due = [*dict.fromkeys(due)]  # an agreement is relied on by each of its hosts
        self._make_due(due)
        return due

    def _relieve(self, task: Task) -> list[Task]:
        """Have some open answers of a host checked when they fill most of its width."""
        if len(task.job.relied_on) != 1:
            return []
        host = task.holders[task.job.relied_on[0]]
        tasks = self._world.relying[host.number]
        lone = sum(len(other.job.relied_on) == 1 for other in tasks)
        room = min(host.width, self._world.crew_width[host.crew])
        if lone < width.CROWDED_PART * room:
            return []
        due = _sample(tasks, sample_size)
        self._make_due(due)
        return due

    def _make_due(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            task.is_due, task.due_at = True, self._world.now


def _is_awaited(task: Task) -> bool:
    """Whether a check of a job's first answer is on its way."""
    return not task.job.has_outcome and (not task.job.relied_on or task.is_due)


def _sample(tasks: Iterable[Task], size: Callable[[int], int]) -> list[Task]:
    """Choose those of a host's open answers that are checked, once all of the last choice are."""
    lone = [task for task in tasks if len(task.job.relied_on) == 1]
    if any(task.is_due for task in lone):
        return []
    return heapq.nsmallest(size(len(lone)), lone, key=_coin)


def _coin(task: Task) -> float:
    return task.coin(task.job.relied_on[0])
