"""The command line of `scripts/overlay-trial`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from gridbot.printing import table

from . import many_grids, nat
from .behind_nat import DELAY_SECONDS, LOSS
from .direct import Comparison, compare
from .many_grids import Share
from .measure import Outcome, play, tell
from .place import CPUS, NODES, Place, RunFailed, place
from .scenarios import SCENARIOS

DIRECT = "direct"
_OTHERS = {
    nat.NAME: f"pilots behind NAT, nothing let in, one port out; {LOSS:.0%} of packets lost,"
    f" {1000 * DELAY_SECONDS:.0f} ms late",
    many_grids.NAME: "Slurm, Grid Engine, HTCondor, GRAM5 and local at once; then"
    f" {many_grids.EXCLUDED} is excluded",
    DIRECT: "many short jobs, also each submitted to Slurm by itself",
}
_ALL = {**{name: scenario.what for name, scenario in SCENARIOS.items()}, **_OTHERS}
_SHOWN = "\n".join(f"{name:<12} {what}" for name, what in _ALL.items())
_HEAD = (
    "scenario", "jobs", "s each", "makespan", "first", "leaving", "pilots", "at once",
    "hours", "÷ ideal", "burnt", "lost", "twice",
)  # fmt: skip


@click.command(
    context_settings={"show_default": True},
    epilog=f"\b\n{_SHOWN}",
)
@click.argument("names", metavar="[SCENARIO]...", type=click.Choice(list(_ALL)), nargs=-1)
@click.option("--jobs", type=click.IntRange(20), default=400, help="Jobs of the BOT.")
@click.option("--seconds", type=float, default=1.0, help="What a job takes; it sleeps.")
@click.option("--direct-jobs", type=click.IntRange(20), default=1000, help="Jobs of `direct`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def trial(names: Sequence[str], jobs: int, seconds: float, direct_jobs: int, as_json: bool) -> None:
    """Run the overlay on a real Slurm cluster: a server, four nodes of two CPUs on the loopback
    address, a constructor, a BOT, and nothing done by hand.

    Pilots come, the BOT ends with every outcome right, pilots leave, `squeue` is empty, and the
    server's invariants hold, whatever SCENARIOs (all, if none is named) do meanwhile. Ends with 1
    if anything is not so. Needs Slurm's programs and root or Slurm's own user; `nat` and `grids`
    need root, nftables, Grid Engine, Globus' client library, and what `grid-systems` needs.

    makespan: seconds from the submission to the last outcome; first: to the first one; leaving:
    from the last outcome until the queue is empty. hours: pilot-hours as Slurm tells them (of a
    pilot that it queued again, those of its last run), for `nat` and `grids` as the constructor
    saw them; ideal: the jobs' own. burnt: replicas that
    failed; lost: those that were sent again for want of an answer; twice: jobs that were done more
    than once.
    """
    found = Found()
    for number in (signal.SIGINT, signal.SIGTERM):  # a background job ignores ^C by itself
        signal.signal(number, _interrupted)
    try:
        with place() as here:
            for name in names or _ALL:
                tell(f"--- {name}")
                found.add(name, here, direct_jobs if name == DIRECT else jobs, seconds)
    except RunFailed as error:
        sys.exit(str(error))
    finally:  # also when the next scenario breaks down
        found.show(as_json)
    sys.exit(1 if any(outcome.faults for outcome in found.outcomes) else 0)


def _interrupted(number: int, _: object) -> None:
    """End at once, but not without tidying up; what comes again meanwhile changes nothing."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


@dataclass
class Found:
    """What the scenarios so far have shown."""

    outcomes: list[Outcome] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)

    def add(self, name: str, here: Place, jobs: int, seconds: float) -> None:
        """Run a scenario."""
        if name == DIRECT:
            outcome, comparison = compare(here, jobs, seconds, tell)
            self.comparisons.append(comparison)
            self._judged(outcome)
        elif name == nat.NAME:
            self._judged(nat.play(here, jobs, seconds, tell))
        elif name == many_grids.NAME:
            for outcome, shares in many_grids.play(here, jobs, seconds, tell):
                self.shares += shares
                self._judged(outcome)
        else:
            self._judged(play(name, SCENARIOS[name], here, jobs, seconds, tell))

    def _judged(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        for fault in outcome.faults:
            tell(f"NOT RIGHT: {fault}")

    def show(self, as_json: bool) -> None:
        """Print the figures."""
        if as_json:
            print(json.dumps(_document(self), indent=2))
            return
        print(table(_HEAD, map(_row, self.outcomes)))
        for item in self.comparisons:
            print(_line(item))
        if self.shares:
            print(
                table(("scenario", "grid", "excluded", "pilots", "jobs"), map(_cells, self.shares))
            )


def _document(found: Found) -> dict[str, Any]:
    return {
        "nodes": NODES,
        "cpus": CPUS,
        "scenarios": [asdict(outcome) for outcome in found.outcomes],
        "direct": [{**asdict(item), "ratio": item.ratio} for item in found.comparisons],
        "grids": [asdict(share) for share in found.shares],
    }


def _cells(share: Share) -> list[object]:
    excluded = "yes" if share.is_excluded else ""
    return [share.scenario, share.grid, excluded, share.pilots, share.jobs]


def _row(outcome: Outcome) -> list[object]:
    return [
        outcome.scenario,
        outcome.jobs,
        f"{outcome.job_seconds:g}",
        f"{outcome.makespan_seconds:.0f}",
        f"{outcome.first_result_seconds:.0f}",
        f"{outcome.leaving_seconds:.0f}",
        outcome.pilots,
        outcome.most_pilots,
        f"{outcome.pilot_hours:.3f}",
        f"{outcome.pilot_hours / outcome.ideal_hours:.2f}",
        outcome.burnt,
        outcome.lost,
        outcome.twice,
    ]


def _line(item: Comparison) -> str:
    return (
        f"{item.jobs} jobs of {item.job_seconds:g} s: overlay {item.overlay_seconds:.0f} s,"
        f" each by itself {item.slurm_seconds:.0f} s (sbatch alone"
        f" {item.slurm_submission_seconds:.0f} s): {item.ratio:.1f} times as fast"
    )
