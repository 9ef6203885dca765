"""The job state log, which Pegasus reads."""

from __future__ import annotations

from gridbot.dag.engine.actions import Note
from gridbot.dag.engine.table import NodeState


def internal(at: float, text: str) -> str:
    """A line about the run itself."""
    return f"{int(at)} INTERNAL *** {text} ***\n"


def line_of(note: Note, state: NodeState, at: float) -> str:
    """A line about a node."""
    job = "-"
    if note.process is not None:
        job = f"{state.cluster}.{note.process}"
    elif note.text.startswith("JOB_"):
        return f"{int(at)} {note.node} {note.text} - - {state.attempts}\n"
    return f"{int(at)} {note.node} {note.text} {job} - {state.attempts}\n"
