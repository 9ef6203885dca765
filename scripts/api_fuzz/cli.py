"""The command line of `scripts/api-fuzz`."""

from __future__ import annotations

import json
import re
import sys
import time

import click

from scripts.benchmarks.harness.installation import BenchFailed, installation
from scripts.boinc_replay import report

from .run import Outcome, run

# What the server's log says of a request that it refused, or did as it was told.
_EXPECTED = re.compile("Invalid request from ip=|is suspended: |are led to the code signing key")


@click.command(context_settings={"show_default": True})
@click.option("--minutes", type=click.FloatRange(0.01), default=1.0, help="Of sending.")
@click.option("--seed", type=int, default=0, help="The same seed makes the same requests.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def fuzz(minutes: float, seed: int, as_json: bool) -> None:
    """Send requests made from the API's own description to a server of its own.

    They are right, wrong or damaged, with keys of all scopes and with none, to every operation and
    to BOINC's pages.  Ends with 1 if any answer has a status of 500 or above (but for 503), none
    comes within a minute, or the server's logs tell of an error.
    """
    until = time.monotonic() + 60 * minutes
    try:
        with installation("--sign-on-submit", "--boinc-accounts") as place:
            logs = place.settings.log
            before = report.sizes(logs)
            outcome = run(
                place.url, place.key_path.read_text().strip(), seed,
                lambda _: time.monotonic() > until,
            )  # fmt: skip
            told = unexpected(report.exceptions(logs, before))
    except BenchFailed as error:
        sys.exit(str(error))
    _show(outcome, told, as_json)
    sys.exit(1 if outcome.faults or told else 0)


def unexpected(lines: list[str]) -> list[str]:
    """Return the lines of the server's log that tell of a defect."""
    return [line for line in lines if not _EXPECTED.search(line)]


def _show(outcome: Outcome, log: list[str], as_json: bool) -> None:
    if as_json:
        document = {
            "requests": outcome.requests, "operations": len(outcome.operations),
            "statuses": dict(sorted(outcome.statuses.items())), "faults": outcome.faults,
            "log": log,
        }  # fmt: skip
        print(json.dumps(document, indent=2))
        return
    print(f"{outcome.requests} requests to {len(outcome.operations)} operations and pages")
    for status, count in sorted(outcome.statuses.items()):
        print(f"  {status or 'no answer':<10} {count:>8}")
    print(f"operations that succeeded at least once: {len(outcome.succeeded)}")
    for kind, lines in (("fault", outcome.faults), ("in the log", log)):
        print(f"{kind}: {len(lines)}")
        for line in lines[:20]:
            print(f"  {line}")
