"""The command line of `scripts/overlay-trial`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from gridbot.printing import table

from .direct import Comparison, compare
from .measure import Outcome, play, tell
from .place import CPUS, NODES, place
from .scenarios import SCENARIOS

DIRECT = "direct"
_SHOWN = "\n".join(
    f"{name:<12} {scenario.what}"
    for name, scenario in [*SCENARIOS.items()]
)  # fmt: skip
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
    from the last outcome until the queue is empty. hours: pilot-hours as Slurm tells them, ideal:
    the jobs' own. burnt: replicas that failed; lost: those that were sent again for want of an
    answer; twice: jobs that were done more than once.
    """
    outcomes, comparisons = [], []
    with place() as here:
        for name in names or [*SCENARIOS, DIRECT]:
            tell(f"--- {name}")
            if name == DIRECT:
                outcome, comparison = compare(here, direct_jobs, seconds, tell)
                comparisons.append(comparison)
            else:
                outcome = play(name, SCENARIOS[name], here, jobs, seconds, tell)
            outcomes.append(outcome)
            for fault in outcome.faults:
                tell(f"NOT RIGHT: {fault}")
    if as_json:
        print(json.dumps(_document(outcomes, comparisons), indent=2))
    else:
        print(table(_HEAD, map(_row, outcomes)))
        for item in comparisons:
            print(_line(item))
    sys.exit(1 if any(outcome.faults for outcome in outcomes) else 0)


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
