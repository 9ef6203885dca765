"""A DAG as its files describe it.  Immutable: what happens in a run stands in the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gridbot.api.errors import BadInput


class FilePlace(NamedTuple):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class DagFinding(NamedTuple):
    """What is wrong there."""

    place: FilePlace
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class DagError(BadInput):
    """All that is wrong in a DAG, a line for each."""

    def __init__(self, findings: Sequence[DagFinding]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = tuple(findings)


class Kind(Enum):
    """What a node is; the values are the words of the language."""

    JOB = "JOB"
    SUBDAG = "SUBDAG"
    FINAL = "FINAL"
    PROVISIONER = "PROVISIONER"
    SERVICE = "SERVICE"
    JOIN = "JOIN"  # hidden, between the parents and the children of one line


@dataclass(frozen=True, slots=True)
class Script:
    """A program that runs beside the DAG, before or after the jobs of a node."""

    kind: str  # PRE, POST or HOLD
    program: str
    arguments: tuple[str, ...]
    place: FilePlace
    defer_status: int | None = None  # run it again if it exits so
    defer_seconds: float = 0.0
    debug_file: str = ""  # keeps what it prints
    debug_streams: str = ""  # STDOUT, STDERR or ALL


@dataclass(frozen=True, slots=True)
class Variable:
    """A macro for a node's submit description, set before it is read or after."""

    name: str
    value: str
    appended: bool


@dataclass(frozen=True, slots=True)
class DagNode:
    """One node: its jobs, and the rules for them."""

    name: str
    kind: Kind
    submit: str  # path of a submit description, or of a DAG
    place: FilePlace
    text: str | None = None  # of an inline description, instead of a path
    directory: str = ""  # relative to where the DAG was started
    noop: bool = False
    done: bool = False
    is_rescued: bool = False  # a rescue file says that it is done
    pre: Script | None = None
    post: Script | None = None
    hold: Script | None = None
    retries: int | None = None
    unless_exit: int | None = None
    abort_on: int | None = None
    abort_return: int | None = None
    variables: tuple[Variable, ...] = ()
    priority: int = 0
    category: str = ""
    pre_skip: int | None = None
    tolerance: float | None = None  # so many failed jobs of the node are borne
    tolerance_is_share: bool = False  # in percent, to a thousandth
    tolerance_waits: bool | None = None  # let the others end when there are too many
    save_point: str = ""
    parents: tuple[str, ...] = ()
    weak_parents: tuple[str, ...] = ()  # have to end, not to succeed
    children: tuple[str, ...] = ()

    def script(self, kind: str) -> Script | None:
        """Its PRE, POST or HOLD script."""
        return {"PRE": self.pre, "POST": self.post, "HOLD": self.hold}[kind]

    @property
    def counts(self) -> bool:
        """Whether it is one of the nodes of totals."""
        return self.kind is not Kind.SERVICE

    @property
    def is_aside(self) -> bool:
        """Whether it stands outside of the graph."""
        return self.kind in (Kind.FINAL, Kind.PROVISIONER, Kind.SERVICE)


@dataclass(frozen=True, slots=True)
class DotFile:
    """A picture of the graph that is asked for."""

    path: str
    update: bool = False
    overwrite: bool = True
    include: str = ""


@dataclass(frozen=True, slots=True)
class StatusFile:
    """A file that tells the nodes' states."""

    path: str
    seconds: float = 60.0
    always: bool = False


@dataclass(frozen=True)
class Dag:
    """A whole DAG: nodes by name, in the order of the files."""

    files: tuple[str, ...]
    nodes: Mapping[str, DagNode]
    throttles: Mapping[str, int] = field(default_factory=dict)  # by category
    dot: DotFile | None = None
    status_file: StatusFile | None = None
    jobstate_log: str = ""
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()  # variables of the submitter
    attributes: Mapping[str, str] = field(default_factory=dict)  # of the run itself
    warnings: tuple[DagFinding, ...] = ()

    def of_kind(self, kind: Kind) -> list[DagNode]:
        """Nodes of a kind."""
        return [node for node in self.nodes.values() if node.kind is kind]

    @property
    def final(self) -> DagNode | None:
        """The node that runs at the end."""
        return next(iter(self.of_kind(Kind.FINAL)), None)
