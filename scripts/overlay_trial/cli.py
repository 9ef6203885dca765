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

from .direct import Comparison, compare
from .measure import Outcome, play, tell
from .place import CPUS, NODES, Place, RunFailed, place
from .scenarios import SCENARIOS

DIRECT = "direct"
_SHOWN = "\n".join(f"{name:<12} {scenario.what}" for name, scenario in SCENARIOS.items())
_HEAD = (
    "scenario", "jobs", "s each", "makespan", "first", "leaving", "pilots", "at once",
    "hours", "÷ ideal", "burnt", "lost", "twice",
)  # fmt: skip


@click.command(
    context_settings={"show_default": True},
    epilog=f"\b\n{_SHOWN}\n{DIRECT:<12} many short jobs, also each submitted to Slurm by itself",
)
@click.argument("names", metavar="[SCENARIO]...", type=click.Choice([*SCENARIOS, DIRECT]), nargs=-1)
@click.option("--jobs", type=click.IntRange(20), default=400, help="Jobs of the BOT.")
@click.option("--seconds", type=float, default=1.0, help="What a job takes; it sleeps.")
@click.option("--direct-jobs", type=click.IntRange(20), default=1000, help="Jobs of `direct`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def trial(names: Sequence[str], jobs: int, seconds: float, direct_jobs: int, as_json: bool) -> None:
    """Run the overlay on a real Slurm cluster: a server, four nodes of two CPUs on the loopback
    address, a constructor, a BOT, and nothing done by hand.

    Pilots come, the BOT ends with every outcome right, pilots leave, `squeue` is empty, and the
    server's invariants hold, whatever SCENARIOs (all, if none is named) do meanwhile. Ends with 1
    if anything is not so. Needs Slurm's programs and root or Slurm's own user.

    makespan: seconds from the submission to the last outcome; first: to the first one; leaving:
    from the last outcome until the queue is empty. hours: pilot-hours as Slurm tells them (of a
    pilot that it queued again, those of its last run), ideal: the jobs' own. burnt: replicas that
    failed; lost: those that were sent again for want of an answer; twice: jobs that were done more
    than once.
    """
    found = Found()
    for number in (signal.SIGINT, signal.SIGTERM):  # a background job ignores ^C by itself
        signal.signal(number, _interrupted)
    try:
        with place() as here:
            for name in names or [*SCENARIOS, DIRECT]:
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

    def add(self, name: str, here: Place, jobs: int, seconds: float) -> None:
        """Run a scenario."""
        if name == DIRECT:
            outcome, comparison = compare(here, jobs, seconds, tell)
            self.comparisons.append(comparison)
        else:
            outcome = play(name, SCENARIOS[name], here, jobs, seconds, tell)
        self.outcomes.append(outcome)
        for fault in outcome.faults:
            tell(f"NOT RIGHT: {fault}")

    def show(self, as_json: bool) -> None:
        """Print the figures."""
        if as_json:
            print(json.dumps(_document(self.outcomes, self.comparisons), indent=2))
            return
        print(table(_HEAD, map(_row, self.outcomes)))
        for item in self.comparisons:
            print(_line(item))


def _document(outcomes: Sequence[Outcome], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "nodes": NODES,
        "cpus": CPUS,
        "scenarios": [asdict(outcome) for outcome in outcomes],
        "direct": [{**asdict(item), "ratio": item.ratio} for item in comparisons],
    }


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
