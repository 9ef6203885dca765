"""Commands that say how nodes are run: scripts, retries, variables, throttles."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from gridbot.dag.language.lines import DagLine, Words, plain
from gridbot.dag.language.model import Kind, Script, Variable
from gridbot.dag.language.part import DagPart, LineRefused

_ASIDE = (Kind.FINAL, Kind.SERVICE, Kind.PROVISIONER)
_NAME = re.compile(r"(\+|[Mm][Yy]\.)?[A-Za-z0-9_]+")
_STREAMS = ("STDOUT", "STDERR", "ALL")


def script(part: DagPart, line: DagLine, words: Words) -> None:
    """Set a node's PRE, POST or HOLD script."""
    defer_status, defer_seconds, debug_file, debug_streams = None, 0.0, "", ""
    kind = part.needed(words, "PRE, POST or HOLD").upper()
    while kind in ("DEFER", "DEBUG"):
        if kind == "DEFER":
            defer_status = part.integer(words, "the exit code of DEFER")
            defer_seconds = float(part.integer(words, "the seconds of DEFER", 0))
        else:
            debug_file = part.path(part.needed(words, "a file behind DEBUG"))
            debug_streams = part.needed(words, "STDOUT, STDERR or ALL").upper()
            if debug_streams not in _STREAMS:
                raise LineRefused(f"{debug_streams}: a script prints STDOUT, STDERR or ALL")
        kind = part.needed(words, "PRE, POST or HOLD").upper()
    if kind not in ("PRE", "POST", "HOLD"):
        raise LineRefused(f"{kind} is none of PRE, POST and HOLD")
    nodes = part.named(words)
    # Quotes in a script's line are text: it is split at blanks only.
    rest = words.rest().split()
    while words.next() is not None:
        pass
    if not rest:
        raise LineRefused("a program is missing")
    made = Script(
        kind, rest[0], tuple(rest[1:]), part.at(line),
        defer_status, defer_seconds, debug_file, debug_streams,
    )  # fmt: skip
    for name in nodes:
        if getattr(part.draft.nodes[name], kind.lower()):
            part.draft.warn(made.place, f"{name} has a {kind} script already; this one counts")
        part.draft.change([name], **{kind.lower(): made})


def retry(part: DagPart, line: DagLine, words: Words) -> None:
    """Set how often a node is repeated."""
    del line
    names = part.named(words, () if part.is_rescue else _ASIDE)
    count = part.integer(words, "a number of retries", 0)
    unless = None
    if (word := words.next()) is not None:
        if plain(word) != "UNLESS_EXIT":
            raise LineRefused(f"unexpected token {word!r}")
        unless = part.integer(words, "the exit code of UNLESS-EXIT")
    part.draft.change(names, retries=count, unless_exit=unless)


def abort_dag_on(part: DagPart, line: DagLine, words: Words) -> None:
    """Set the node value that ends the whole DAG."""
    del line
    names = part.named(words, (Kind.FINAL, Kind.SERVICE))
    value, code = part.integer(words, "an exit code"), None
    if (word := words.next()) is not None:
        if word.upper() != "RETURN":
            raise LineRefused(f"unexpected token {word!r}")
        code = part.integer(words, "the exit code of RETURN", 0)
        if code > 255:
            raise LineRefused(f"RETURN {code} is beyond 255")
    part.draft.change(names, abort_on=value, abort_return=code)


def variables(part: DagPart, line: DagLine, words: Words) -> None:
    """Set macros for a node's submit description."""
    names = part.named(words, ())
    appended, pairs = part.reading.append_variables, list[tuple[str, str]]()
    rest = words.rest()
    head, _, tail = rest.replace("\t", " ").partition(" ")
    if head.upper() in ("PREPEND", "APPEND") and not tail.lstrip().startswith("="):
        appended = head.upper() == "APPEND"
        words.next()
    while (pair := words.pair()) is not None:
        pairs.append(pair)
    if not pairs:
        raise LineRefused('no variable: write NAME="value"')
    for key, _ in pairs:
        if not _NAME.fullmatch(key) or key.lower().startswith("queue"):
            raise LineRefused(f"{key!r} is no name of a variable")
    for name in names:
        kept = {known.name: known for known in part.draft.nodes[name].variables}
        for key, value in pairs:
            if key in kept:
                part.draft.warn(part.at(line), f"{name}: {key} was set before; this value counts")
            kept[key] = Variable(key, value, appended)
        part.draft.change([name], variables=tuple(kept.values()))


def priority(part: DagPart, line: DagLine, words: Words) -> None:
    """Set which node is submitted first."""
    del line
    names = part.named(words, (Kind.FINAL, Kind.SERVICE))
    part.draft.change(names, priority=part.integer(words, "a priority"))


def category(part: DagPart, line: DagLine, words: Words) -> None:
    """Put nodes in a category, which has a throttle."""
    del line
    names = part.named(words, (Kind.FINAL, Kind.SERVICE))
    part.draft.change(names, category=_category(part, part.needed(words, "a category")))


def maxjobs(part: DagPart, line: DagLine, words: Words) -> None:
    """Set the throttle of a category."""
    del line
    name = _category(part, part.needed(words, "a category"))
    part.draft.throttles[name] = part.integer(words, "a number of jobs", 0)


def _category(part: DagPart, name: str) -> str:
    """A category that begins with + is one over all splices."""
    return name if name.startswith("+") else part.prefix + name


def pre_skip(part: DagPart, line: DagLine, words: Words) -> None:
    """Set the exit code of PRE with which a node is done."""
    names = part.named(words)
    code = part.integer(words, "an exit code")
    if code == 0:
        part.draft.warn(part.at(line), "PRE_SKIP 0 has no effect: a PRE that exits 0 has succeeded")
    part.draft.change(names, pre_skip=code)


def tolerance(part: DagPart, line: DagLine, words: Words) -> None:
    """Set how many failed jobs a node bears."""
    del line
    names = part.named(words)
    word = part.needed(words, "a number of jobs")
    count, waits = part.number(word.removesuffix("%"), "a number of jobs", 0), None
    if (more := words.next()) is not None:
        if plain(more) not in ("FAIL_FAST", "WAIT"):
            raise LineRefused(f"unexpected token {more!r}")
        waits = plain(more) == "WAIT"
    part.draft.change(
        names, tolerance=count, tolerance_is_share=word.endswith("%"), tolerance_waits=waits
    )


def done(part: DagPart, line: DagLine, words: Words) -> None:
    """Mark a node as done, as a rescue file does."""
    del line
    name = part.node(words)
    node = part.draft.nodes[name]
    if node.kind is Kind.FINAL:
        raise LineRefused(f"{name} is a FINAL node, which cannot be DONE")
    part.draft.nodes[name] = replace(node, done=True, is_rescued=True)


def save_point_file(part: DagPart, line: DagLine, words: Words) -> None:
    """Set the file that is written when a node first starts."""
    del line
    name = part.needed(words, "a node")
    if name.upper() == "ALL_NODES":
        raise LineRefused("a save point belongs to one node")
    full = part.prefix + name
    if full not in part.draft.nodes:
        raise LineRefused(f"{name} is no node")
    file = words.next() or f"{full}-{os.path.basename(part.shown)}.save"
    path = file if "/" in file else f"save_files/{file}"
    part.draft.change([full], save_point=part.path(path))
