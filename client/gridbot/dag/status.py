"""How far a run is, read from its journal by another process."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridbot.api.errors import BadInput, NotFound
from gridbot.dag import journal
from gridbot.dag.engine import events
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.engine.table import NodeState, NodeStatus
from gridbot.dag.reports import rescue
from gridbot.dag.reports.workflow import RunTimes
from gridbot.dag.reports.writing import replace_file
from gridbot.dag.run import leftovers
from gridbot.dag.run.settings import RunOptions
from gridbot.dag.run.start import RunPlan, plan

_BAR = 40
_MOST_SHOWN = 20


@dataclass(frozen=True)
class RunStatus:
    """A run as its journal tells it."""

    file: str
    engine: DagEngine
    began_at: float
    last_at: float
    is_working: bool
    bots: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """For scripts."""
        table = self.engine.table
        return {
            "file": self.file,
            "state": self.word,
            "exit_code": self.engine.exit_code,
            "began_at": self.began_at,
            "bots": list(self.bots),
            "nodes": {name.lower(): n for name, n in table.sums(self.engine.ready).items()},
            "jobs_running": sum(len(state.running) for state in table.nodes.values()),
            "jobs_waiting": table.idle_jobs,
            "by_node": {
                state.name: {
                    "status": state.status.name,
                    "retries": state.retries,
                    "details": state.details,
                }
                for state in table.nodes.values()
            },
        }

    @property
    def word(self) -> str:
        """State of the run."""
        if self.engine.is_over:
            return "done" if self.engine.exit_code == 0 else "failed"
        return "running" if self.is_working else "interrupted"

    def page(self) -> str:
        """For people."""
        table = self.engine.table
        sums = table.sums(self.engine.ready)
        done, total = sums["Done"], sums["Total"]
        filled = _BAR * done // total if total else _BAR
        lines = [
            f"{self.file}: {self.word}",
            f"[{'#' * filled}{'.' * (_BAR - filled)}] {done} of {total} nodes done{self._left()}",
            "  ".join(f"{name.lower()} {n}" for name, n in sums.items() if n and name != "Total"),
        ]
        states = table.nodes.values()
        lines += self._listed("running", [s for s in states if s.queued or s.script], _work_of)
        failed = [s for s in states if s.status is NodeStatus.ERROR]
        lines += self._listed("failed", failed, lambda state: state.details)
        if not self.engine.is_over and not self.is_working:
            lines.append(f"go on with it: gridbot dag run {self.file}")
        waiting = [bot for bot in self.bots] if table.idle_jobs and self.is_working else []
        lines += (f"why its jobs wait: gridbot bot explain {bot}" for bot in waiting[:3])
        return "\n".join(lines)

    def _left(self) -> str:
        left = RunTimes.of(self.engine, self.began_at).eta_seconds
        return f", about {_span(left)} left" if left is not None and self.is_working else ""

    @staticmethod
    def _listed(what: str, states: list[NodeState], more: Any) -> list[str]:
        if not states:
            return []
        shown = [f"  {state.name}: {more(state)}" for state in states[:_MOST_SHOWN]]
        rest = len(states) - len(shown)
        return [f"{what}:", *shown, *([f"  … and {rest} more"] if rest else [])]


def _work_of(state: NodeState) -> str:
    if state.script:
        return f"{state.script} script"
    attempt = f", attempt {state.retries + 1}" if state.retries else ""
    return f"{len(state.running)} running, {len(state.idle)} waiting{attempt}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _found(file: Path) -> tuple[Path, list[journal.Document]]:
    """The journal of the present run, or of the last one.  Raises NotFound."""
    for path in (journal.path_of(file), journal.kept_path_of(file)):
        if path.exists():
            text = path.read_bytes()
            documents = journal.documents_in(path, text[: text.rfind(b"\n") + 1])
            if documents:
                return path, documents
    raise NotFound(f"{file}: no run of it is known here; start one: gridbot dag run {file}")


def replayed(file: Path, documents: list[journal.Document]) -> tuple[RunPlan, DagEngine]:
    """Plan and engine of a journal.  Raises BadInput if the DAG has changed."""
    header = documents[0]
    base = Path()
    if header["files"][0] != str(file):
        base = Path(str(file).removesuffix(header["files"][0]) or ".")
    options = RunOptions(use_dag_dir=header["use_dag_dir"], config=header["config"])
    planned = plan(header["files"], options, base, (header["rescue"], header["rescue_number"]))
    if planned.digest != header["digest"]:
        raise BadInput(f"{file} has changed since its run began, so its journal says nothing of it")
    engine = DagEngine(planned.dag, planned.settings.limits)
    for document in documents[1:]:
        if document["event"] not in ("process", "paused"):
            engine.apply(events.event_of(document))
    return planned, engine


def read_status(file: Path) -> RunStatus:
    """How far the run of a DAG is.  Raises NotFound or BadInput."""
    path, documents = _found(file)
    _, engine = replayed(file, documents)
    bots = dict.fromkeys(item["number"] for item in documents[1:] if item.get("number"))
    return RunStatus(
        file=str(file),
        engine=engine,
        began_at=documents[0]["at"],
        last_at=documents[-1]["at"],
        is_working=journal.is_held(path),
        bots=tuple(bots),
    )


def signal_run(file: Path, number: int) -> None:
    """Send a signal to the process that runs a DAG.  Raises NotFound."""
    path = journal.path_of(file)
    if not journal.is_held(path):
        raise NotFound(f"{file}: nobody runs it now")
    _, documents = _found(file)
    pids = [item["pid"] for item in documents if item.get("event") == "process"]
    if not pids or not _has_open(pids[-1], path):
        raise NotFound(f"{file}: its run is not on this machine, or has just begun or ended")
    try:
        os.kill(pids[-1], number)
    except ProcessLookupError:
        raise NotFound(f"{file}: its run has just ended") from None


def _has_open(pid: int, path: Path) -> bool:
    """Whether this process works on a journal: its number may be another's by now.

    Without /proc nobody can tell, and it is taken for true.
    """
    opened = Path(f"/proc/{pid}/fd")
    if not Path("/proc/self/fd").exists():
        return True
    meant = path.stat()
    try:
        return any(os.path.samestat(meant, one.stat()) for one in opened.iterdir() if one.exists())
    except OSError:  # it is gone, or another user's
        return False


def write_rescue(file: Path) -> str:
    """Write the rescue file of an interrupted run, which is over then.  Raises GridbotError."""
    opened = journal.RunJournal(journal.path_of(file))
    if not opened.documents:
        opened.discard()
        raise NotFound(f"{file}: no run of it was interrupted; see gridbot dag run --dumprescue")
    planned, engine = replayed(file, list(opened.documents))
    leftovers.end_run(opened.documents[0]["run"])
    is_multi = len(planned.files) > 1
    primary = str(planned.primary)
    number = (rescue.numbers_of(primary, is_multi) or [0])[-1] + 1
    name = Path(rescue.name_of(primary, is_multi, min(number, planned.settings.max_rescue)))
    replace_file(name, rescue.rescue_text(engine, time.time(), planned.settings.reset_retries))
    opened.keep(journal.kept_path_of(file))
    return str(name)
