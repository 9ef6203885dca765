"""The tables of the database that decisions read and write, as objects.

Only columns that a decision reads are here; `sql/migrations` says what they mean.  Times are
seconds since the epoch, by the virtual clock.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gridbot_client.protocol.messages import Manifest
from gridbot_server.storage.states import State

DAY = 86_400.0
_LEAST_POWER = -600.0  # of e: PostgreSQL refuses what underflows

Job = tuple[int, int]  # BOT and number
Replica = tuple[int, int, int]


@dataclass(slots=True)
class StoredOwner:
    """A row of `owner`."""

    id: int
    name: str
    share: float = 1.0


@dataclass(slots=True)
class StoredBot:
    """A row of `bot`, with its counters of `bot_stat`; job n has the argument `i`, which is n."""

    id: int
    owner: int
    name: str
    size: int
    policy: str
    manifest: Manifest
    created_at: float
    state: str = "running"
    version: int = 1
    quorum: int = 1
    max_attempts: int = 3
    max_replicas: int = 5
    max_failures: str | None = None
    failover_after: int | None = None
    tail_threshold: int | None = None
    tail_sticky: bool = True
    tail: bool = False
    tail_since: float | None = None
    watched: bool = True
    held: str | None = None
    suspended: str | None = None
    fed: int = 0
    gathered: int = 0
    outcomes: int = 0
    done: int = 0
    failed: int = 0
    turnaround_sum: float = 0.0
    turnaround_n: int = 0
    recent_runs: list[float] = field(default_factory=list)
    usual_seconds: float | None = None
    ended_at: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    text: str = ""
    manifest_id: str = ""

    def __post_init__(self) -> None:
        self.text = self.manifest.text()
        self.manifest_id = hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def mean_turnaround(self) -> float | None:
        """Of its valid replicas, in seconds."""
        return self.turnaround_sum / self.turnaround_n if self.turnaround_n else None

    @property
    def first(self) -> int:
        """First copies that were sent."""
        return self.counts["sent_first"]

    @property
    def queued(self) -> int:
        """Further copies that wait."""
        return max(0, self.counts["queued"] - self.counts["unqueued"])

    @property
    def running(self) -> int:
        """Replicas in progress."""
        sent = sum(count for name, count in self.counts.items() if name.startswith("sent_"))
        return max(0, sent - self.counts["back"])

    def arguments(self, seq: int) -> str:
        """The arguments of a job, as PostgreSQL writes JSON."""
        return f'{{"i": {seq}}}'


@dataclass(slots=True)
class StoredHost:
    """A row of `host`."""

    id: int
    owner: int
    grid: str | None
    recent_at: float
    name: str | None = None
    error_rate: float = 0.1
    mean_turnaround: float | None = None
    good: int = 0  # valid replicas on the day `jobs_day`
    jobs_day: int = 0
    cpu: float = 0.0  # as of `recent_at`
    width: float = 8.0

    @property
    def crew(self) -> str:
        """Who answers for it."""
        return f"owner {self.owner}" if self.grid is None else f"grid {self.grid}"

    def jobs_today(self, now: float) -> int:
        """Valid replicas on this day."""
        return self.good if self.jobs_day == int(now // DAY) else 0

    def recent_cpu(self, now: float) -> float:
        """CPU seconds that gave valid outputs, decaying."""
        return self.cpu * math.exp(max(_LEAST_POWER, (self.recent_at - now) / DAY))


@dataclass(slots=True)
class StoredClient:
    """A row of `client`."""

    id: int
    hash: bytes
    host: int
    owner: int
    grid: str | None
    seen_at: float
    accepts: tuple[int, ...] = ()
    trusts: tuple[int, ...] = ()
    dedicated: bool = False
    seqno: int = -1
    last_key: str = ""
    contact_seconds: float | None = None
    silent_since: float | None = None
    cached: tuple[str, ...] = ()  # as in the row of `client_cache`
    jobs: int = 0
    failures: int = 0
    core_seconds: float = 0.0
    failure: str | None = None


@dataclass(slots=True)
class StoredLease:
    """A row of `lease`."""

    bot: int
    seq: int
    replica: int
    round: int
    why: str
    client: int
    host: int
    owner: int
    sent_at: float
    deadline: float

    @property
    def name(self) -> Replica:
        """Its key."""
        return self.bot, self.seq, self.replica


@dataclass(slots=True)
class StoredEnd:
    """A row of `ended`."""

    lease: StoredLease
    how: str
    reason: str
    ended_at: float
    exit_code: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    digest: bytes | None = None
    stderr: str | None = None
    valid: bool | None = None


@dataclass(slots=True)
class StoredCopy:
    """A row of `requeue`."""

    bot: int
    seq: int
    replica: int
    round: int
    why: str
    not_before: float
    prio: int = 0
    pool: str | None = None
    vain: int = 0
    machine: str | None = None
    claimed_until: float = 0.0

    @property
    def name(self) -> Replica:
        """Its key."""
        return self.bot, self.seq, self.replica


@dataclass(slots=True)
class StoredOutcome:
    """A row of `outcome`."""

    round: int
    canonical: int | None
    reason: str | None
    n: int
    credit: float


@dataclass(slots=True)
class Brake:
    """A row of `brake`."""

    reason: str
    exit_code: int | None
    line: str
    replicas: int
    voters: list[int]


@dataclass(slots=True)
class Appraisal:
    """A row of `appraisal`."""

    cpus: int
    limit_seconds: float
    seconds: float | None
    votes: int


@dataclass(slots=True)
class FeedRange:
    """A row of `feed_range`; its BOT and lowest job are its key."""

    hi: int
    machine: str
    expires_at: float


class Tables:
    """All rows, and the virtual clock that statements go by."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.owners: dict[int, StoredOwner] = {}
        self.bots: dict[int, StoredBot] = {}
        self.hosts: dict[int, StoredHost] = {}
        self.clients: dict[int, StoredClient] = {}
        self.by_token: dict[bytes, StoredClient] = {}
        self.leases: defaultdict[Job, dict[int, StoredLease]] = defaultdict(dict)
        self.held: defaultdict[int, dict[Replica, StoredLease]] = defaultdict(dict)  # by client
        self.deadlines: list[tuple[float, Replica, int]] = []  # a heap; some are gone by now
        self.waiting: defaultdict[Job, dict[int, StoredCopy]] = defaultdict(dict)
        self.queues: defaultdict[int, dict[Replica, StoredCopy]] = defaultdict(dict)  # by BOT
        self.running: defaultdict[int, dict[int, None]] = defaultdict(dict)  # jobs leased, by BOT
        self.ended: defaultdict[Job, dict[int, StoredEnd]] = defaultdict(dict)
        self.outcomes: dict[Job, StoredOutcome] = {}
        self.pending: list[Job] = []
        self.ranges: dict[Job, FeedRange] = {}  # by BOT and lowest job
        self.crews: dict[str, float] = {}  # width
        self.kinds: dict[Job, str] = {}
        self.brakes: dict[int, Brake] = {}
        self.appraisals: dict[int, Appraisal] = {}
        self.paces: dict[int, float] = {}  # of hosts
        self.credit: defaultdict[int, float] = defaultdict(float)  # of hosts
        self.owners_credit: defaultdict[int, float] = defaultdict(float)
        self.epoch = 1
        self.cancelled: list[int] = []  # clients that hold what is wanted no more

    # ------------------------------------------------------------------------------ rows

    def add_client(self, client: StoredClient) -> None:
        """Add a row of `client`."""
        self.clients[client.id] = self.by_token[client.hash] = client

    def lease(self, lease: StoredLease) -> None:
        """Add a row of `lease`."""
        self.leases[lease.bot, lease.seq][lease.replica] = lease
        self.held[lease.client][lease.name] = lease
        self.running[lease.bot][lease.seq] = None
        heapq.heappush(self.deadlines, (lease.deadline, lease.name, lease.client))

    def unlease(self, lease: StoredLease) -> None:
        """Remove a row of `lease`."""
        job = lease.bot, lease.seq
        del self.held[lease.client][lease.name]
        del self.leases[job][lease.replica]
        if not self.leases[job]:
            del self.leases[job]
            del self.running[lease.bot][lease.seq]

    def find_lease(self, bot: int, seq: int, replica: int) -> StoredLease | None:
        """Return a row of `lease`."""
        job = bot, seq
        return self.leases[job].get(replica) if job in self.leases else None

    def end(self, lease: StoredLease, end: StoredEnd) -> None:
        """Move a row of `lease` to `ended`."""
        self.unlease(lease)
        self.ended[lease.bot, lease.seq][lease.replica] = end

    def find_end(self, bot: int, seq: int, replica: int) -> StoredEnd | None:
        """Return a row of `ended`."""
        job = bot, seq
        return self.ended[job].get(replica) if job in self.ended else None

    def ends(self, bot: int, seq: int) -> Iterator[StoredEnd]:
        """The rows of `ended` of a job."""
        if (bot, seq) in self.ended:
            yield from self.ended[bot, seq].values()

    def queue(self, copy: StoredCopy) -> bool:
        """Add a row of `requeue`; False if there is one already."""
        if copy.name in self.queues[copy.bot]:
            return False
        self.waiting[copy.bot, copy.seq][copy.replica] = self.queues[copy.bot][copy.name] = copy
        return True

    def unqueue(self, copy: StoredCopy) -> None:
        """Remove a row of `requeue`."""
        job = copy.bot, copy.seq
        del self.queues[copy.bot][copy.name]
        del self.waiting[job][copy.replica]
        if not self.waiting[job]:
            del self.waiting[job]

    def overdue(self, most: int) -> list[StoredLease]:
        """Return leases whose deadline has passed, the earliest first."""
        found: list[StoredLease] = []
        while self.deadlines and self.deadlines[0][0] < self.now and len(found) < most:
            deadline, name, client = heapq.heappop(self.deadlines)
            lease = self.find_lease(*name)
            if lease is not None and (lease.deadline, lease.client) == (deadline, client):
                found.append(lease)
        return found

    def is_silent(self, client: int) -> bool:
        """Whether a client was found to be silent."""
        return client in self.clients and self.clients[client].silent_since is not None

    def voter(self, lease: StoredLease) -> int:
        """Who answers with a replica: of BOTs that are not signed, its host."""
        return lease.host

    def unanswered(
        self, leases: list[StoredLease], how: str, reason: str
    ) -> list[tuple[int, str, int]]:
        """End leases without an answer; return how many, by BOT and grid."""
        gone = Counter[tuple[int, str]]()
        for lease in leases:
            self.end(lease, StoredEnd(lease, how, reason, self.now))
            if how == State.CANCELLED:
                self.cancelled.append(lease.client)
            else:
                self.pending.append((lease.bot, lease.seq))
            gone[lease.bot, self.grid(lease.client)] += 1
        return [(bot, grid, count) for (bot, grid), count in gone.items()]

    def grid(self, client: int) -> str:
        """The grid of a client; empty for none."""
        return (self.clients[client].grid or "") if client in self.clients else ""
