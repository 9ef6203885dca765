"""What a run has to do.  Each may be done again after a crash."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """Something to be done."""


@dataclass(frozen=True, slots=True)
class RunScript(Action):
    """Start a node's script."""

    node: str
    kind: str


@dataclass(frozen=True, slots=True)
class KillScript(Action):
    """End a node's script."""

    node: str
    kind: str


@dataclass(frozen=True, slots=True)
class SubmitNode(Action):
    """Submit a node's jobs."""

    node: str


@dataclass(frozen=True, slots=True)
class CancelJobs(Action):
    """Cancel jobs of a node."""

    node: str
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Say `Due` after some seconds."""

    node: str
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Save(Action):
    """Write a node's save point."""

    node: str


@dataclass(frozen=True, slots=True)
class WriteRescue(Action):
    """Write the rescue file, or write it again."""


@dataclass(frozen=True, slots=True)
class Note(Action):
    """A line of the job state log."""

    node: str
    text: str
    process: int | None = None  # of a job


@dataclass(frozen=True, slots=True)
class Finish(Action):
    """End the run with this exit code."""

    code: int
