"""The command `scripts/nemesis`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from gridbot_server.storage import db
from gridbot_server.supervision.postgres import Postgres
from gridbot_simulator.nemesis.faults import Fault, FaultKind
from gridbot_simulator.nemesis.mirror import MirroredStore, faults_of, make_database
from gridbot_simulator.nemesis.shrink import shrink
from gridbot_simulator.nemesis.story import MakeStore, SeedVerdict, live

_BLOCK = 20  # seeds that a process takes at a time
_LAST_LINES = 60  # of a story


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, 1 if a seed failed."""
    asked = _parser().parse_args(arguments)
    _be_quiet()
    with _database(asked.store) as dsn:
        if asked.seed is not None and asked.seeds is None:
            return _tell_of(asked.seed, dsn, is_whole=True)
        return _run(asked, dsn)


def _run(asked: argparse.Namespace, dsn: str | None) -> int:
    first = 1 if asked.seed is None else asked.seed
    seeds = range(first, first + (asked.seeds or 200))
    began, failed, count = time.monotonic(), list[int](), 0
    steps, struck, statements = 0, Counter[FaultKind](), 0
    for verdict in _all(seeds, asked.jobs, dsn):
        count, steps = count + 1, steps + verdict.steps
        statements += verdict.statements.total()
        struck.update(verdict.struck)
        if verdict.violation is not None:
            failed.append(verdict.seed)
            _say(f"seed {verdict.seed} fails: {verdict.violation}")
    seconds = time.monotonic() - began
    _say(
        f"{count} seeds, {len(failed)} failed; {steps} steps, {statements} statements,"
        f" {struck.total()} faults in {seconds:.0f} s: {3600 * count / seconds:.0f} seeds per hour"
        f" in {asked.jobs} processes"
    )
    for kind, number in sorted(struck.items(), key=lambda item: -item[1]):
        _say(f"  {number:8} {kind}")
    for seed in failed[: asked.stories]:
        _tell_of(seed, dsn, is_whole=False)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/nemesis",
        description="Run the server's own code under faults that seeds choose, in memory, and"
        " look at all invariants after each step.  With `--store postgres` each statement runs in"
        " a PostgreSQL of its own, too, and must give the same.  A seed that fails is shrunk to a"
        " short list of faults, and its story is told.",
    )
    parser.add_argument("--seeds", type=int, help="how many (200)")
    parser.add_argument("--seed", type=int, help="the first one; alone: tell its whole story")
    parser.add_argument(
        "--store", choices=["memory", "postgres"], default="memory", help="the database (memory)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--stories", type=int, default=3, help="failures that are told (3)")
    return parser


@contextmanager
def _database(store: str) -> Iterator[str | None]:
    """The connection string of a PostgreSQL of our own; None where none is wanted."""
    if store == "memory":
        yield None
        return
    with TemporaryDirectory(prefix="gridbot-nemesis-") as folder:
        Path(folder).chmod(0o711)  # PostgreSQL runs as a user of its own
        server = Postgres(Path(folder), durable=False)
        try:
            server.wait_ready(server.start(Path(folder) / "postgresql.log"))
            yield server.dsn
        finally:
            server.stop()


def _all(seeds: Sequence[int], jobs: int, dsn: str | None) -> Iterator[SeedVerdict]:
    blocks = [seeds[at : at + _BLOCK] for at in range(0, len(seeds), _BLOCK)]
    with ProcessPoolExecutor(jobs, get_context("spawn"), _be_quiet) as pool:
        for verdicts in pool.map(_block, blocks, repeat(dsn)):
            yield from verdicts


def _block(seeds: Sequence[int], dsn: str | None) -> list[SeedVerdict]:
    return [_live(seed, dsn) for seed in seeds]


def _live(
    seed: int, dsn: str | None, faults: Sequence[Fault] | None = None, *, is_told: bool = False
) -> SeedVerdict:
    if dsn is None:
        return live(seed, faults, is_told=is_told)
    listed = faults_of(seed) if faults is None else faults
    return live(seed, listed, make_store=_mirrored(dsn), is_told=is_told)


@cache
def _mirrored(dsn: str) -> MakeStore:
    """Makes stores over a database of this process."""
    conn = db.connect(make_database(dsn, f"nemesis_{os.getpid()}"), autocommit=True)
    return lambda tables, points: MirroredStore(tables, points, conn)


def _tell_of(seed: int, dsn: str | None, *, is_whole: bool) -> int:
    """Tell the story of a seed; of one that fails with as few faults as possible."""
    verdict = _live(seed, dsn, is_told=is_whole)
    if verdict.violation is None:
        _say("\n".join([*verdict.story, f"seed {seed} ends well"]))
        return 0
    name = verdict.violation.name

    def fails(faults: Sequence[Fault]) -> bool:
        found = _live(seed, dsn, faults).violation
        return found is not None and found.name == name

    few = shrink(verdict.faults, fails)
    told = _live(seed, dsn, few, is_told=True)
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
