"""The engine: hands each event to its rule, then begins what may begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from gridbot.dag.engine import events
from gridbot.dag.engine.actions import Action, CancelJobs, KillScript, RunScript, SubmitNode
from gridbot.dag.engine.job_rules import JobRules
from gridbot.dag.engine.limits import Throttles
from gridbot.dag.engine.node_rules import NodeRules
from gridbot.dag.engine.run_rules import RunRules
from gridbot.dag.engine.run_state import RunState
from gridbot.dag.engine.script_turns import KINDS
from gridbot.dag.engine.table import DagStatus, NodeStatus, ScriptPhase, Table
from gridbot.dag.language.model import Dag


class DagEngine:
    """One run of a DAG.

    `apply` takes an event and returns what is to be done.  An event that does not fit the state,
    such as the second end of a job, changes nothing.
    """

    def __init__(self, dag: Dag, limits: Throttles | None = None) -> None:
        self._run = RunState(dag, limits or Throttles())
        self._nodes = NodeRules(self._run)
        self._course = RunRules(self._run, self._nodes)
        self._jobs = JobRules(self._run, self._nodes, self._course)
        self._rules: Mapping[str, Callable[..., None]] = {
            "began": self._course.began,
            "script_ended": self._script_ended,
            "submitted": self._jobs.was_submitted,
            "submit_failed": self._jobs.submit_failed,
            "job_started": self._jobs.started,
            "job_held": self._jobs.held,
            "job_released": self._jobs.released,
            "job_ended": self._jobs.ended,
            "job_removed": self._jobs.removed,
            "due": self._due,
            "halted": self._course.halted,
            "removed": self._course.removed,
            "provisioned": self._course.provisioned,
            "broken": self._course.broken,
            "added": self._nodes.added,
            "jobs_added": self._jobs.more,
            "closed": self._jobs.closed,
        }

    # --- what others ask

    @property
    def dag(self) -> Dag:
        """What it runs."""
        return self._run.dag

    @property
    def table(self) -> Table:
        """The state of each node."""
        return self._run.table

    @property
    def exit_code(self) -> int | None:
        """DAGMan's exit code, once the run has ended."""
        return self._run.exit_code

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._run.exit_code is not None

    @property
    def status(self) -> DagStatus:
        """Why it ends, or has ended."""
        return self._run.status

    @property
    def why(self) -> str:
        """Why it ends early, for people."""
        return self._run.why

    @property
    def is_halted(self) -> bool:
        """Whether nothing new begins for the time being."""
        return self._run.is_halted

    @property
    def awaits_provisioner(self) -> bool:
        """Whether the nodes of the graph wait until the PROVISIONER is ready."""
        run = self._run
        return run.has_begun and not run.is_provisioned and not run.is_ending

    @property
    def ready(self) -> int:
        """How many nodes wait for their submission."""
        return len(self._run.ready)

    @property
    def jobs_submitted(self) -> int:
        """How many jobs there were."""
        return self._run.jobs_submitted

    @property
    def jobs_succeeded(self) -> int:
        """How many exited with 0."""
        return self._run.jobs_succeeded

    @property
    def jobs_failed(self) -> int:
        """How many ended otherwise."""
        return self._run.jobs_failed

    @property
    def dag_status(self) -> DagStatus:
        """State of the run, as scripts see it."""
        if self.status is DagStatus.OK and self.table.counts[NodeStatus.ERROR]:
            return DagStatus.NODE_FAILED
        return self.status

    def apply(self, event: events.RunEvent) -> Sequence[Action]:
        """Take an event; return what is to be done."""
        self._run.actions = []
        if not self.is_over:
            self._rules[event.name](event)
            self._course.end_as_asked()
            while self._run.has_begun and self._advance():
                pass
        return self._run.actions

    def end_unrun(self) -> None:
        """End it with 0 before anything has begun: only its reports are wanted."""
        self._run.exit_code = 0

    def outstanding(self) -> Iterator[Action]:
        """What has to be going on now, to be begun again after a crash.

        What waits for its time is not among it: the times stand in the journal.
        """
        for state in self.table.nodes.values():
            if state.is_submitting and not state.awaits_submit:
                yield SubmitNode(state.name)
            elif state.is_cancelling and state.has_jobs:
                yield CancelJobs(state.name, tuple(sorted(state.queued)))
            elif state.phase is ScriptPhase.RUNS:
                is_stopped = self._run.stops and state is not self._run.final
                kind = KillScript if is_stopped else RunScript
                yield kind(state.name, state.script)
        for state in self._run.hold_scripts.running():
            yield KillScript(state.name, "HOLD")

    # --- rules

    def _script_ended(self, event: events.ScriptEnded) -> None:
        if event.kind == "HOLD":  # which decides nothing
            self._run.hold_scripts.ended(self.table.nodes[event.node])
        else:
            self._nodes.script_ended(event)

    def _due(self, event: events.Due) -> None:
        state = self.table.nodes[event.node]
        if event.kind != "SUBMIT":
            self._nodes.script_is_due(state, event.kind)
        elif state.awaits_submit:
            state.awaits_submit = False
            self._run.actions.append(SubmitNode(state.name))

    # --- what goes on

    def _advance(self) -> bool:
        """Begin what may begin now; when nothing is left, end, or return that FINAL has begun."""
        run = self._run
        for kind in KINDS:
            only = run.final if kind == "PRE" and run.is_halted else None
            if only is None and kind == "PRE" and run.is_halted:
                continue
            for state in run.scripts.due(kind, only):
                run.start_script(state)
        for state in run.hold_scripts.due():
            run.actions.append(RunScript(state.name, "HOLD"))
        while self._may_submit() and (ready := run.ready.take()):
            run.submit(ready)
        if run.active or self._goes_on() or self.is_over:
            return False
        self._course.nothing_goes_on()
        return not self.is_over  # but for the FINAL node, which has its turn now

    def _goes_on(self) -> bool:
        run = self._run
        return bool(len(run.ready)) and not run.is_halted and not run.is_ending

    def _may_submit(self) -> bool:
        run, limits = self._run, self._run.limits
        if run.final is not None and run.final.has_begun:
            return True
        if run.is_halted or run.is_ending:
            return False
        if limits.max_jobs and run.submitted >= limits.max_jobs:
            return False
        return not limits.max_idle or run.table.idle_jobs + run.unconfirmed < limits.max_idle
