"""The beginning and the end of a run: what ends it early, its FINAL node, its exit code."""

from __future__ import annotations

from gridbot.dag.engine import events
from gridbot.dag.engine.actions import Finish, KillScript, WriteRescue
from gridbot.dag.engine.node_rules import NodeRules
from gridbot.dag.engine.run_state import RunState
from gridbot.dag.engine.table import DagStatus, NodeState, NodeStatus, ScriptPhase
from gridbot.dag.language.model import Kind

_STOPPING = (DagStatus.ABORT, DagStatus.RM, DagStatus.ERROR)
_AT_WORK = (NodeStatus.SUBMITTED, NodeStatus.PRERUN, NodeStatus.POSTRUN)


class RunRules:
    """What becomes of the run."""

    def __init__(self, run: RunState, nodes: NodeRules) -> None:
        self._run, self._nodes = run, nodes

    def began(self, _: events.Began) -> None:
        """Begin the nodes that wait for nobody."""
        run = self._run
        states = run.table.nodes
        run.has_begun = True
        for service in run.dag.of_kind(Kind.SERVICE):
            self._nodes.begin(states[service.name])
        provisioners = run.dag.of_kind(Kind.PROVISIONER)
        if provisioners and not provisioners[0].done:
            self._nodes.begin(states[provisioners[0].name])
        else:
            self._begin_graph()

    def provisioned(self, _: events.Provisioned | None = None) -> None:
        """The PROVISIONER is ready, so the others begin."""
        if self._run.has_begun and not self._run.is_provisioned and not self._run.is_ending:
            self._begin_graph()

    def _begin_graph(self) -> None:
        """Begin the nodes that have no parents, or whose parents are done."""
        run = self._run
        run.is_provisioned = True
        states = run.table.nodes
        for state in [*states.values()]:
            if state.status is NodeStatus.DONE:
                self._nodes.tell_children(state, succeeded=True)
        for state in [*states.values()]:
            if state.status is NodeStatus.READY and not state.has_begun:
                self._nodes.begin(state)

    # --- what ends it early

    def halted(self, event: events.Halted) -> None:
        """Nothing new begins until the halt is over."""
        self._run.is_halted = event.on

    def removed(self, _: events.Removed) -> None:
        """The user wants it to end."""
        self._run.end_early(DagStatus.RM, 2, "")

    def broken(self, event: events.Broken) -> None:
        """It cannot go on."""
        self._run.end_early(DagStatus.ERROR, 1, event.reason)

    def end_as_asked(self) -> None:
        """End it if a rule wanted that."""
        if (early := self._run.early_end) is not None:
            self._run.early_end = None
            self._run.why = early.why or self._run.why
            self._end(early.status, early.code)

    def _end(self, status: DagStatus, code: int) -> None:
        """Nothing new begins; what runs is stopped if the run ends early."""
        run = self._run
        run.status, run.ends_with, run.stops = status, code, status in _STOPPING
        if code:
            run.actions.append(WriteRescue())
        for state in [*run.table.nodes.values()]:
            if state.status is NodeStatus.SUBMITTED and state is not run.final:
                self._stop_jobs(state)
            elif run.stops and state.script:
                self._stop_script(state)
        if run.stops and run.final is None:
            self._finish(code)
        elif not run.active:
            self._begin_final()

    def _stop_jobs(self, state: NodeState) -> None:
        if state.has_jobs:
            self._run.cancel_jobs(state)
        elif state.awaits_submit:  # nothing is there whose end would be told
            state.is_submitting = state.awaits_submit = False
            self._run.unconfirmed -= 1
            self._run.leave_queue(state)
            self._lose(state)

    def _stop_script(self, state: NodeState) -> None:
        if state.phase is ScriptPhase.RUNS:
            self._run.actions.append(KillScript(state.name, state.script))
            return
        self._run.leave_script(state)
        self._lose(state)

    def _lose(self, state: NodeState) -> None:
        self._stop(state)
        self._nodes.tell_children(state, succeeded=False)

    # --- when nothing goes on any more

    def nothing_goes_on(self) -> None:
        """Decide how it ends; or begin the FINAL node."""
        run = self._run
        if run.final is not None and run.final.has_begun:
            self._final_ended(run.final)
        elif run.is_ending:
            self._begin_final()
        elif run.table.counts[NodeStatus.ERROR]:
            self._end(DagStatus.NODE_FAILED, 1)
        elif self._is_complete():
            self._end(DagStatus.OK, 0)
        elif run.is_halted:
            run.why = "the DAG is halted"
            self._end(DagStatus.HALTED, 1)
        else:
            run.why = "a cycle: the nodes that are left wait for each other"
            run.status = DagStatus.CYCLE
            run.actions.append(WriteRescue())
            self._finish(1)

    def _is_complete(self) -> bool:
        final, table = self._run.final, self._run.table
        to_come = final is not None and final.status is not NodeStatus.DONE
        return table.done() + to_come == table.total

    def _begin_final(self) -> None:
        run = self._run
        if run.final is None:
            self._finish(run.ends_with or 0)
        elif not run.final.has_begun:
            run.ready.clear()
            self._nodes.begin(run.final)

    def _final_ended(self, final: NodeState) -> None:
        run = self._run
        if final.status is NodeStatus.DONE:
            self._finish(0)
            return
        if run.status is DagStatus.OK:
            run.status = DagStatus.NODE_FAILED
        run.actions.append(WriteRescue())
        self._finish(run.ends_with if run.status is DagStatus.ABORT and run.ends_with else 1)

    def _finish(self, code: int) -> None:
        run = self._run
        if run.exit_code is None:
            run.exit_code = code
            for state in run.table.nodes.values():
                if state.status in _AT_WORK:
                    self._stop(state)
            run.actions.append(Finish(code))

    def _stop(self, state: NodeState) -> None:
        """The run ends while this node is at work."""
        state.details = f"Was STATUS_{state.status.name}"
        state.was_stopped = True
        self._run.table.move(state, NodeStatus.ERROR)
