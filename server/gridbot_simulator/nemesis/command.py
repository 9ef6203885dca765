"""The command `scripts/nemesis`."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from gridbot_simulator.nemesis.faults import Fault, FaultKind
from gridbot_simulator.nemesis.shrink import shrink
from gridbot_simulator.nemesis.story import SeedVerdict, live

_BLOCK = 20  # seeds that a process takes at a time
_LAST_LINES = 60  # of a story


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, 1 if a seed failed."""
    asked = _parser().parse_args(arguments)
    _be_quiet()
    if asked.seed is not None and asked.seeds is None:
        return _tell_of(asked.seed, is_whole=True)
    first = 1 if asked.seed is None else asked.seed
    seeds = range(first, first + (asked.seeds or 200))
    began, failed, count = time.monotonic(), list[int](), 0
    steps, struck = 0, Counter[FaultKind]()
    for verdict in _all(seeds, asked.jobs):
        count, steps = count + 1, steps + verdict.steps
        struck.update(verdict.struck)
        if verdict.violation is not None:
            failed.append(verdict.seed)
            _say(f"seed {verdict.seed} fails: {verdict.violation}")
    seconds = time.monotonic() - began
    _say(
        f"{count} seeds, {len(failed)} failed; {steps} steps, {struck.total()} faults in"
        f" {seconds:.0f} s: {3600 * count / seconds:.0f} seeds per hour in {asked.jobs} processes"
    )
    for kind, number in sorted(struck.items(), key=lambda item: -item[1]):
        _say(f"  {number:8} {kind}")
    for seed in failed[: asked.stories]:
        _tell_of(seed, is_whole=False)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/nemesis",
        description="Run the server's own code under faults that seeds choose, in memory, and"
        " look at all invariants after each step.  A seed that fails is shrunk to a short list of"
        " faults, and its story is told.",
    )
    parser.add_argument("--seeds", type=int, help="how many (200)")
    parser.add_argument("--seed", type=int, help="the first one; alone: tell its whole story")
    parser.add_argument("--store", choices=["memory"], default="memory", help="the database")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--stories", type=int, default=3, help="failures that are told (3)")
    return parser


def _all(seeds: Sequence[int], jobs: int) -> Iterator[SeedVerdict]:
    blocks = [seeds[at : at + _BLOCK] for at in range(0, len(seeds), _BLOCK)]
    with ProcessPoolExecutor(jobs, get_context("spawn"), _be_quiet) as pool:
        for verdicts in pool.map(_block, blocks):
            yield from verdicts


def _block(seeds: Sequence[int]) -> list[SeedVerdict]:
    return [live(seed) for seed in seeds]


def _tell_of(seed: int, *, is_whole: bool) -> int:
    """Tell the story of a seed; of one that fails with as few faults as possible."""
    verdict = live(seed, is_told=is_whole)
    if verdict.violation is None:
        _say("\n".join([*verdict.story, f"seed {seed} ends well"]))
        return 0
    name = verdict.violation.name

    def fails(faults: Sequence[Fault]) -> bool:
        found = live(seed, faults).violation
        return found is not None and found.name == name

    few = shrink(verdict.faults, fails)
    told = live(seed, few, is_told=True)
    _say(f"\nseed {seed}: {len(few)} of {len(verdict.faults)} faults suffice")
    _say("\n".join(f"  {fault}" for fault in few))
    lines = told.story if is_whole else told.story[-_LAST_LINES:]
    _say("\n".join([*lines, f"violated: {told.violation}"]))
    return 1


def _be_quiet() -> None:
    """Let the server not log what it met: here it is nothing unusual."""
    logging.getLogger("gridbot_server").setLevel(logging.CRITICAL)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
