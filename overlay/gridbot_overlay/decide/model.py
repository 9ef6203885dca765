"""The overlay's vocabulary: grids, what BOTs demand of them, and pilots.  No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotShape:
    """What one pilot asks its grid for; the same for all pilots of a grid."""

    nodes: int = 1
    cpus: int = 1  # of each node
    memory_mb: int = 2048  # of each node
    gpus: int = 0
    walltime_seconds: int = 3600
    idle_seconds: int = 60  # a pilot without work for so long leaves; it may leave earlier

    @property
    def all_cpus(self) -> int:
        """Cores of all its nodes."""
        return self.nodes * self.cpus


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLimits:
    """What the operator allows in one grid (paper section 5, first constraint; section 8)."""

    max_queued: int = 10  # pilots that wait in the grid's queue
    max_running: int = 100  # pilots that run
    submits_per_minute: int = 30
    budget_pilot_hours: float | None = None  # in all, over the grid's life; None: no cap
    max_queue_seconds: int = 86_400  # a pilot that has waited so long is taken back
    budget: float | None = None  # of money, in each `budget_period`; None: no cap
    budget_period: str = "ever"  # a key of money.PERIODS


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One configured grid: a batch system that the constructor may submit pilots to."""

    name: str  # also what the pilots' hosts carry as Host.Grid
    kind: str  # which submitter speaks with it, a key of submitters.KINDS
    shape: PilotShape = field(default_factory=PilotShape)
    limits: GridLimits = field(default_factory=GridLimits)
    price: float = 0.0  # of one pilot for an hour, in whatever currency; 0: it costs nothing
    is_dedicated: bool = False  # the fail-over pool of section 7: nobody preempts
    scratch: str = "${TMPDIR:-/tmp}"  # where a pilot may write on a node, expanded by its shell
    shared_cache: str = ""  # folder that all nodes see, in which pilots share inputs; "": none
    setup: tuple[str, ...] = ()  # shell lines that a node needs first, such as: module load python
    python: str = "python3"  # the interpreter on the nodes, 3.11 or newer
    # Whose BOTs its pilots run beside operators' own, unsigned ones, too; "*": everybody's.
    owners: tuple[str, ...] = ()
    directives: tuple[str, ...] = ()  # verbatim options of the batch system: --partition=long
    options: Mapping[str, Any] = field(default_factory=dict)  # what only this kind of grid has


@dataclass(frozen=True, slots=True, kw_only=True)
class BotDemand:
    """What one BOT could use now, as the server publishes it."""

    bot: int
    name: str
    owner: str
    is_operator: bool  # the owner
    share: float  # the operator's share of the owner
    unsent: int  # replicas that wait to be sent
    dedicated: int  # of those, replicas that only dedicated hosts may have
    on_pilots: Mapping[str, int]  # grid -> replicas that run on its pilots now
    seconds: float | None  # a replica's mean time so far; None: no replica has ended yet
    run_seconds: float | None  # that a replica is taken to run; None: nobody knows
    cut_off_seconds: float | None  # that the longest ran which its pilot's end cut off
    cpus: int  # of one replica
    memory_mb: int
    gpus: int
    policy: str
    ad: Mapping[str, Any]  # the BOT ad's attributes, JSON


class PilotState(StrEnum):
    """Where a pilot is, in the words of the overlay; each submitter maps its system's to these."""

    SUBMITTING = "submitting"  # recorded, its submission not yet confirmed
    QUEUED = "queued"
    HELD = "held"  # the system will not start it without help
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One pilot as its batch system sees it now."""

    tag: str  # ours, of the submission it came with
    native_id: str  # the system's, such as 123 or 123_4
    index: int = 0  # within the submission, as Pilot.index
    state: PilotState
    reason: str = ""  # the system's words: why it waits, is held, or how it ended
    node: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """One pilot as the constructor knows it.  Times are seconds since 1970."""

    tag: str
    index: int  # within the submission: 0 .. count - 1
    grid: str
    state: PilotState
    cpus: int
    native_id: str = ""  # "" until its submission is confirmed
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    owners: tuple[str, ...] = ()  # whom it may serve
    node: str = ""  # where it runs or ran
    exit_code: int | None = None
    walltime_seconds: int = 3600  # it ends after so long at the latest
    waiting_at: float | None = None  # when it was last seen to wait
    running_at: float | None = None  # when it was first seen to run
    overran_at: float | None = None  # when it was last seen to run for longer than its walltime
    has_joined: bool = False  # its client has spoken with the server
    holding: int = 0  # replicas that it holds now
    has_held: bool = False  # it has held one at some time
    jobs: int = 0  # replicas that succeeded on it, as the server says
    failures: int = 0
    core_seconds: float = 0.0  # that replicas ran on it, times their cores
    error: str = ""  # of its last failed replica
    stderr: str = ""  # the last of what it wrote there, once that was asked for
    cancelled: str = ""  # why the constructor took it back
    surplus_cycles: int = 0  # looks in a row at which nothing needed it
    is_settled: bool = False  # it has ended, and the server was told so
    is_logged: bool = False  # the server keeps its last words
    price: float = 0.0  # for an hour, when it was submitted

    @property
    def id(self) -> str:
        """What the server calls it."""
        return f"{self.tag}.{self.index}"

    @property
    def hours(self) -> float:
        """Pilot-hours that it has used; while it lives, those that it may use."""
        if self.is_live:
            return self.walltime_seconds / 3600
        if self.started_at is None or self.ended_at is None:
            return 0.0
        return max(0.0, self.ended_at - self.started_at) / 3600

    @property
    def is_live(self) -> bool:
        """Whether the batch system still has it, as far as is known."""
        return self.state is not PilotState.ENDED

    @property
    def is_waiting(self) -> bool:
        """Whether it is in its grid's queue, as far as is known."""
        return self.state in (PilotState.SUBMITTING, PilotState.QUEUED, PilotState.HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotOrder:
    """One submission: `count` equal pilots under one tag, which the batch system shows."""

    tag: str
    count: int
    shape: PilotShape
    script: str  # the whole job script's body, without the system's directives
    directives: tuple[str, ...]
    owners: tuple[str, ...]  # whom the pilots serve; shown to the site's accounting
    excluded_nodes: tuple[str, ...] = ()  # to be avoided, where the system can be told so


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that `check` looked at: green, or what is wrong and what to do."""

    what: str
    is_good: bool
    text: str
