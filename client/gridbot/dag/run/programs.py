"""The programs of nodes on this machine: scripts, and jobs of the local universe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gridbot.dag.engine import scripts
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.events import JobEnded, JobRemoved, JobStarted, RunEvent, ScriptEnded
from gridbot.dag.engine.table import NodeState
from gridbot.dag.language.model import Kind, Script
from gridbot.dag.run import leftovers
from gridbot.dag.run.processes import CANNOT_START, LocalProgram, LocalPrograms
from gridbot.dag.run.start import RunPlan
from gridbot.dag.submit.job import NULL, SubmitJob

Told = Callable[[RunEvent], None]


READY_VARIABLE = "GRIDBOT_DAG_READY"  # names the file that a PROVISIONER makes when it is ready
CANNOT_RUN = 127  # exit code of a job whose program cannot be started
_KILLED = -9


class NodePrograms:
    """What runs on this machine for a run; its ends are told."""

    def __init__(
        self, plan: RunPlan, engine: DagEngine, processes: LocalPrograms,
        environment: Mapping[str, str], run: str, dag_id: int, told: Told,
    ) -> None:  # fmt: skip
        self._plan, self._engine, self._processes = plan, engine, processes
        self._environment = environment
        self._run, self._dag_id, self._told = run, dag_id, told

    def start_script(self, node: str, kind: str) -> str:
        """Start a node's script; return why the run cannot go on, or an empty text."""
        state = self._engine.table.nodes[node]
        script = state.node.script(kind)
        assert script is not None
        try:
            words = scripts.arguments(
                script, state, self._engine.table, int(self._engine.dag_status), self._dag_id,
                strict=self._plan.settings.strict > 0,
            )  # fmt: skip
        except scripts.UnknownMacro as error:
            return str(error)
        self._processes.start(
            (node, kind),
            self._script(script, words, state),
            lambda code, _: self._told(ScriptEnded(node, kind, code)),
            CANNOT_START,
        )
        return ""

    def _script(self, script: Script, words: list[str], state: NodeState) -> LocalProgram:
        kept = str((self._plan.base / script.debug_file).absolute()) if script.debug_file else ""
        folder = self._plan.base / state.node.directory
        return LocalProgram(
            [_found(script.program, folder), *words],
            folder,
            self._marked(state, script.kind),
            stdout=kept if script.debug_streams in ("STDOUT", "ALL") else "",
            stderr=kept if script.debug_streams in ("STDERR", "ALL") else "",
            appends=True,
        )

    def kill_script(self, node: str, kind: str) -> None:
        """End a script; one that is not there any more, as after a crash, has been killed too."""
        if not self._processes.kill((node, kind)):
            self._told(ScriptEnded(node, kind, _KILLED))

    def start_job(self, state: NodeState, process: int, job: SubmitJob) -> None:
        """Start a job of the local universe; one that is killed is told as removed."""
        if job.noop:
            self._told(JobEnded(state.name, process, 0))
            return
        self._told(JobStarted(state.name, process))
        folder = self._plan.base / state.node.directory
        program = LocalProgram(
            [str((folder / job.executable).absolute()), *job.arguments],
            folder / job.iwd,
            {**self._marked(state, process), **self._of_kind(state), **job.environment},
            stdin="" if job.input == NULL else job.input,
            stdout="" if job.output == NULL else job.output,
            stderr="" if job.error == NULL else job.error,
        )
        self._processes.start(
            (state.name, process),
            program,
            lambda code, is_killed: self._told(
                JobRemoved(state.name, process)
                if is_killed
                else JobEnded(state.name, process, code)
            ),
            CANNOT_RUN,
        )

    def _of_kind(self, state: NodeState) -> dict[str, str]:
        """Variables for jobs of some kinds of nodes."""
        if state.node.kind is not Kind.PROVISIONER:
            return {}
        return {READY_VARIABLE: str(self._plan.ready_file.absolute())}

    def kill_job(self, node: str, process: int) -> None:
        """End a job, if its end is not told already."""
        self._processes.kill((node, process))

    def end_leftovers(self) -> None:
        """Kill what a killed process of this run has left, so that nothing runs beside itself."""
        marks = [
            self._mark(state, what)
            for state in self._engine.table.nodes.values()
            for what in (*([state.script] if state.script else ()), "HOLD", *state.queued)
            if state.has_begun
        ]
        leftovers.end(frozenset(marks))

    def _marked(self, state: NodeState, what: object) -> dict[str, str]:
        return {**self._environment, leftovers.VARIABLE: self._mark(state, what)}

    def _mark(self, state: NodeState, what: object) -> str:
        return leftovers.mark_of(self._run, state.name, what, state.attempts)


def _found(program: str, folder: Path) -> str:
    """A script's program: a file of the node's folder, or one of PATH."""
    path = folder / program
    return str(path.absolute()) if "/" in program or path.exists() else program
