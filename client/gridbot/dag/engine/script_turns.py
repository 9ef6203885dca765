"""Which scripts run, which wait for their turn, and which are deferred."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from gridbot.dag.engine.limits import Throttles
from gridbot.dag.engine.table import NodeState, ScriptPhase

KINDS = ("PRE", "POST")


class ScriptTurns:
    """The scripts of all nodes; those that are deferred count against no throttle."""

    def __init__(self, limits: Throttles) -> None:
        self._limits = limits
        self._waiting: dict[str, deque[NodeState]] = {kind: deque() for kind in KINDS}
        self._running: Counter[str] = Counter()

    def add(self, state: NodeState) -> None:
        """Put a node's script behind those that wait."""
        state.phase = ScriptPhase.WAITS
        self._waiting[state.script].append(state)

    def due(self, kind: str, only: NodeState | None) -> Iterator[NodeState]:
        """Scripts whose turn has come, which run from now on; `only` of a node if there is one."""
        waiting, most = self._waiting[kind], self._limits.most_scripts(kind)
        while waiting and (not most or self._running[kind] < most):
            if only is not None and waiting[0] is not only:
                return
            state = waiting.popleft()
            state.phase = ScriptPhase.RUNS
            self._running[kind] += 1
            yield state

    def defer(self, state: NodeState) -> None:
        """A script that ran wants to run again later."""
        self._running[state.script] -= 1
        state.phase = ScriptPhase.DEFERRED

    def leave(self, state: NodeState) -> None:
        """A script is over, or does not run at all."""
        if state.phase is ScriptPhase.RUNS:
            self._running[state.script] -= 1
        elif state.phase is ScriptPhase.WAITS:
            self._waiting[state.script].remove(state)
        state.phase, state.script = ScriptPhase.NONE, ""


class HoldScripts:
    """HOLD scripts, which run beside the jobs of their nodes, and decide nothing."""

    def __init__(self, limits: Throttles) -> None:
        self._most = limits.max_hold
        self._waiting: deque[NodeState] = deque()
        self._running: dict[str, NodeState] = {}

    def add(self, state: NodeState) -> None:
        """A job of the node is held; its script runs once at a time."""
        if state.name not in self._running and state not in self._waiting:
            self._waiting.append(state)

    def due(self) -> Iterator[NodeState]:
        """Those that run from now on."""
        while self._waiting and (not self._most or len(self._running) < self._most):
            state = self._waiting.popleft()
            self._running[state.name] = state
            yield state

    def ended(self, state: NodeState) -> None:
        """One has ended."""
        self._running.pop(state.name, None)

    def running(self) -> Iterator[NodeState]:
        """Nodes whose HOLD script runs."""
        return iter([*self._running.values()])
