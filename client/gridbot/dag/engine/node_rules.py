"""The life of a node: its turn, its scripts, its end, and what that means for its children."""

from __future__ import annotations

from gridbot.dag.engine import events
from gridbot.dag.engine.actions import Save, Wait
from gridbot.dag.engine.run_state import RunState
from gridbot.dag.engine.table import PRE_FAILED, DagStatus, NodeState, NodeStatus, ScriptPhase
from gridbot.dag.language.model import DagNode, FilePlace, Kind


class NodeRules:
    """What becomes of nodes."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def begin(self, state: NodeState, retried: bool = False) -> None:
        """A node's turn: its PRE script, or the queue of those to be submitted."""
        node = state.node
        if not state.has_begun and node.save_point:
            self._run.actions.append(Save(state.name))
        state.has_begun = True
        state.attempts += 1
        state.pre_code, state.value, state.codes = None, None, {}
        state.failures = state.removed = state.jobs = state.submit_tries = 0
        state.is_cancelling = False
        if node.pre:
            self._run.want_script(state, "PRE")
        else:
            self._to_queue(state, retried)

    def added(self, event: events.NodeAdded) -> None:
        """The graph has grown by a node, which may begin at once, or never."""
        run, table = self._run, self._run.table
        if event.node in table.nodes:
            return
        state = table.add(
            DagNode(
                event.node, Kind.JOB, "", FilePlace("", 0), parents=tuple(event.parents),
                tolerance=event.tolerance, tolerance_is_share=event.tolerance_is_share,
                tolerance_waits=True,
            )
        )  # fmt: skip
        parents = [table.nodes[name].status for name in event.parents]
        if any(status in (NodeStatus.ERROR, NodeStatus.FUTILE) for status in parents):
            self._lose(state)
        elif not state.waiting:
            table.move(state, NodeStatus.READY)
            if run.has_begun and not run.is_ending:
                self.begin(state)

    def _to_queue(self, state: NodeState, retried: bool = False) -> None:
        self._run.table.move(state, NodeStatus.READY)
        front = retried and self._run.limits.retry_node_first
        # Those outside the graph wait for nobody.
        self._run.ready.add(state, front or state.node.is_aside)

    # --- scripts

    def script_ended(self, event: events.ScriptEnded) -> None:
        """A PRE or POST script has ended."""
        run, state = self._run, self._run.table.nodes[event.node]
        if state.script != event.kind or state.phase is not ScriptPhase.RUNS:
            return
        script = state.node.script(event.kind)
        assert script is not None
        if event.code == script.defer_status and not run.counts_no_more(state):
            run.scripts.defer(state)
            run.actions.append(Wait(state.name, event.kind, script.defer_seconds))
            return
        run.leave_script(state)
        if event.kind == "PRE":
            self._pre_ended(state, event.code)
        else:
            self._post_ended(state, event.code)

    def script_is_due(self, state: NodeState, kind: str) -> None:
        """The time of a deferred script has come."""
        if state.script == kind and state.phase is ScriptPhase.DEFERRED:
            self._run.scripts.add(state)

    def _pre_ended(self, state: NodeState, code: int) -> None:
        node = state.node
        state.pre_code = code
        if code == 0:
            self._run.note(state, "PRE_SCRIPT_SUCCESS")
            self._to_queue(state)
            return
        self._run.note(state, "PRE_SCRIPT_FAILURE")
        if code == node.pre_skip:
            self._run.note(state, "PRESKIP")
            self._done(state)
            return
        state.details = f"PRE Script failed with {how_it_ended(code)}"
        if node.post and self._run.limits.always_run_post:
            state.value = PRE_FAILED
            self._run.want_script(state, "POST")
            return
        state.value = code
        self._failed(state, aborts=code)

    def _post_ended(self, state: NodeState, code: int) -> None:
        self._run.note(state, "POST_SCRIPT_TERMINATED")
        if code == 0:
            self._run.note(state, "POST_SCRIPT_SUCCESS")
            self._succeeded(state)
            return
        self._run.note(state, "POST_SCRIPT_FAILURE")
        state.details = f"POST script failed with {how_it_ended(code)}"
        state.value = code
        self._failed(state, aborts=code)

    # --- its end

    def jobs_are_over(self, state: NodeState, has_failed: bool) -> None:
        """None of its jobs is left: its POST script decides, if it has one."""
        if state.node.post and not self._run.counts_no_more(state):
            self._run.want_script(state, "POST")
        elif has_failed:
            self._failed(state, aborts=state.value)
        else:
            self._succeeded(state)

    def _succeeded(self, state: NodeState) -> None:
        state.value = 0
        self._done(state)
        if state.node.abort_on == 0:
            self._abort(state, 0)

    def _done(self, state: NodeState) -> None:
        state.details = ""
        self._run.table.move(state, NodeStatus.DONE)
        self.tell_children(state, succeeded=True)

    def _failed(self, state: NodeState, aborts: int | None) -> None:
        """A node has failed: the DAG is aborted, the node repeated, or its descendants are lost."""
        node = state.node
        abort = node.abort_on is not None and aborts == node.abort_on
        if not abort and not self._run.counts_no_more(state) and _may_repeat(state):
            state.retries += 1
            state.details = ""
            self.begin(state, retried=True)
            return
        if state.max_retries and state.value != (node.unless_exit or None):
            state.details += f" (after {state.retries} node retries)"
        self._run.table.move(state, NodeStatus.ERROR)
        self.tell_children(state, succeeded=False)
        if abort:
            self._abort(state, aborts or 0)

    def _abort(self, state: NodeState, value: int) -> None:
        node = state.node
        code = value if node.abort_return is None else node.abort_return
        why = f"node {state.name} has the value {value}, upon which the DAG is aborted"
        self._run.end_early(DagStatus.ABORT, code, why)

    # --- its children

    def tell_children(self, state: NodeState, succeeded: bool) -> None:
        """A node has ended: children begin, or are lost."""
        run = self._run
        for child in state.node.children:
            other = run.table.nodes[child]
            if other.status is not NodeStatus.NOT_READY and not (
                other.status is NodeStatus.READY and not run.has_begun
            ):
                continue
            if not succeeded and state.name in other.node.parents:
                self._lose(other)
                continue
            other.waiting -= 1
            if not other.waiting:
                run.table.move(other, NodeStatus.READY)
                if not run.is_ending:
                    self.begin(other)

    def _lose(self, state: NodeState) -> None:
        """A node cannot run any more, and neither can its descendants."""
        lost = [state]
        while lost:
            one = lost.pop()
            if one.status not in (NodeStatus.NOT_READY, NodeStatus.READY) or one.has_begun:
                continue
            self._run.table.move(one, NodeStatus.FUTILE)
            one.details = "Had an ancestor node fail"
            lost += (self._run.table.nodes[child] for child in one.node.children)


def how_it_ended(code: int) -> str:
    """An exit code as DAGMan says it."""
    return f"signal {-code}" if code < 0 else f"status {code}"


def _may_repeat(state: NodeState) -> bool:
    unless = state.node.unless_exit
    if unless and state.value == unless:
        return False
    return state.retries < state.max_retries and not state.node.is_aside
