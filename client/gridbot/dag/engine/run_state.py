"""What all rules of the engine read and change: nodes, what is under way, what is to be done."""

from __future__ import annotations

from dataclasses import dataclass

from gridbot.dag.engine.actions import Action, CancelJobs, Note, RunScript, SubmitNode
from gridbot.dag.engine.limits import Throttles
from gridbot.dag.engine.ready import ReadyQueue
from gridbot.dag.engine.script_turns import HoldScripts, ScriptTurns
from gridbot.dag.engine.table import DagStatus, NodeState, NodeStatus, Table
from gridbot.dag.language.model import Dag


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """A rule wants the run to end."""

    status: DagStatus
    code: int
    why: str


class RunState:
    """One run.  The methods keep sums and queues true; what they mean stands in the rules."""

    def __init__(self, dag: Dag, limits: Throttles) -> None:
        self.dag, self.limits = dag, limits
        self.table = Table(dag)
        self.status = DagStatus.OK
        self.exit_code: int | None = None
        self.is_halted = False
        self.why = ""  # it ends early
        self.has_begun = False
        self.is_provisioned = False  # nodes of the graph may begin
        self.ends_with: int | None = None  # what it would exit with, without a FINAL node
        self.stops = False  # what runs is stopped
        self.early_end: EarlyEnd | None = None
        self.final = self.table.nodes[dag.final.name] if dag.final else None
        self.ready = ReadyQueue(dag.throttles, limits.depth_first, limits.priority)
        self.scripts, self.hold_scripts = ScriptTurns(limits), HoldScripts(limits)
        self.active = 0  # nodes with jobs or scripts; service nodes do not count
        self.submitted = 0  # nodes with jobs
        self.unconfirmed = 0  # nodes whose jobs are being submitted
        self.jobs_submitted = self.jobs_succeeded = self.jobs_failed = 0
        self.actions: list[Action] = []

    @property
    def is_ending(self) -> bool:
        """Whether no further node begins but the FINAL one."""
        return self.ends_with is not None

    def counts_no_more(self, state: NodeState) -> bool:
        """Whether the run ends, and this is not its FINAL node."""
        return self.is_ending and state is not self.final

    def end_early(self, status: DagStatus, code: int, why: str) -> None:
        """Let the run end once the present rule is through; nothing if it ends already."""
        if not self.is_ending:
            self.early_end = EarlyEnd(status, code, why)

    # --- scripts

    def want_script(self, state: NodeState, kind: str) -> None:
        """Let a node's script run when its turn comes."""
        self.table.move(state, NodeStatus.PRERUN if kind == "PRE" else NodeStatus.POSTRUN)
        state.script = kind
        if state.node.counts:
            self.active += 1
        self.scripts.add(state)

    def start_script(self, state: NodeState) -> None:
        """Its turn has come."""
        self.note(state, f"{state.script}_SCRIPT_STARTED")
        self.actions.append(RunScript(state.name, state.script))

    def leave_script(self, state: NodeState) -> None:
        """A node's script is over."""
        self.scripts.leave(state)
        if state.node.counts:
            self.active -= 1

    # --- jobs

    def submit(self, state: NodeState) -> None:
        """Let a node's jobs be submitted."""
        self.table.move(state, NodeStatus.SUBMITTED)
        state.is_submitting = True
        if state.node.counts:
            self.submitted += 1
            self.active += 1
        self.unconfirmed += 1
        self.actions.append(SubmitNode(state.name))

    def leave_queue(self, state: NodeState) -> None:
        """None of a node's jobs is left."""
        self.ready.left(state)
        if state.node.counts:
            self.submitted -= 1
            self.active -= 1

    def take_job(self, state: NodeState, process: int) -> bool:
        """Take a job out of the queue; whether it was there."""
        state.held.discard(process)
        if process in state.idle:
            state.idle.discard(process)
            self.table.idle_jobs -= 1
            return True
        if process in state.running:
            state.running.discard(process)
            return True
        return False

    def cancel_jobs(self, state: NodeState) -> None:
        """Cancel all jobs of a node that have not ended."""
        state.is_cancelling = True
        self.actions.append(CancelJobs(state.name, tuple(sorted(state.queued))))

    # --- the record

    def note(self, state: NodeState, text: str, process: int | None = None) -> None:
        """A line of the job state log."""
        self.actions.append(Note(state.name, text, process))
