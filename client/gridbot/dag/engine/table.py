"""The state of a run: of each node, and in sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum

from gridbot.dag.language.model import Dag, DagNode


class NodeStatus(IntEnum):
    """State of a node; the numbers stand in DAGMan's files."""

    NOT_READY = 0
    READY = 1
    PRERUN = 2
    SUBMITTED = 3
    POSTRUN = 4
    DONE = 5
    ERROR = 6
    FUTILE = 7


class DagStatus(IntEnum):
    """State of the run; the numbers are those of `$DAG_STATUS`."""

    OK = 0
    ERROR = 1
    NODE_FAILED = 2
    ABORT = 3
    RM = 4
    CYCLE = 5
    HALTED = 6


# Values of nodes that have no exit code.
SUBMIT_FAILED, JOB_REMOVED, LOG_ERROR, PRE_FAILED = -1001, -1002, -1003, -1004


class ScriptPhase(Enum):
    """What a node's PRE or POST script does."""

    NONE = "none"
    WAITS = "waits"  # for its turn
    RUNS = "runs"
    DEFERRED = "deferred"  # until it is due again


@dataclass(slots=True, eq=False)
class NodeState:
    """What is known of one node."""

    node: DagNode
    status: NodeStatus = NodeStatus.NOT_READY
    waiting: int = 0  # parents that have not ended
    retries: int = 0  # that were used
    attempts: int = 0  # how often it was begun
    cluster: int = 0
    idle: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    jobs: int = 0
    codes: dict[int, int] = field(default_factory=dict)  # by process, of those that ended
    removed: int = 0
    failures: int = 0  # of its jobs
    value: int | None = None
    pre_code: int | None = None
    script: str = ""  # PRE or POST, while that is not over
    phase: ScriptPhase = ScriptPhase.NONE
    held: set[int] = field(default_factory=set)  # those of its jobs that wait and are held
    is_open: bool = False  # further jobs may follow
    lacks_jobs: bool = False  # that should have followed
    is_submitting: bool = False
    is_cancelling: bool = False  # its jobs are to end
    submit_tries: int = 0
    awaits_submit: bool = False  # another attempt is due later
    has_begun: bool = False
    was_stopped: bool = False  # the run ended while it was at work
    details: str = ""  # why it is in this state, as DAGMan says it

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def queued(self) -> set[int]:
        """Processes that have not ended."""
        return self.idle | self.running

    @property
    def has_jobs(self) -> bool:
        """Whether any of its jobs has not ended."""
        return bool(self.idle or self.running)

    @property
    def has_failed(self) -> bool:
        """Whether it failed by itself, and was not stopped with the run."""
        return self.status is NodeStatus.ERROR and not self.was_stopped

    @property
    def max_retries(self) -> int:
        """How often it may be repeated."""
        return self.node.retries or 0


class Table:
    """The nodes of a run with sums that are kept up to date."""

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self.nodes: dict[str, NodeState] = {name: NodeState(n) for name, n in dag.nodes.items()}
        self.counts: Counter[NodeStatus] = Counter()
        self.idle_jobs = 0
        for state in self.nodes.values():
            node = state.node
            state.waiting = len(node.parents) + len(node.weak_parents)
            if node.done:
                state.status = NodeStatus.DONE
                state.details = "" if node.is_rescued else "User defined as DONE"
            elif not state.waiting and not node.is_aside:
                state.status = NodeStatus.READY
            if node.counts:
                self.counts[state.status] += 1

    def add(self, node: DagNode) -> NodeState:
        """One more node, whose parents are there."""
        state = self.nodes[node.name] = NodeState(node)
        self.counts[state.status] += 1
        for name in node.parents:
            parent = self.nodes[name]
            parent.node = replace(parent.node, children=(*parent.node.children, node.name))
            state.waiting += parent.status is not NodeStatus.DONE
        return state

    def move(self, state: NodeState, status: NodeStatus) -> None:
        """Change a node's state."""
        if state.node.counts:
            self.counts[state.status] -= 1
            self.counts[status] += 1
        state.status = status

    @property
    def total(self) -> int:
        """How many nodes there are; service nodes do not count."""
        return sum(self.counts.values())

    def done(self) -> int:
        """Nodes that are done."""
        return self.counts[NodeStatus.DONE]

    def sums(self, ready: int) -> Mapping[str, int]:
        """Totals as the status file names them; `ready` is the length of the ready queue."""
        counts = self.counts
        known = {
            "Done": counts[NodeStatus.DONE],
            "Pre": counts[NodeStatus.PRERUN],
            "Queued": counts[NodeStatus.SUBMITTED],
            "Post": counts[NodeStatus.POSTRUN],
            "Ready": ready,
            "Failed": counts[NodeStatus.ERROR],
            "Futile": counts[NodeStatus.FUTILE],
        }
        return {"Total": self.total, "Unready": self.total - sum(known.values()), **known}
