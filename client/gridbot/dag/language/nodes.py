"""Commands that define nodes: JOB, FINAL, PROVISIONER, SERVICE, SUBDAG, SUBMIT-DESCRIPTION."""

from __future__ import annotations

from gridbot.dag.language.lines import DagLine, Words
from gridbot.dag.language.model import DagNode, Kind
from gridbot.dag.language.part import DagPart, LineRefused

_KINDS = {"JOB": Kind.JOB, "NODE": Kind.JOB} | {
    kind.value: kind for kind in (Kind.FINAL, Kind.PROVISIONER, Kind.SERVICE)
}
_RESERVED = ("PARENT", "CHILD", "ALL_NODES")


def submit_description(part: DagPart, line: DagLine, words: Words) -> None:
    """Keep an inline submit description under its name."""
    name = part.needed(words, "a name")
    if line.block is None:
        raise LineRefused(f"{name} has no description in braces")
    if name in part.draft.texts:
        raise LineRefused(f"{name} is a description already")
    part.draft.texts[name] = line.block


def job(part: DagPart, line: DagLine, words: Words) -> None:
    """Define a node of one submit description."""
    kind = _KINDS[line.keyword]
    name = _new_name(part, words)
    submit = "" if line.block is not None else part.needed(words, f"the submit file of {name}")
    if kind is not Kind.FINAL and submit.endswith(".condor.sub"):
        raise LineRefused(f"{submit} is of a DAG; write SUBDAG EXTERNAL {name} FILE")
    _add(part, line, words, kind, name, submit, line.block)


def data(part: DagPart, line: DagLine, words: Words) -> None:  # noqa: ARG001
    """Refuse a node of Stork's, which moved data."""
    name = part.needed(words, "a name")
    raise LineRefused(
        f"{name}: data placement by Stork is gone; write a JOB of universe local that copies"
    )


def subdag(part: DagPart, line: DagLine, words: Words) -> None:
    """Define a node that is a whole DAG."""
    if part.needed(words, "EXTERNAL").upper() != "EXTERNAL":
        raise LineRefused("write SUBDAG EXTERNAL NAME FILE")
    name = _new_name(part, words)
    file = part.needed(words, f"the DAG file of {name}")
    _add(part, line, words, Kind.SUBDAG, name, file, None)


def _new_name(part: DagPart, words: Words) -> str:
    name = part.needed(words, "a name")
    if name.upper() in _RESERVED:
        raise LineRefused(f"{name} is a word of the language, not a node's name")
    if "+" in name and not part.reading.any_names:
        raise LineRefused(f"{name} has a +, which splices use")
    part.refuse_taken(part.prefix + name)
    return part.prefix + name


def _add(
    part: DagPart, line: DagLine, words: Words, kind: Kind, name: str, submit: str, text: str | None
) -> None:
    folder, noop, done = "", False, False
    while (word := words.next()) is not None:
        match word.upper():
            case "DIR" if not folder:
                folder = part.needed(words, "a folder behind DIR")
            case "NOOP" if not noop:
                noop = True
            case "DONE" if not done:
                done = True
            case _:
                raise LineRefused(f"unexpected token {word!r}")
    if folder and part.reading.use_dag_dir:
        raise LineRefused("DIR cannot be together with -usedagdir")
    if done and kind is Kind.FINAL:
        raise LineRefused(f"{name}: a FINAL node cannot be DONE")
    if kind in (Kind.FINAL, Kind.PROVISIONER) and part.draft.count(kind):
        raise LineRefused(f"{name}: a DAG has one {kind.value} node (final and provisioner nodes)")
    if text is None:
        text = part.draft.texts.get(submit)
    part.draft.nodes[name] = DagNode(
        name=name,
        kind=kind,
        submit=submit,
        place=part.at(line),
        text=text,
        directory=part.path(folder) if folder else part.folder,
        noop=noop,
        done=done,
    )
