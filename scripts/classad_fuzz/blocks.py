"""Blocks of cases, each run by one process: evaluated by both sides, compared, explained."""

from __future__ import annotations

import atexit
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from . import compiled, generator, ours
from .cases import Case, Texts, asks_the_clock
from .classes import Disagreement, class_of
from .library import Library
from .shrink import shrunk
from .values import same

COMPILED = "compiled"  # the mode without the library: compiled policies beside the walker
SLOW_SECONDS = 1.0  # no case may take us as long


@dataclass(frozen=True, slots=True)
class Block:
    """Numbers of cases, and how they are made: each in one of the modes, in turn."""

    seed: int
    numbers: range
    modes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """A disagreement as it is reported, with the smallest texts that show it.

    `name` is that of its class if it is `explained`, else words that tell it from other kinds.
    """

    name: str
    explained: bool
    seed: str
    mode: str
    texts: Texts
    ours: dict[str, Any]
    theirs: dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """What a block showed."""

    cases: int
    findings: list[Finding] = field(default_factory=list)
    types: Counter[str] = field(default_factory=Counter)
    restarts: int = 0


def run(block: Block) -> Outcome:
    """Return what the block's cases show."""
    outcome = Outcome(len(block.numbers))
    for place, mode in enumerate(block.modes):
        numbers = [n for n in block.numbers if n % len(block.modes) == place]
        compare = _run_compiled if mode == COMPILED else _run
        compare(block.seed, numbers, mode, outcome)
    return outcome


def _run_compiled(seed: int, numbers: Sequence[int], mode: str, outcome: Outcome) -> None:
    for number in numbers:
        case = generator.case(seed, number, mode)
        both = compiled.answers(case.texts)
        outcome.types[both[1]["type"] if both else "walked"] += 1
        if both and not same(*both):
            least, found = shrunk(case, both, lambda less: compiled.disagreement(less.texts))
            name = words_of(Disagreement(least.texts, mode, *found))
            outcome.findings.append(Finding(name, False, case.seed, mode, least.texts, *found))


def _run(seed: int, numbers: Sequence[int], mode: str, outcome: Outcome) -> None:
    library = _library(mode)
    restarts = library.restarts
    cases = [generator.case(seed, number, mode) for number in numbers]
    batch = [case.texts for case in cases]
    library.send(batch)  # it works while we do
    values = [_timed(texts, mode) for texts in batch]
    answers = list(library.answers(batch))
    for case, mine, theirs in zip(cases, values, answers, strict=True):
        outcome.types[theirs["type"]] += 1
        if not same(mine, theirs):
            outcome.findings.append(
                _finding(Disagreement(case.texts, mode, mine, theirs), case, library)
            )
    outcome.restarts += library.restarts - restarts


@cache
def _library(mode: str) -> Library:
    """This process's library of the mode."""
    library = Library(mode)
    atexit.register(library.close)
    return library


def _timed(texts: Texts, mode: str) -> dict[str, Any]:
    began = time.thread_time()
    value = ours.answer(texts, mode)
    spent = time.thread_time() - began
    return value if spent < SLOW_SECONDS else {"type": "slow", "value": f"{spent:.1f} s"}


# Unexplained kinds that a fresh library showed as well.
_steady: set[str] = set()


def _finding(found: Disagreement, case: Case, library: Library) -> Finding:
    """Explain the disagreement, if need be by a smaller case."""
    known = class_of(found, is_smallest=False)
    if known is None:
        _, found = shrunk(case, found, lambda less: _disagreement(less, library))
        known = class_of(found, is_smallest=True)
    name = known.name if known else words_of(found)
    if known is None and name not in _steady:
        # What earlier cases may have damaged in the library's process does not count.
        library.restart()
        if not same(library.answer(found.texts), found.theirs):
            found = Disagreement(found.texts, found.mode, found.ours, {"type": "unsteady"})
            known = class_of(found, is_smallest=True)
        _steady.add(name)
    return Finding(
        known.name if known else name,
        known is not None,
        case.seed,
        found.mode,
        found.texts,
        found.ours,
        found.theirs,
    )


def _disagreement(case: Case, library: Library) -> Disagreement | None:
    if asks_the_clock(case.expression.text):
        return None
    mine, theirs = ours.answer(case.texts, case.mode), library.answer(case.texts)
    if same(mine, theirs) or theirs["type"] in ("crash", "ad_parse_error"):
        return None
    return Disagreement(case.texts, case.mode, mine, theirs)


_CALLED = re.compile(r"(\w+)\s*\(")
_PLAIN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|\s+')


def words_of(found: Disagreement) -> str:
    """Name a disagreement by the functions that its texts call, or else by the operators."""
    text = " ".join(text for text in found.texts if text)
    called = sorted({name.lower() for name in _CALLED.findall(text)})
    kinds = f"{found.ours['type']} for {found.theirs['type']}"
    if called:
        return f"functions {' '.join(called)}: {kinds}"
    return f"language {' '.join(sorted(set(_PLAIN.sub('', found.texts[2]))))}: {kinds}"
