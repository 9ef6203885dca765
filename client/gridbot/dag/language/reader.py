"""Reads DAG files: two passes over each, so that a line may name what stands below it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gridbot.dag.language import edges, nodes, rules, settings
from gridbot.dag.language.draft import DagDraft, Splice
from gridbot.dag.language.lines import DagLine, WordError, Words, lines_of
from gridbot.dag.language.model import Dag, DagError, DagFinding, FilePlace, Kind
from gridbot.dag.language.part import DagPart, LineRefused

Command = Callable[[DagPart, DagLine, Words], None]

# Read first, so that all other lines may name what they define.
_FIRST: dict[str, Command] = {
    "JOB": nodes.job,
    "NODE": nodes.job,
    "DATA": nodes.data,
    "FINAL": nodes.job,
    "PROVISIONER": nodes.job,
    "SERVICE": nodes.job,
    "SUBDAG": nodes.subdag,
    "REJECT": settings.reject,
    "DOT": settings.dot,
    "NODE_STATUS_FILE": settings.node_status_file,
    "JOBSTATE_LOG": settings.jobstate_log,
}
_SECOND: dict[str, Command] = {
    "PARENT": edges.parent,
    "WEAK": edges.weak,
    "CONNECT": edges.connect,
    "PIN_IN": edges.pin_in,
    "PIN_OUT": edges.pin_out,
    "SCRIPT": rules.script,
    "RETRY": rules.retry,
    "ABORT_DAG_ON": rules.abort_dag_on,
    "VARS": rules.variables,
    "PRIORITY": rules.priority,
    "CATEGORY": rules.category,
    "MAXJOBS": rules.maxjobs,
    "PRE_SKIP": rules.pre_skip,
    "TOLERANCE": rules.tolerance,
    "DONE": rules.done,
    "SAVE_POINT_FILE": rules.save_point_file,
    "CONFIG": settings.config,
    "ENV": settings.env,
    "SET_JOB_ATTR": settings.set_job_attr,
}
_OTHERS = ("SUBMIT_DESCRIPTION", "SPLICE", "INCLUDE")


@dataclass(frozen=True)
class Reading:
    """How DAG files are read.

    `base` is where relative paths count from; with `use_dag_dir` each file's folder is instead.
    With `munge` the nodes of several files get names such as `0.A`.
    """

    base: Path = field(default_factory=Path)
    use_dag_dir: bool = False
    munge: bool = True
    join_nodes: bool = True
    append_variables: bool = False
    any_names: bool = False

    def read(self, files: Sequence[str], rescue: str | Path | None = None) -> Dag:
        """The DAG of these files, together with a rescue file.  Raises DagError."""
        whole = DagDraft([])
        for number, file in enumerate(files):
            prefix = f"{number}." if self.munge and len(files) > 1 else ""
            folder = os.path.dirname(file) if self.use_dag_dir else ""
            name = os.path.basename(file) if self.use_dag_dir else file
            part = DagPart(self, whole, name, folder, prefix)
            self.part(part)
        if rescue is not None and not whole.findings:
            self.part(DagPart(self, whole, str(rescue), "", "", is_rescue=True))
        self._check(whole)
        if whole.findings:
            raise DagError(sorted(whole.findings, key=lambda item: item.place))
        return whole.frozen(files)

    def _check(self, whole: DagDraft) -> None:
        if len(whole.configs) > 1:
            names = " and ".join(whole.configs)
            place = list(whole.configs.values())[1]
            whole.wrong(place, f"a DAG has one CONFIG file, not {names}")

    def part(self, part: DagPart) -> None:
        """Read one file into the draft of its part."""
        try:
            lines = [*lines_of(part.read_text())]
        except OSError as error:
            place = part.included_at or FilePlace(part.shown, 0)
            part.draft.wrong(place, f"{part.file}: {error.strerror}")
            return
        except WordError as error:
            part.draft.wrong(FilePlace(part.shown, 0), str(error))
            return
        except UnicodeDecodeError:
            part.draft.wrong(FilePlace(part.shown, 0), "is no text in UTF-8")
            return
        for line in lines:
            if line.keyword == "SUBMIT_DESCRIPTION":
                self._do(part, line, nodes.submit_description)
        for line in lines:
            if command := _FIRST.get(line.keyword):
                self._do(part, line, command)
            elif line.keyword == "SPLICE":
                self._do(part, line, self._splice)
        for line in lines:
            if command := _SECOND.get(line.keyword):
                self._do(part, line, command)
            elif line.keyword == "INCLUDE":
                self._do(part, line, self._include)
            elif line.keyword not in _FIRST and line.keyword not in _OTHERS:
                part.draft.wrong(part.at(line), f"{line.written!r} is not a valid DAG command")

    def _do(self, part: DagPart, line: DagLine, command: Command) -> None:
        words = Words(line.text)
        try:
            command(part, line, words)
            if (more := words.next()) is not None:
                raise LineRefused(f"unexpected token {more!r}")
        except (LineRefused, WordError) as error:
            part.draft.wrong(part.at(line), f"{line.written}: {error}")

    def _include(self, part: DagPart, line: DagLine, words: Words) -> None:
        file = part.needed(words, "a file")
        if words.next() is not None:
            raise LineRefused("takes one file")
        self._refuse_loop(part, file)
        self.part(
            replace(part, file=file, included_at=part.at(line), above=(*part.above, part.shown))
        )

    def _splice(self, part: DagPart, line: DagLine, words: Words) -> None:
        name = part.prefix + part.needed(words, "a name")
        file = part.needed(words, "a file")
        folder = ""
        while (word := words.next()) is not None:
            if word.upper() != "DIR":
                raise LineRefused(f"unexpected token {word!r}")
            folder = part.needed(words, "a folder behind DIR")
        part.refuse_taken(name)
        draft = DagDraft(part.draft.findings, part.draft.warnings, joins=part.draft.joins)
        inner = DagPart(
            self,
            draft,
            file,
            os.path.join(part.folder, folder),
            f"{name}+",
            included_at=part.at(line),
            above=(*part.above, part.shown),
        )
        self._refuse_loop(part, inner.shown)
        self.part(inner)
        if draft.count(Kind.FINAL):
            raise LineRefused(f"{file} has a FINAL node, which a splice cannot have")
        part.draft.joins = draft.joins
        part.draft.nodes |= draft.nodes
        part.draft.parents |= draft.parents
        part.draft.throttles = draft.throttles | part.draft.throttles
        first, last = draft.ends()
        part.draft.splices[name] = Splice(first, last, part.at(line), draft.pins_in, draft.pins_out)

    @staticmethod
    def _refuse_loop(part: DagPart, file: str) -> None:
        if os.path.normpath(file) in map(os.path.normpath, (*part.above, part.shown)):
            raise LineRefused(f"{file} contains itself")


def read_dag(files: Sequence[str], **how: object) -> Dag:
    """The DAG of some files; `how` are fields of `Reading`.  Raises DagError."""
    return Reading(**how).read(files)  # type: ignore[arg-type]


def findings_of(dag: Dag) -> Iterable[DagFinding]:
    """What is wrong with a DAG that can be read: cycles, and that nothing can begin."""
    waits = {
        name: {*node.parents, *node.weak_parents}
        for name, node in dag.nodes.items()
        if not node.is_aside
    }
    ready = [name for name, parents in waits.items() if not parents]
    while ready:
        done = ready.pop()
        del waits[done]
        for child in dag.nodes[done].children:
            waits[child].discard(done)
            if not waits[child]:
                ready.append(child)
    if waits:
        circle = _circle(waits)
        yield DagFinding(dag.nodes[circle[0]].place, f"a cycle: {' -> '.join(circle)}")


def _circle(waits: dict[str, set[str]]) -> list[str]:
    """A cycle among nodes that all wait for others of them."""
    path, name = list[str](), next(iter(waits))
    while name not in path:
        path.append(name)
        name = min(waits[name])
    circle = [*path[path.index(name) :], name]
    return circle[::-1]
