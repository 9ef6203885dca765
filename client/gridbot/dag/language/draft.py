"""A DAG while its files are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gridbot.dag.language.model import (
    Dag,
    DagFinding,
    DagNode,
    DotFile,
    FilePlace,
    Kind,
    StatusFile,
)


@dataclass
class Splice:
    """A copy of another DAG: which nodes edges to it reach, and its pins."""

    initial: list[str]
    terminal: list[str]
    place: FilePlace
    pins_in: dict[int, list[str]] = field(default_factory=dict)
    pins_out: dict[int, list[str]] = field(default_factory=dict)


@dataclass
class DagDraft:
    """What has been read so far.  `prefix` stands before the names of this part's nodes."""

    findings: list[DagFinding]
    warnings: list[DagFinding] = field(default_factory=list)
    nodes: dict[str, DagNode] = field(default_factory=dict)
    parents: dict[str, dict[str, bool]] = field(default_factory=dict)  # child: parent: is weak
    splices: dict[str, Splice] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # submit descriptions by name
    throttles: dict[str, int] = field(default_factory=dict)
    pins_in: dict[int, list[str]] = field(default_factory=dict)
    pins_out: dict[int, list[str]] = field(default_factory=dict)
    dot: DotFile | None = None
    status_file: StatusFile | None = None
    jobstate_log: str = ""
    configs: dict[str, FilePlace] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    inherited: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    joins: int = 0

    def wrong(self, place: FilePlace, message: str) -> None:
        """Keep an error."""
        self.findings.append(DagFinding(place, message))

    def warn(self, place: FilePlace, message: str) -> None:
        """Keep a warning."""
        self.warnings.append(DagFinding(place, message))

    def change(self, names: Iterable[str], **fields: Any) -> None:
        """Set fields of nodes."""
        for name in names:
            self.nodes[name] = replace(self.nodes[name], **fields)

    def join(self, parents: Iterable[str], children: Iterable[str], weak: bool) -> None:
        """Add edges between all of them; a strong one wins over a weak one."""
        sources = dict.fromkeys(parents)
        for child in dict.fromkeys(children):
            known = self.parents.setdefault(child, {})
            for parent in sources:
                known[parent] = weak and known.get(parent, True)

    def ends(self) -> tuple[list[str], list[str]]:
        """Names of the nodes without parents, and without children."""
        inner = [name for name, node in self.nodes.items() if not node.is_aside]
        with_children = {parent for known in self.parents.values() for parent in known}
        first = [name for name in inner if not self.parents.get(name)]
        return first, [name for name in inner if name not in with_children]

    def frozen(self, files: Iterable[str]) -> Dag:
        """The model."""
        children: dict[str, list[str]] = {}
        for child in self.nodes:
            for parent in self.parents.get(child, {}):
                children.setdefault(parent, []).append(child)
        return Dag(
            files=tuple(files),
            nodes=dict(self._linked(children)),
            throttles=self.throttles,
            dot=self.dot,
            status_file=self.status_file,
            jobstate_log=self.jobstate_log,
            config=next(iter(self.configs), ""),
            environment=self.environment,
            inherited=tuple(self.inherited),
            attributes=self.attributes,
            warnings=tuple(self.warnings),
        )

    def _linked(self, children: dict[str, list[str]]) -> Iterator[tuple[str, DagNode]]:
        for name, node in self.nodes.items():
            known = self.parents.get(name, {})
            yield (
                name,
                replace(
                    node,
                    parents=tuple(parent for parent, weak in known.items() if not weak),
                    weak_parents=tuple(parent for parent, weak in known.items() if weak),
                    children=tuple(children.get(name, ())),
                ),
            )

    def count(self, kind: Kind) -> int:
        """How many nodes are of a kind."""
        return sum(node.kind is kind for node in self.nodes.values())
