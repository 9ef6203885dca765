"""What a run leaves for others while it goes on, and at its end: logs and reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gridbot.dag import event_log
from gridbot.dag.engine import events
from gridbot.dag.engine.actions import Action, Note
from gridbot.dag.engine.engine import DagEngine
from gridbot.dag.reports import dot, jobstate, metrics, rescue, status
from gridbot.dag.reports.writing import Log, replace_file
from gridbot.dag.run.start import RunPlan

# The line of the job state log with which an event counts; other events have no record.
_COUNTS = {
    events.NodeSubmitted: "SUBMIT",
    events.JobStarted: "EXECUTE",
    events.JobHeld: "JOB_HELD",
    events.JobReleased: "JOB_RELEASED",
    events.JobEnded: "JOB_TERMINATED",
    events.JobRemoved: "JOB_ABORTED",
}


class RunReports:
    """Logs and reports of one run.

    `jobstate_size` is that of its log, and `last_rescue` the number of the newest rescue file, when
    it began.
    """

    def __init__(
        self, plan: RunPlan, engine: DagEngine, jobstate_size: int, last_rescue: int
    ) -> None:
        self._plan, self._engine = plan, engine
        self._nodes_log = Log(Path(f"{plan.primary}.nodes.log"), 0)
        path = plan.dag.jobstate_log
        self._jobstate = Log(plan.base / path, jobstate_size) if path else None
        self._next_status = 0.0
        self._changed = True
        self._last_rescue = last_rescue

    def internal(self, at: float, text: str) -> None:
        """Tell of the run itself."""
        if self._jobstate:
            self._jobstate.add(jobstate.internal(at, text))

    def tell(self, event: events.RunEvent, actions: Iterable[Action], at: float) -> None:
        """Tell of an event and of what it meant."""
        self._changed = True
        notes = [action for action in actions if isinstance(action, Note)]
        said = {note.text for note in notes}
        nodes = self._engine.table.nodes
        if _COUNTS.get(type(event)) in said or (
            isinstance(event, events.ScriptEnded) and said & {"POST_SCRIPT_TERMINATED", "PRESKIP"}
        ):
            state = nodes[event.node]  # type: ignore[attr-defined]  # all of these have one
            self._nodes_log.add(event_log.record_of(event, state, at))
        if self._jobstate:
            for note in notes:
                self._jobstate.add(jobstate.line_of(note, nodes[note.node], at))

    def restore(self) -> None:
        """Make the logs hold what the journal has said, after a crash."""
        self._nodes_log.restore()
        if self._jobstate:
            self._jobstate.restore()

    def begin(self) -> None:
        """Begin a log that is empty."""
        self._nodes_log.path.write_bytes(b"")

    def flush(self, at: float, force: bool = False) -> None:
        """Write what has been told; the status file when its time has come."""
        self._nodes_log.flush()
        if self._jobstate:
            self._jobstate.flush()
        asked = self._plan.dag.status_file
        if (
            asked
            and (force or at >= self._next_status)
            and (self._changed or asked.always or force)
        ):
            self._next_status = at + asked.seconds
            self._changed = False
            following = 0.0 if self._engine.is_over else self._next_status
            text = status.status_text(self._engine, at, following)
            replace_file(self._plan.base / asked.path, text)

    def picture(self, at: float, is_end: bool) -> None:
        """Draw the graph, as it was asked for."""
        asked = self._plan.dag.dot
        if asked is None or (is_end and not asked.update):
            return
        path = self._plan.base / asked.path if is_end else dot.path_for(asked, self._plan.base)
        replace_file(path, dot.dot_text(self._engine, asked, self._plan.base, at))

    def rescue(self, at: float) -> str:
        """Write the rescue file of this run, again if it is there; return its name."""
        plan = self._plan
        primary, is_multi = str(plan.primary), len(plan.files) > 1
        most = min(plan.settings.max_rescue, rescue.MOST)
        if not most:
            return ""
        number = min(self._last_rescue + 1, most)
        path = Path(rescue.name_of(primary, is_multi, number))
        text = rescue.rescue_text(self._engine, at, plan.settings.reset_retries)
        replace_file(path, text)
        return path.name

    def save_point(self, node: str, at: float) -> None:
        """Write the save point of a node; the one before gets another name."""
        path = self._plan.base / self._engine.table.nodes[node].node.save_point
        if path.exists():
            path.rename(f"{path}.old")
        replace_file(path, rescue.rescue_text(self._engine, at, True, is_save=True))

    def metrics(self, began_at: float, at: float, dag_id: int) -> None:
        """Write the metrics."""
        plan = self._plan
        text = metrics.metrics_text(self._engine, began_at, at, dag_id, plan.rescue_number)
        replace_file(Path(f"{plan.primary}.metrics"), text)
