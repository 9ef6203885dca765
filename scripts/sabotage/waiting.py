"""Copies that wait, each for the owner that was drawn for it, as in the server's feeder."""

from __future__ import annotations

from collections import defaultdict, deque

from gridbot_server.matching import lots
from gridbot_server.matching.lots import Elector, Electorate
from scripts.sabotage.state import JOB_SECONDS, Machine, Task, World

# As `feeder.electors` counts crews: often while they are few.
SOON_SECONDS, SOME, COUNT_SECONDS = 1.0, 50, 10.0
DRAW_SECONDS = lots.patience(JOB_SECONDS / 12)  # of 8 or 16 cores
LOOKS = 64  # copies that are looked at for one request


class Waiting:
    """What waits, by the crew that may have it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._copies: dict[int, deque[Task]] = defaultdict(deque)  # by the crew drawn for them
        self._crew_of: dict[int, int] = {}  # by the mark with which it is drawn
        self._electors: list[Elector] = []  # as counted last
        self._electorate = Electorate(())
        world.at(0.0, self.count_electors)

    def meet(self, host: Machine) -> None:
        """Know the crew of a host that asks for the first time."""
        self._crew_of[lots.mark(str(host.crew))] = host.crew

    def take(self, host: Machine, partners: set[int]) -> Task | None:
        """Take a copy, rather one whose crews the host has not checked in this request."""
        for waiting in (self._copies[host.crew], self._copies[lots.ANYBODY]):
            if task := self._take_of(waiting, host, partners):
                return task
        return None

    def _take_of(self, waiting: deque[Task], host: Machine, partners: set[int]) -> Task | None:
        chosen = None
        for index in range(min(LOOKS, len(waiting))):
            crews = {other.crew for other in waiting[index].holders.values()}
            if host.crew in crews:
                continue
            if not self._world.rules.terms or crews.isdisjoint(partners):
                chosen = index
                break
            if self._world.fresh >= self._world.setting.jobs:
                chosen = index if chosen is None else chosen
        if chosen is None:
            return None
        task = waiting[chosen]
        partners |= {other.crew for other in task.holders.values()}
        del waiting[chosen]
        task.job.queued.pop()
        return task

    def count_electors(self) -> None:
        """Count the crews at work, as the feeder does, and draw among them what waits."""
        here = self._world.crews_at_work()
        now = self._world.now - lots.NEW_SECONDS
        self._electors = [
            Elector(str(crew), crew, host.came is None or host.came > now)
            for crew, host in sorted(here.items())
        ]
        self._electorate = Electorate(self._electors)
        pause = SOON_SECONDS if len(here) < SOME else COUNT_SECONDS
        self._world.at(self._world.now + pause, self.count_electors)
        undrawn = [*self._copies[lots.NOBODY], *self._copies[lots.ANYBODY]]
        self._copies[lots.NOBODY].clear()
        self._copies[lots.ANYBODY].clear()
        for task in undrawn:
            self.add(task)

    def add(self, task: Task) -> None:
        """Let a copy wait for the crew that is drawn for it."""
        holders = {other.crew for other in task.holders.values()}
        drawn = lots.ANYBODY
        if self._world.rules.terms:
            workers = self._workers() if task.vain else ()
            drawn = self._electorate.draw(holders, self._world.random.random(), task.vain, workers)
        crew = self._crew_of.get(drawn, drawn)
        self._copies[crew].append(task)
        if drawn not in (lots.ANYBODY, lots.NOBODY):
            self._world.at(self._world.now + DRAW_SECONDS, lambda: self._draw_again(task, crew))

    def _workers(self) -> list[Elector]:
        return [elector for elector in self._electors if self._world.crew_unjudged[elector.owner]]

    def _draw_again(self, task: Task, crew: int) -> None:
        if task in self._copies[crew]:
            self._copies[crew].remove(task)
            task.vain += 1
            self.add(task)

    def withdraw(self, task: Task) -> None:
        """Let a copy wait no longer."""
        for waiting in self._copies.values():
            if task in waiting:
                waiting.remove(task)
                return
