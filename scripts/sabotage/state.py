"""What a run is about, its hosts and its jobs, what is known of them, and what came of it."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gridbot_server.cycles.job import Job, Rules
from gridbot_server.matching import width
from gridbot_server.matching.assurance import AssuranceTerms
from gridbot_server.matching.track_record import NEWCOMER, TrackRecord, coin
from scripts.sabotage.strategies import STRATEGIES

MAX_ATTEMPTS = 10
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
JOB_SECONDS = 600.0
RIGHT = b"right"


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
    secret: str
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

    def coin(self, replica: int) -> float:
        """Return the coin of a replica; of replica 0: the job's."""
        return coin(self.secret, 0, self.seq, replica)

    def __hash__(self) -> int:
        """By its number: sets of tasks have the same order in each run of a seed."""
        return self.seq


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is about."""

    strategy: str
    rule: str  # assured, q1, q2, q3, adaptive
    jobs: int = 100_000
    hosts: int = 200
    liars: int = 20
    machines: int = 1  # of each honest owner
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


class World:
    """A clock, the hosts and jobs of a run, and what a server would keep of them in tables."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.strategy = STRATEGIES[setting.strategy]
        self.rules = _rules(setting)
        self.secret = f"{setting.strategy} {seed}"
        self.random = random.Random(self.secret)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.tally = Tally()
        self.hosts: list[Machine] = []
        self.fresh = 0  # jobs that were sent
        self.settled = 0  # jobs with an outcome
        self.provisional: set[Task] = set()
        self.relying: dict[int, set[Task]] = defaultdict(set)  # by host
        self.machines: dict[int, list[Machine]] = defaultdict(list)  # by crew
        self.standing: dict[int, TrackRecord] = defaultdict(lambda: NEWCOMER)
        self.crew_standing: dict[int, TrackRecord] = defaultdict(lambda: NEWCOMER)
        self.crew_width: dict[int, float] = defaultdict(lambda: width.START)
        self.crew_unjudged: dict[int, int] = defaultdict(int)
        self.streaks: dict[int, int] = defaultdict(int)  # of BOINC's adaptive rule

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do something at a time (s)."""
        heapq.heappush(self.events, (when, next(self._order), act))

    def crews_at_work(self) -> dict[int, Machine]:
        """Return the last host of each crew that asks for work."""
        return {host.crew: host for host in self.hosts if host.came is not None and not host.gone}


def _rules(setting: Setting) -> Rules:
    terms = None
    if setting.rule == "assured":
        terms = AssuranceTerms(setting.assurance)
    quorum = int(setting.rule[1]) if setting.rule[0] == "q" else 1
    if setting.rule.endswith("p"):  # a quorum as the server judges it among strangers
        terms = AssuranceTerms(quorum=quorum, is_explicit=False)
    if setting.rule == "adaptive":
        quorum = 2
    return Rules(quorum, MAX_ATTEMPTS, terms=terms)
