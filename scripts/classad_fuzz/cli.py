"""The command line of `scripts/classad-fuzz`."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

import click

from . import report
from .blocks import COMPILED, Block, Outcome, run
from .report import Summary

BLOCK = 500  # cases
MODES = {
    "condor": ("condor",),
    "strict": ("strict",),
    "both": ("condor", "strict"),
    COMPILED: (COMPILED,),
}


@click.command()
@click.option("--count", type=click.IntRange(1), default=20_000, help="Expressions to generate.")
@click.option("--seed", type=int, default=0, help="The same seed gives the same expressions.")
@click.option("--mode", type=click.Choice(sorted(MODES)), default="both", help="HTCondor's.")
@click.option("--jobs", type=click.IntRange(1), default=2, help="Processes of each side.")
@click.option("--show", type=click.IntRange(0), default=20, help="Unexplained ones to print.")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Append a line for each kind of them."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def fuzz(
    count: int, seed: int, mode: str, jobs: int, show: int, keep: Path | None, as_json: bool
) -> None:
    """Compare GridBot's ClassAd evaluator with HTCondor's library on generated expressions.

    Ends with 1 if the two disagree about anything that no class explains. The mode "compiled"
    compares compiled policies with the evaluator instead.
    """
    if mode != COMPILED and importlib.util.find_spec("htcondor2") is None:
        sys.exit(
            "HTCondor's Python package is needed to compare with;"
            " it exists for Linux on x86_64 and aarch64: pip install htcondor"
        )
    blocks = [
        Block(seed, range(start, min(start + BLOCK, count)), MODES[mode])
        for start in range(0, count, BLOCK)
    ]
    summary, began = Summary(), time.monotonic()
    with report.progress(count) as tell:
        for outcome in _outcomes(blocks, jobs):
            summary.add(outcome)
            tell(summary)
    summary.seconds = time.monotonic() - began
    if keep is not None:
        _append(keep, summary)
    report.show(summary, show, as_json)
    sys.exit(1 if summary.unexplained else 0)


def _outcomes(blocks: list[Block], jobs: int) -> Iterator[Outcome]:
    """Run the blocks in `jobs` processes; few wait in line, so that an interrupt ends soon."""
    # Not by fork: the progress bar has a thread. An interrupt is for this process alone.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _ignore_interrupts) as pool:
        waiting: set[Future[Outcome]] = set()
        for block in blocks:
            waiting.add(pool.submit(run, block))
            while len(waiting) >= 2 * jobs:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        yield from (each.result() for each in waiting)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _append(path: Path, summary: Summary) -> None:
    """Write the smallest of each unexplained kind, a JSON line each."""
    with path.open("a") as file:
        for finding in summary.smallest():
            file.write(json.dumps(report.plain(finding)) + "\n")
