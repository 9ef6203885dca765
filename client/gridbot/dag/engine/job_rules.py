"""What happens to the jobs of a node, from their submission to the end of the last."""

from __future__ import annotations

from gridbot.dag.engine import events
from gridbot.dag.engine.actions import Wait
from gridbot.dag.engine.node_rules import NodeRules, how_it_ended
from gridbot.dag.engine.run_rules import RunRules
from gridbot.dag.engine.run_state import RunState
from gridbot.dag.engine.table import JOB_REMOVED, SUBMIT_FAILED, DagStatus, NodeState, NodeStatus
from gridbot.dag.language.model import Kind


class JobRules:
    """What becomes of a node's jobs."""

    def __init__(self, run: RunState, nodes: NodeRules, course: RunRules) -> None:
        self._run, self._nodes, self._course = run, nodes, course

    # --- submission

    def was_submitted(self, event: events.NodeSubmitted) -> None:
        """A node's jobs are in the queue."""
        run, state = self._run, self._run.table.nodes[event.node]
        if not state.is_submitting:
            return
        state.is_submitting = state.awaits_submit = False
        state.cluster, state.jobs, state.is_open = event.cluster, 0, event.is_open
        state.idle, state.running, state.held = set(), set(), set()
        run.unconfirmed -= 1
        self._queue(state, event.jobs)
        if run.counts_no_more(state):
            run.cancel_jobs(state)
        elif not event.jobs:
            self._are_over(state)
        elif event.is_ready:
            self._course.provisioned()

    def _queue(self, state: NodeState, jobs: int) -> None:
        """Put jobs into the queue behind those that the node has."""
        run, first = self._run, state.jobs
        state.jobs += jobs
        state.idle.update(range(first, state.jobs))
        run.table.idle_jobs += jobs
        run.jobs_submitted += jobs
        for process in range(first, state.jobs):
            run.note(state, "SUBMIT", process)

    def more(self, event: events.JobsAdded) -> None:
        """An open node has further jobs."""
        run, state = self._run, self._run.table.nodes[event.node]
        if not state.is_open:
            return
        self._queue(state, event.jobs)
        if run.counts_no_more(state):
            run.cancel_jobs(state)

    def closed(self, event: events.NodeClosed) -> None:
        """An open node gets no further jobs."""
        state = self._run.table.nodes[event.node]
        if not state.is_open:
            return
        state.is_open = False
        if event.reason:
            state.lacks_jobs, state.details = True, event.reason
        self._are_over(state)

    def submit_failed(self, event: events.SubmitFailed) -> None:
        """Try again later, or give the node up."""
        run, state = self._run, self._run.table.nodes[event.node]
        if not state.is_submitting or state.awaits_submit:
            return
        run.note(state, "SUBMIT_FAILURE")
        state.submit_tries += 1
        if state.submit_tries < run.limits.submit_attempts and not event.is_final:
            if not run.counts_no_more(state):
                state.awaits_submit = True
                run.actions.append(Wait(state.name, "SUBMIT", 2.0 ** (state.submit_tries - 1)))
            return
        state.is_submitting = False
        run.unconfirmed -= 1
        run.leave_queue(state)
        state.value = SUBMIT_FAILED
        state.details = f"Job submit failed: {event.reason}".splitlines()[0]
        state.retries = state.max_retries
        self._tell_node(state, has_failed=True)

    # --- one job

    def started(self, event: events.JobStarted) -> None:
        """A job runs."""
        run, state = self._run, self._run.table.nodes[event.node]
        if event.process in state.idle:
            state.idle.discard(event.process)
            state.held.discard(event.process)
            state.running.add(event.process)
            run.table.idle_jobs -= 1
            run.note(state, "EXECUTE", event.process)

    def held(self, event: events.JobHeld) -> None:
        """A job that waits is held."""
        state = self._run.table.nodes[event.node]
        if event.process in state.idle and event.process not in state.held:
            state.held.add(event.process)
            self._run.note(state, "JOB_HELD", event.process)
            if state.node.hold:
                self._run.hold_scripts.add(state)

    def released(self, event: events.JobReleased) -> None:
        """It is held no more."""
        state = self._run.table.nodes[event.node]
        if event.process in state.held:
            state.held.discard(event.process)
            self._run.note(state, "JOB_RELEASED", event.process)

    def ended(self, event: events.JobEnded) -> None:
        """A job's program has ended."""
        run, state = self._run, self._run.table.nodes[event.node]
        if not run.take_job(state, event.process):
            return
        run.note(state, "JOB_TERMINATED", event.process)
        state.codes[event.process] = event.code
        run.jobs_succeeded += not event.code
        if event.code:
            run.jobs_failed += 1
            state.failures += 1
            if state.value is None:
                state.value = event.code
                which = f"Job proc ({state.cluster}.{event.process}.0)"
                state.details = f"{which} failed with {how_it_ended(event.code)}"
            self._stop_others(state)
        self._are_over(state)

    def removed(self, event: events.JobRemoved) -> None:
        """A job was cancelled, or given up."""
        run, state = self._run, self._run.table.nodes[event.node]
        if not run.take_job(state, event.process):
            return
        run.note(state, "JOB_ABORTED", event.process)
        state.removed += 1
        if state.value is None:
            state.failures += 1
            state.value = JOB_REMOVED
            state.details = f"Job proc ({state.cluster}.{event.process}.0) was aborted"
            if event.reason:
                state.details += f": {event.reason}".splitlines()[0]
            self._stop_others(state)
        self._are_over(state)

    def _stop_others(self, state: NodeState) -> None:
        """Cancel a node's other jobs when too many have failed."""
        waits, most = state.node.tolerance_waits, self._tolerated(state)
        if waits is None:
            waits = not self._run.limits.remove_others
        if state.failures == most + 1 and state.has_jobs and not waits:
            self._run.cancel_jobs(state)

    # --- all of them

    def _are_over(self, state: NodeState) -> None:
        if state.has_jobs or state.is_open:
            return
        self._run.leave_queue(state)
        failed = state.lacks_jobs or state.failures > self._tolerated(state)
        if not failed:
            state.value = 0
        verdict = "JOB_FAILURE" if failed else "JOB_SUCCESS"
        self._run.note(state, f"{verdict} {state.value or 0}")
        self._tell_node(state, failed)

    def _tell_node(self, state: NodeState, has_failed: bool) -> None:
        if state.node.kind is Kind.PROVISIONER and not self._run.is_provisioned:
            self._provisioner_ended(state, has_failed)
        else:
            self._nodes.jobs_are_over(state, has_failed)

    def _provisioner_ended(self, state: NodeState, has_failed: bool) -> None:
        """It has not said that it is ready, and cannot any more, so its end is the end."""
        self._run.table.move(state, NodeStatus.ERROR if has_failed else NodeStatus.DONE)
        why = f"the provisioner {state.name} ended before it said that it is ready"
        self._run.end_early(DagStatus.NODE_FAILED if has_failed else DagStatus.ERROR, 1, why)

    def _tolerated(self, state: NodeState) -> int:
        """How many failed jobs of a node are borne."""
        node = state.node
        if node.tolerance is None:
            return self._run.limits.job_failures
        if not node.tolerance_is_share:
            return int(node.tolerance)
        return state.jobs * round(node.tolerance * 1000) // 100_000  # whole numbers are exact
