"""The rules of DAGMan: what each event means for the nodes, and what follows from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gridbot.dag.engine import events
from gridbot.dag.engine.actions import (
    Action,
    CancelJobs,
    Finish,
    KillScript,
    Note,
    RunScript,
    Save,
    SubmitNode,
    Wait,
    WriteRescue,
)
from gridbot.dag.engine.ready import ReadyQueue
from gridbot.dag.engine.table import (
    JOB_REMOVED,
    PRE_FAILED,
    SUBMIT_FAILED,
    DagStatus,
    NodeState,
    NodeStatus,
    Table,
)
from gridbot.dag.language.model import Dag, Kind


@dataclass(frozen=True)
class Throttles:
    """How much may go on at once, and other choices; 0 is no limit."""

    max_jobs: int = 0
    max_idle: int = 1000
    max_pre: int = 20
    max_post: int = 20
    submit_attempts: int = 6
    always_run_post: bool = False
    retry_node_first: bool = False
    depth_first: bool = False
    priority: int = 0


class DagEngine:
    """One run of a DAG.

    `apply` takes an event and returns what is to be done.  An event that does not fit the state,
    such as the second end of a job, changes nothing.
    """

    def __init__(self, dag: Dag, limits: Throttles | None = None) -> None:
        self.dag, self.limits = dag, limits or Throttles()
        self.table = Table(dag)
        self.status = DagStatus.OK
        self.exit_code: int | None = None
        self.is_halted = False
        self.why = ""  # it ends early
        self.jobs_submitted = self.jobs_succeeded = self.jobs_failed = 0
        self._ready = ReadyQueue(dag.throttles, self.limits.depth_first, self.limits.priority)
        self._scripts: dict[str, deque[NodeState]] = {"PRE": deque(), "POST": deque()}
        self._running: dict[str, int] = {"PRE": 0, "POST": 0}
        self._active = 0  # nodes with jobs or scripts; service nodes do not count
        self._submitted = 0
        self._unconfirmed = 0
        self._actions: list[Action] = []
        self._ends_with: int | None = None  # what it would exit with, without a FINAL node
        self._has_begun = False
        self._final = self.table.nodes[dag.final.name] if dag.final else None
        self._rules: dict[str, Callable[..., None]] = {
            "began": self._began,
            "script_ended": self._script_ended,
            "submitted": self._was_submitted,
            "submit_failed": self._submit_failed,
            "job_started": self._job_started,
            "job_ended": self._job_ended,
            "job_removed": self._job_removed,
            "due": self._due,
            "halted": self._halted,
            "removed": self._removed,
            "broken": self._broken,
        }

    # --- what others ask

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.exit_code is not None

    @property
    def ready(self) -> int:
        """How many nodes wait for their submission."""
        return len(self._ready)

    @property
    def is_ending(self) -> bool:
        """Whether no further node begins but the FINAL one."""
        return self._ends_with is not None

    @property
    def dag_status(self) -> DagStatus:
        """State of the run, as scripts see it."""
        if self.status is DagStatus.OK and self.table.counts[NodeStatus.ERROR]:
            return DagStatus.NODE_FAILED
        return self.status

    def apply(self, event: events.RunEvent) -> Sequence[Action]:
        """Take an event; return what is to be done."""
        self._actions = []
        if not self.is_over:
            self._rules[event.name](event)
            self._advance()
        return self._actions

    def outstanding(self) -> Iterator[Action]:
        """What has to be going on now, to be begun again after a crash."""
        for state in self.table.nodes.values():
            if state.is_submitting:
                yield SubmitNode(state.name)
            elif state.script and state not in self._scripts[state.script]:
                yield RunScript(state.name, state.script)

    # --- rules

    def _began(self, _: events.Began) -> None:
        self._has_begun = True
        for service in self.dag.of_kind(Kind.SERVICE):
            self._begin(self.table.nodes[service.name])
        provisioners = self.dag.of_kind(Kind.PROVISIONER)
        if provisioners and not provisioners[0].done:
            self._begin(self.table.nodes[provisioners[0].name])
            return
        for state in [*self.table.nodes.values()]:
            if state.status is NodeStatus.DONE:
                self._tell_children(state, succeeded=True)
        for state in [*self.table.nodes.values()]:
            if state.status is NodeStatus.READY and not state.has_begun:
                self._begin(state)

    def _begin(self, state: NodeState, retried: bool = False) -> None:
        """A node's turn: its PRE script, or the queue of those to be submitted."""
        node = state.node
        if not state.has_begun and node.save_point:
            self._actions.append(Save(state.name))
        state.has_begun = True
        state.attempts += 1
        state.pre_code, state.value, state.codes = None, None, {}
        state.failures = state.removed = state.jobs = state.submit_tries = 0
        if node.pre:
            self._to_script(state, "PRE")
        else:
            self._to_queue(state, retried)

    def _to_queue(self, state: NodeState, retried: bool = False) -> None:
        self.table.move(state, NodeStatus.READY)
        front = retried and self.limits.retry_node_first
        # Those outside the graph wait for nobody.
        self._ready.add(state, front or state.node.is_aside)

    def _to_script(self, state: NodeState, kind: str) -> None:
        self.table.move(state, NodeStatus.PRERUN if kind == "PRE" else NodeStatus.POSTRUN)
        state.script = kind
        if state.node.counts:
            self._active += 1
        self._scripts[kind].append(state)

    def _script_ended(self, event: events.ScriptEnded) -> None:
        state = self.table.nodes[event.node]
        if state.script != event.kind:
            return
        script = state.node.pre if event.kind == "PRE" else state.node.post
        assert script is not None
        self._running[event.kind] -= 1
        if event.code == script.defer_status and not self.is_ending_now(state):
            self._actions.append(Wait(state.name, event.kind, script.defer_seconds))
            return
        state.script = ""
        if state.node.counts:
            self._active -= 1
        if event.kind == "PRE":
            self._pre_ended(state, event.code)
        else:
            self._post_ended(state, event.code)

    def is_ending_now(self, state: NodeState) -> bool:
        """Whether what this node does counts no more."""
        return self.is_ending and state is not self._final

    def _pre_ended(self, state: NodeState, code: int) -> None:
        node = state.node
        state.pre_code = code
        if code == 0:
            self._note(state, "PRE_SCRIPT_SUCCESS")
            self._to_queue(state)
            return
        self._note(state, "PRE_SCRIPT_FAILURE")
        if code == node.pre_skip:
            self._note(state, "PRESKIP")
            self._done(state)
            return
        how = f"signal {-code}" if code < 0 else f"status {code}"
        state.details = f"PRE Script failed with {how}"
        if node.post and self.limits.always_run_post:
            state.value = PRE_FAILED
            self._to_script(state, "POST")
            return
        state.value = code
        self._failed(state, aborts=code)

    def _post_ended(self, state: NodeState, code: int) -> None:
        self._note(state, "POST_SCRIPT_TERMINATED")
        if code == 0:
            self._note(state, "POST_SCRIPT_SUCCESS")
            self._succeeded(state, 0)
            return
        self._note(state, "POST_SCRIPT_FAILURE")
        how = f"signal {-code}" if code < 0 else f"status {code}"
        state.details = f"POST script failed with {how}"
        state.value = code
        self._failed(state, aborts=code)

    def _was_submitted(self, event: events.NodeSubmitted) -> None:
        state = self.table.nodes[event.node]
        if not state.is_submitting:
            return
        state.is_submitting = False
        state.cluster, state.jobs = event.cluster, event.jobs
        state.idle, state.running = set(range(event.jobs)), set()
        self._unconfirmed -= 1
        self.table.idle_jobs += event.jobs
        self.jobs_submitted += event.jobs
        for process in range(event.jobs):
            self._note(state, "SUBMIT", process)
        if self.is_ending_now(state):
            self._actions.append(CancelJobs(state.name, tuple(range(event.jobs))))
        elif not event.jobs:
            self._jobs_ended(state)

    def _submit_failed(self, event: events.SubmitFailed) -> None:
        state = self.table.nodes[event.node]
        if not state.is_submitting:
            return
        self._note(state, "SUBMIT_FAILURE")
        state.submit_tries += 1
        if state.submit_tries < self.limits.submit_attempts and not event.is_final:
            if not self.is_ending_now(state):
                self._actions.append(Wait(state.name, "SUBMIT", 2.0 ** (state.submit_tries - 1)))
            return
        state.is_submitting = False
        self._unconfirmed -= 1
        self._leave_queue(state)
        state.value = SUBMIT_FAILED
        state.details = f"Job submit failed: {event.reason}".splitlines()[0]
        state.retries = state.max_retries
        self._after_jobs(state, 1)

    def _job_started(self, event: events.JobStarted) -> None:
        state = self.table.nodes[event.node]
        if event.process in state.idle:
            state.idle.discard(event.process)
            state.running.add(event.process)
            self.table.idle_jobs -= 1
            self._note(state, "EXECUTE", event.process)

    def _job_ended(self, event: events.JobEnded) -> None:
        state = self.table.nodes[event.node]
        if not self._leaves(state, event.process):
            return
        self._note(state, "JOB_TERMINATED", event.process)
        state.codes[event.process] = event.code
        self.jobs_succeeded += not event.code
        if event.code:
            self.jobs_failed += 1
            state.failures += 1
            if state.value is None:
                state.value = event.code
                how = f"signal {-event.code}" if event.code < 0 else f"status {event.code}"
                state.details = f"Job proc ({state.cluster}.{event.process}.0) failed with {how}"
            self._stop_others(state)
        self._jobs_ended(state)

    def _job_removed(self, event: events.JobRemoved) -> None:
        state = self.table.nodes[event.node]
        if not self._leaves(state, event.process):
            return
        self._note(state, "JOB_ABORTED", event.process)
        state.removed += 1
        if state.value is None:
            state.failures += 1
            state.value = JOB_REMOVED
            state.details = f"Job proc ({state.cluster}.{event.process}.0) was aborted"
            if event.reason:
                state.details += f": {event.reason}".splitlines()[0]
            self._stop_others(state)
        self._jobs_ended(state)

    def _leaves(self, state: NodeState, process: int) -> bool:
        """Take a job out of the queue; whether it was there."""
        if process in state.idle:
            state.idle.discard(process)
            self.table.idle_jobs -= 1
            return True
        if process in state.running:
            state.running.discard(process)
            return True
        return False

    def _stop_others(self, state: NodeState) -> None:
        """Cancel a node's other jobs when too many have failed."""
        node = state.node
        most = node.tolerance
        if node.tolerance_is_share:
            most = state.jobs * node.tolerance // 100
        if state.failures == most + 1 and state.queued and not node.tolerance_waits:
            self._actions.append(CancelJobs(state.name, tuple(sorted(state.queued))))

    def _jobs_ended(self, state: NodeState) -> None:
        if state.queued:
            return
        self._leave_queue(state)
        node = state.node
        most = state.jobs * node.tolerance // 100 if node.tolerance_is_share else node.tolerance
        failed = state.failures > most
        if not failed:
            state.value = 0
        verdict = "JOB_FAILURE" if failed else "JOB_SUCCESS"
        self._note(state, f"{verdict} {state.value or 0}")
        self._after_jobs(state, state.failures if failed else 0)

    def _after_jobs(self, state: NodeState, failures: int) -> None:
        if state.node.kind is Kind.PROVISIONER:
            self._provisioner_ended(state, failures)
        elif state.node.post and not self.is_ending_now(state):
            self._to_script(state, "POST")
        elif failures:
            self._failed(state, aborts=state.value)
        else:
            self._succeeded(state, 0)

    def _provisioner_ended(self, state: NodeState, failures: int) -> None:
        """It has to run while the DAG does, so its end is the end."""
        self.table.move(state, NodeStatus.ERROR if failures else NodeStatus.DONE)
        self.why = f"the provisioner {state.name} ended before it said that it is ready"
        self._end(DagStatus.NODE_FAILED if failures else DagStatus.ERROR, 1)

    def _leave_queue(self, state: NodeState) -> None:
        self._ready.left(state)
        if state.node.counts:
            self._submitted -= 1
            self._active -= 1

    def _due(self, event: events.Due) -> None:
        state = self.table.nodes[event.node]
        if event.kind == "SUBMIT":
            if state.is_submitting:
                self._actions.append(SubmitNode(state.name))
        elif state.script == event.kind:
            self._scripts[event.kind].append(state)

    def _halted(self, event: events.Halted) -> None:
        self.is_halted = event.on

    def _removed(self, _: events.Removed) -> None:
        if not self.is_ending:
            self._end(DagStatus.RM, 2)

    def _broken(self, event: events.Broken) -> None:
        if not self.is_ending:
            self.why = event.reason
            self._end(DagStatus.ERROR, 1)

    # --- the ends of nodes

    def _succeeded(self, state: NodeState, value: int) -> None:
        state.value = value
        self._done(state)
        if state.node.abort_on == value and not self.is_ending:
            self._abort(state, value)

    def _done(self, state: NodeState) -> None:
        state.details = ""
        self.table.move(state, NodeStatus.DONE)
        self._tell_children(state, succeeded=True)

    def _failed(self, state: NodeState, aborts: int | None) -> None:
        """A node has failed: the DAG is aborted, the node repeated, or its descendants are lost."""
        node = state.node
        abort = node.abort_on is not None and aborts == node.abort_on
        if not abort and not self.is_ending_now(state) and self._may_repeat(state):
            state.retries += 1
            state.details = ""
            self._begin(state, retried=True)
            return
        if state.max_retries and state.value != (node.unless_exit or None):
            state.details += f" (after {state.retries} node retries)"
        self.table.move(state, NodeStatus.ERROR)
        self._tell_children(state, succeeded=False)
        if abort and not self.is_ending:
            self._abort(state, aborts or 0)

    @staticmethod
    def _may_repeat(state: NodeState) -> bool:
        unless = state.node.unless_exit
        if unless and state.value == unless:
            return False
        return state.retries < state.max_retries and not state.node.is_aside

    def _abort(self, state: NodeState, value: int) -> None:
        node = state.node
        code = value if node.abort_return is None else node.abort_return
        self.why = f"node {state.name} has the value {value}, upon which the DAG is aborted"
        self._end(DagStatus.ABORT, code)

    def _tell_children(self, state: NodeState, succeeded: bool) -> None:
        name = state.name
        for child in state.node.children:
            other = self.table.nodes[child]
            if other.status is not NodeStatus.NOT_READY and not (
                other.status is NodeStatus.READY and not self._has_begun
            ):
                continue
            if not succeeded and name in other.node.parents:
                self._lose(other)
                continue
            other.waiting -= 1
            if not other.waiting:
                self.table.move(other, NodeStatus.READY)
                if not self.is_ending:
                    self._begin(other)

    def _lose(self, state: NodeState) -> None:
        """A node cannot run any more, and neither can its descendants."""
        lost = [state]
        while lost:
            one = lost.pop()
            if one.status not in (NodeStatus.NOT_READY, NodeStatus.READY) or one.has_begun:
                continue
            self.table.move(one, NodeStatus.FUTILE)
            one.details = "Had an ancestor node fail"
            lost += (self.table.nodes[child] for child in one.node.children)

    # --- what goes on, and the end

    def _advance(self) -> None:
        """Begin what may begin now; end when nothing is left."""
        if not self._has_begun:
            return
        for kind, most in (("PRE", self.limits.max_pre), ("POST", self.limits.max_post)):
            waiting = self._scripts[kind]
            while waiting and (not most or self._running[kind] < most):
                if kind == "PRE" and self.is_halted and waiting[0] is not self._final:
                    break
                state = waiting.popleft()
                self._running[kind] += 1
                self._note(state, f"{kind}_SCRIPT_STARTED")
                self._actions.append(RunScript(state.name, kind))
        while self._may_submit() and (ready := self._ready.take()):
            self._submit(ready)
        if not self._active and not self._goes_on():
            self._nothing_left()

    def _goes_on(self) -> bool:
        return bool(len(self._ready)) and not self.is_halted and not self.is_ending

    def _may_submit(self) -> bool:
        limits = self.limits
        if self._final is not None and self._final.has_begun:
            return True
        if self.is_halted or self.is_ending:
            return False
        if limits.max_jobs and self._submitted >= limits.max_jobs:
            return False
        return not limits.max_idle or self.table.idle_jobs + self._unconfirmed < limits.max_idle

    def _submit(self, state: NodeState) -> None:
        self.table.move(state, NodeStatus.SUBMITTED)
        state.is_submitting = True
        if state.node.counts:
            self._submitted += 1
            self._active += 1
        self._unconfirmed += 1
        self._actions.append(SubmitNode(state.name))

    def _nothing_left(self) -> None:
        if self._final is not None and self._final.has_begun:
            self._final_ended(self._final)
        elif self.is_ending:
            self._begin_final()
        elif self.table.counts[NodeStatus.ERROR]:
            self._end(DagStatus.NODE_FAILED, 1)
        elif self._is_complete():
            self._end(DagStatus.OK, 0)
        elif self.is_halted:
            self.why = "the DAG is halted"
            self._end(DagStatus.HALTED, 1)
        else:
            self.why = "a cycle: the nodes that are left wait for each other"
            self.status = DagStatus.CYCLE
            self._actions.append(WriteRescue())
            self._finish(1)

    def _is_complete(self) -> bool:
        final = 1 if self._final is not None and self._final.status is not NodeStatus.DONE else 0
        return self.table.done() + final == self.table.total

    def _end(self, status: DagStatus, code: int) -> None:
        """Nothing new begins; what runs is stopped if the run ends early."""
        self.status, self._ends_with = status, code
        stops = status in (DagStatus.ABORT, DagStatus.RM, DagStatus.ERROR)
        if code:
            self._actions.append(WriteRescue())
        for state in self.table.nodes.values():
            if state.status is NodeStatus.SUBMITTED and state.queued and state is not self._final:
                self._actions.append(CancelJobs(state.name, tuple(sorted(state.queued))))
            elif stops and state.script:
                self._kill_script(state)
        if stops and self._final is None:
            self._finish(code)
        elif not self._active:
            self._begin_final()

    def _kill_script(self, state: NodeState) -> None:
        waiting = self._scripts[state.script]
        if state not in waiting:
            self._actions.append(KillScript(state.name, state.script))
            return
        # Nothing runs whose end would be told.
        waiting.remove(state)
        state.script = ""
        if state.node.counts:
            self._active -= 1
        self._stop(state)
        self._tell_children(state, succeeded=False)

    def _begin_final(self) -> None:
        if self._final is None:
            self._finish(self._ends_with or 0)
        elif not self._final.has_begun:
            self._ready.clear()
            self._begin(self._final)
            self._advance()

    def _final_ended(self, final: NodeState) -> None:
        if final.status is NodeStatus.DONE:
            self._finish(0)
            return
        if self.status is DagStatus.OK:
            self.status = DagStatus.NODE_FAILED
        self._actions.append(WriteRescue())
        self._finish(self._ends_with if self.status is DagStatus.ABORT and self._ends_with else 1)

    def _finish(self, code: int) -> None:
        if self.exit_code is None:
            self.exit_code = code
            for state in self.table.nodes.values():
                if state.status in (NodeStatus.SUBMITTED, NodeStatus.PRERUN, NodeStatus.POSTRUN):
                    self._stop(state)
            self._actions.append(Finish(code))

    def _stop(self, state: NodeState) -> None:
        """The run ends while this node is at work."""
        state.details = f"Was STATUS_{state.status.name}"
        state.was_stopped = True
        self.table.move(state, NodeStatus.ERROR)

    def _note(self, state: NodeState, text: str, process: int | None = None) -> None:
        self._actions.append(Note(state.name, text, process))
