"""Commands about the whole DAG: reports, settings, environment."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from gridbot.dag.language.lines import DagLine, Words, plain
from gridbot.dag.language.model import DotFile, StatusFile
from gridbot.dag.language.part import DagPart, LineRefused

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def reject(part: DagPart, line: DagLine, words: Words) -> None:  # noqa: ARG001
    """Refuse the file, as its writer wants."""
    while words.next() is not None:
        pass
    raise LineRefused("this DAG is not to be run")


def dot(part: DagPart, line: DagLine, words: Words) -> None:
    """Ask for a picture of the graph."""
    del line
    made = DotFile(part.path(part.needed(words, "a file")))
    while (word := words.next()) is not None:
        match plain(word):
            case "UPDATE" | "DONT_UPDATE" as said:
                made = replace(made, update=said == "UPDATE")
            case "OVERWRITE" | "DONT_OVERWRITE" as said:
                made = replace(made, overwrite=said == "OVERWRITE")
            case "INCLUDE":
                file = part.needed(words, "a file behind INCLUDE")
                made = replace(made, include=part.path(file))
            case _:
                raise LineRefused(f"unexpected token {word!r}")
    part.draft.dot = made


def node_status_file(part: DagPart, line: DagLine, words: Words) -> None:
    """Ask for a file that tells the nodes' states."""
    made = StatusFile(part.path(part.needed(words, "a file")))
    while (word := words.next()) is not None:
        if plain(word) == "ALWAYS_UPDATE":
            made = replace(made, always=True)
        else:
            made = replace(made, seconds=float(part.number(word, "the seconds", 0)))
    if part.draft.status_file:
        part.draft.warn(part.at(line), "a second NODE_STATUS_FILE; the first one counts")
        return
    part.draft.status_file = made


def jobstate_log(part: DagPart, line: DagLine, words: Words) -> None:
    """Ask for the log that Pegasus reads."""
    path = part.path(part.needed(words, "a file"))
    if part.draft.jobstate_log:
        part.draft.warn(part.at(line), "a second JOBSTATE_LOG; the first one counts")
        return
    part.draft.jobstate_log = path


def config(part: DagPart, line: DagLine, words: Words) -> None:
    """Name the file of settings."""
    path = part.path(part.needed(words, "a file"))
    if part.above:
        part.draft.warn(part.at(line), "CONFIG has no effect in a splice or an included file")
        return
    if not os.path.isfile(os.path.join(part.reading.base, path)):
        raise LineRefused(f"the config file {path} does not exist")
    part.draft.configs.setdefault(path, part.at(line))


def env(part: DagPart, line: DagLine, words: Words) -> None:
    """Set variables for scripts, or name those that the submitter's environment gives."""
    action = part.needed(words, "SET or GET").upper()
    if action == "GET":
        names = [word.strip(",") for word in words.all()]
        if not names:
            raise LineRefused("GET needs names of variables")
        part.draft.inherited += names
        return
    if action != "SET":
        raise LineRefused(f"{action} is neither SET nor GET")
    rest = words.rest()
    while words.next() is not None:
        pass
    if rest[:1] in "\"'" and rest[-1:] == rest[:1]:
        rest = rest[1:-1]
    for piece in filter(None, (piece.strip() for piece in rest.split(";"))):
        name, equals, value = piece.partition("=")
        if not equals or not _VARIABLE.fullmatch(name.strip()):
            raise LineRefused(f"{piece!r} is not of the form NAME=value")
        if not part.above:
            part.draft.environment[name.strip()] = value
    if part.above:
        part.draft.warn(part.at(line), "ENV has no effect in a splice or an included file")


def set_job_attr(part: DagPart, line: DagLine, words: Words) -> None:
    """Keep an attribute of the run itself."""
    del line
    text = words.rest()
    while words.next() is not None:
        pass
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"\+?[A-Za-z_][A-Za-z0-9_.]*", name.strip()):
        raise LineRefused(f"{text!r} is not of the form NAME = value")
    if not part.above:
        part.draft.attributes[name.strip()] = value.strip()
