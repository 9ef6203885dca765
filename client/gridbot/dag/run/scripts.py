"""Starts the scripts of nodes, and jobs of the local universe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gridbot.dag.engine import scripts
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.events import JobEnded, JobRemoved, RunEvent, ScriptEnded
from gridbot.dag.engine.table import NodeState
from gridbot.dag.language.model import Script
from gridbot.dag.run.processes import CANNOT_START, LocalProgram, LocalPrograms
from gridbot.dag.run.start import RunPlan
from gridbot.dag.submit.job import NULL, SubmitJob

Told = Callable[[RunEvent], None]


class Scripts:
    """What runs on this machine for a run."""

    def __init__(
        self,
        plan: RunPlan,
        engine: DagEngine,
        processes: LocalPrograms,
        environment: Mapping[str, str],
        dag_id: int,
    ) -> None:
        self._plan, self._engine, self._processes = plan, engine, processes
        self._environment, self._dag_id = environment, dag_id

    def start(self, node: str, kind: str, told: Told) -> str:
        """Start a node's script; return why the run cannot go on, or an empty text."""
        state = self._engine.table.nodes[node]
        script = state.node.pre if kind == "PRE" else state.node.post
        assert script is not None
        try:
            words = scripts.arguments(
                script, state, self._engine.table, int(self._engine.dag_status), self._dag_id,
                strict=self._plan.settings.strict > 0,
            )  # fmt: skip
        except scripts.UnknownMacro as error:
            return str(error)
        folder = self._plan.base / state.node.directory
        program = self._program(script, words, folder)
        self._processes.start(
            (node, kind),
            program,
            lambda code, _: told(ScriptEnded(node, kind, code)),
            CANNOT_START,
        )
        return ""

    def _program(self, script: Script, words: list[str], folder: Path) -> LocalProgram:
        kept = str((self._plan.base / script.debug_file).absolute()) if script.debug_file else ""
        return LocalProgram(
            [_found(script.program, folder), *words],
            folder,
            self._environment,
            stdout=kept if script.debug_streams in ("STDOUT", "ALL") else "",
            stderr=kept if script.debug_streams in ("STDERR", "ALL") else "",
            appends=True,
        )

    def start_job(
        self, state: NodeState, process: int, job: SubmitJob, told: Told, cannot: int
    ) -> None:
        """Start a job of the local universe; one that is killed is told as removed."""
        folder = self._plan.base / state.node.directory
        home = folder / job.iwd
        program = LocalProgram(
            [str((folder / job.executable).absolute()), *job.arguments],
            home,
            {**self._environment, **job.environment},
            stdin="" if job.input == NULL else job.input,
            stdout="" if job.output == NULL else job.output,
            stderr="" if job.error == NULL else job.error,
        )
        self._processes.start(
            (state.name, process),
            program,
            lambda code, is_killed: told(
                JobRemoved(state.name, process)
                if is_killed
                else JobEnded(state.name, process, code)
            ),
            cannot,
        )


def _found(program: str, folder: Path) -> str:
    """A script's program: a file of the node's folder, or one of PATH."""
    path = folder / program
    return str(path.absolute()) if "/" in program or path.exists() else program
