"""What happens in a run.  Each event stands in the journal before it counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened; `name` is its word in the journal."""

    name: ClassVar[str] = ""

    def document(self) -> dict[str, Any]:
        """For the journal."""
        return {"event": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}


@dataclass(frozen=True, slots=True)
class Began(RunEvent):
    """The run begins."""

    name: ClassVar[str] = "began"


@dataclass(frozen=True, slots=True)
class ScriptEnded(RunEvent):
    """A script has ended with an exit code, or minus a signal's number."""

    name: ClassVar[str] = "script_ended"
    node: str
    kind: str
    code: int


@dataclass(frozen=True, slots=True)
class NodeSubmitted(RunEvent):
    """The jobs of a node go to where they run.  `bot` and `first` say where, for recovery."""

    name: ClassVar[str] = "submitted"
    node: str
    cluster: int
    jobs: int
    bot: str = ""
    first: int = 0
    is_open: bool = False  # further jobs may follow, until it is closed
    is_ready: bool = False  # the PROVISIONER's job says at once that all is provisioned


@dataclass(frozen=True, slots=True)
class NodeAdded(RunEvent):
    """The graph has one more node; its parents are there already."""

    name: ClassVar[str] = "added"
    node: str
    parents: Sequence[str] = ()
    tolerance: float = 0  # as in `DagNode`
    tolerance_is_share: bool = False


@dataclass(frozen=True, slots=True)
class JobsAdded(RunEvent):
    """An open node has further jobs; else as `NodeSubmitted`."""

    name: ClassVar[str] = "jobs_added"
    node: str
    jobs: int
    bot: str = ""
    first: int = 0


@dataclass(frozen=True, slots=True)
class NodeClosed(RunEvent):
    """An open node gets no further jobs; with a reason, it lacks some, and has failed."""

    name: ClassVar[str] = "closed"
    node: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SubmitFailed(RunEvent):
    """A node's jobs could not be made."""

    name: ClassVar[str] = "submit_failed"
    node: str
    reason: str
    is_final: bool = False  # to try again would not help


@dataclass(frozen=True, slots=True)
class JobStarted(RunEvent):
    """A job runs on some host."""

    name: ClassVar[str] = "job_started"
    node: str
    process: int


@dataclass(frozen=True, slots=True)
class JobHeld(RunEvent):
    """A job that waits is held: its BOT sends nothing more for the time being."""

    name: ClassVar[str] = "job_held"
    node: str
    process: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobReleased(RunEvent):
    """A job is held no more."""

    name: ClassVar[str] = "job_released"
    node: str
    process: int


@dataclass(frozen=True, slots=True)
class JobEnded(RunEvent):
    """A job's program ended with an exit code, or minus a signal's number."""

    name: ClassVar[str] = "job_ended"
    node: str
    process: int
    code: int
    seen: int = 0  # cursor of the results of its BOT
    outputs: Mapping[str, Any] = field(default_factory=dict)  # that are kept at the server


@dataclass(frozen=True, slots=True)
class JobRemoved(RunEvent):
    """A job was cancelled, or given up."""

    name: ClassVar[str] = "job_removed"
    node: str
    process: int
    reason: str = ""
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Due(RunEvent):
    """The time of a deferred script, or of another attempt to submit, has come."""

    name: ClassVar[str] = "due"
    node: str
    kind: str  # PRE, POST or SUBMIT


@dataclass(frozen=True, slots=True)
class Halted(RunEvent):
    """The halt file appeared or vanished."""

    name: ClassVar[str] = "halted"
    on: bool


@dataclass(frozen=True, slots=True)
class Removed(RunEvent):
    """The user wants the run to end."""

    name: ClassVar[str] = "removed"


@dataclass(frozen=True, slots=True)
class Provisioned(RunEvent):
    """The PROVISIONER says that other nodes may begin."""

    name: ClassVar[str] = "provisioned"


@dataclass(frozen=True, slots=True)
class Broken(RunEvent):
    """The run cannot go on, as DAGMan decides for warnings that are fatal."""

    name: ClassVar[str] = "broken"
    reason: str


_KINDS: Mapping[str, type[RunEvent]] = {
    kind.name: kind
    for kind in (
        Began, ScriptEnded, NodeSubmitted, SubmitFailed, JobStarted, JobHeld, JobReleased, JobEnded,
        JobRemoved, Due, Halted, Removed, Provisioned, Broken, NodeAdded, JobsAdded, NodeClosed,
    )
}  # fmt: skip


def event_of(document: Mapping[str, Any]) -> RunEvent:
    """The event that a document of the journal tells.  Raises KeyError or TypeError."""
    kind = _KINDS[document["event"]]
    given = {f.name: document[f.name] for f in fields(kind) if f.name in document}
    return kind(**given)
