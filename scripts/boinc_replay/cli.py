"""The command line of `scripts/boinc-replay`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click
from tests.boinc_captures import captures

from scripts.benchmarks.harness.installation import BenchFailed, Installation, installation

from . import captured, report
from .hosts import Project
from .report import Summary
from .run import Amount, run
from .wire import Wire

FIRST = "run1_003_ok"  # a client's first request
_OPTIONS = ("--sign-on-submit", "--boinc-accounts", "--behind-proxy")
_JOBS = 1_000_000  # nobody computes them, but many hosts are given some


@click.command(context_settings={"show_default": True})
@click.option(
    "--captures", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Recorded requests, one in each .txt below this folder, instead of those of the tests.",
)  # fmt: skip
@click.option("--cuts", type=click.IntRange(0), default=50, help="Of each, cut at random places.")
@click.option("--mutations", type=click.IntRange(0), default=1000, help="Of each, damaged.")
@click.option("--seed", type=int, default=0, help="The same seed gives the same damage.")
@click.option("--jobs", type=click.IntRange(1, 16), default=4, help="Requests sent at a time.")
@click.option("--show", "most", type=click.IntRange(0), default=20, help="Faults to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def replay(
    folder: Path | None, cuts: int, mutations: int, seed: int, jobs: int, most: int, as_json: bool
) -> None:
    """Replay what stock BOINC clients really sent on a server of its own.

    Each request is sent whole, then cut short (every other time by a connection that breaks off),
    then with short parts replaced at random; names, keys and certificates in it are ones that the
    server has just given. Ends with 1 if any answer has a status of 500 or above, none comes within
    a minute, a scheduler's reply is not whole, a whole report is not acknowledged, or the server's
    logs tell of an error.

    A recorded request is a text: a line "### TIME", the request line, headers, an empty line,
    the body, and "### REPLY" after an empty line.
    """
    requests = captured.read(folder) if folder else captured.kept()
    if not requests:
        sys.exit(f"there is no recorded request in {folder}")
    amount = Amount(cuts, mutations, seed)
    try:
        summary = _replayed(requests, amount, jobs)
    except BenchFailed as error:
        sys.exit(str(error))
    report.show(summary, most, as_json)
    sys.exit(0 if summary.is_good else 1)


def _replayed(requests: list[captured.Captured], amount: Amount, jobs: int) -> Summary:
    summary, began = Summary(), time.monotonic()
    with installation(*_OPTIONS) as place:
        project, logs = _project(place), place.settings.log
        before = report.sizes(logs)
        host, _, port = place.url.removeprefix("http://").partition(":")
        with report.progress(len(requests) * amount.requests) as tell:
            for sent in run(project, lambda: Wire(host, int(port)), requests, amount, jobs):
                summary.add(sent)
                tell(summary)
        summary.seconds = time.monotonic() - began
        summary.log = report.exceptions(logs, before)
    return summary


def _project(place: Installation) -> Project:
    """A BOT that stock clients are given; its owner's machines may hold any number of its jobs."""
    place.submit("--range", f"1:{_JOBS}", "--time", "10m", "--output", "stdout", "--", "echo", "{}")
    owner = json.loads(place.gridbot("user", "list", "--json"))["owners"][0]["name"]
    made = place.gridbot("token", "create", owner, "--scope", "join", "--json")
    return Project("/boinc/", json.loads(made)["token"], captures()[FIRST])
