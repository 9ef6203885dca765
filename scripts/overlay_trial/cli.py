"""The command line of `scripts/overlay-trial`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from gridbot.printing import table
from scripts.claims import Claim, exit_code, shown
from scripts.grid_systems.cli import SYSTEMS, tried

from . import claims, direct, many_grids, nat, urgent
from .behind_nat import DELAY_SECONDS, LOSS
from .direct import SHORT, Comparison, compare
from .many_grids import Share
from .measure import Outcome, play, tell
from .place import CPUS, NODES, Place, place, tidy_when_interrupted
from .scenarios import SCENARIOS, Scenario

_PLOT = Path(__file__).resolve().parents[2] / "demo-out" / "slots.png"
_ALL: Mapping[str, Scenario] = {
    **SCENARIOS,
    direct.NAME: SHORT,
    urgent.NAME: Scenario("an urgent BOT arrives while another has all slots; draws a plot"),
    nat.NAME: Scenario(
        f"pilots behind NAT, nothing let in, one port out; {LOSS:.0%} of packets lost,"
        f" {1000 * DELAY_SECONDS:.0f} ms late"
    ),
    many_grids.NAME: Scenario(
        "Slurm, Grid Engine, HTCondor, GRAM5 and local at once; then"
        f" {many_grids.EXCLUDED} is excluded"
    ),
    **{
        name: Scenario(f"the submitter for {name} on a real system, as by scripts/grid-systems")
        for name in SYSTEMS
    },
}
_SHOWN = "\n".join(f"{name:<12} {scenario.what}" for name, scenario in _ALL.items())
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
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), default=_PLOT,
    help="Where `urgent` draws who had the slots, as PNG.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def trial(
    names: Sequence[str], jobs: int, seconds: float, direct_jobs: int, plot: Path, as_json: bool
) -> None:
    """Run the overlay on a real Slurm cluster: a server, four nodes of two CPUs on the loopback
    address, a constructor, a BOT, and nothing done by hand.

    Pilots come, the BOT ends with every outcome right, pilots leave, `squeue` is empty, and the
    server's invariants hold, whatever SCENARIOs (all, if none is named) do meanwhile. The last
    table has each claim with its goal and what was measured; ends with 1 if one is not met. Needs
    Slurm's programs and root or Slurm's own user; `nat` and `grids` need root, nftables, Grid
    Engine, Globus' client library, and what `grid-systems` needs, as `condor` and `gram` do.

    makespan: seconds from the submission to the last outcome; first: to the first one; leaving:
    from the last outcome until the queue is empty. hours: pilot-hours as Slurm tells them (of a
    pilot that it queued again, those of its last run), for `nat` and `grids` as the constructor
    saw them; ideal: the jobs' own. burnt: replicas that
    failed; lost: those that were sent again for want of an answer; twice: jobs that were done more
    than once.
    """
    found = Found()
    tidy_when_interrupted()
    try:
        with place() as here:
            for name in names or _ALL:
                tell(f"--- {name}")
                found.add(name, here, direct_jobs if name == direct.NAME else jobs, seconds, plot)
    finally:  # also when somebody interrupts the next scenario
        found.show(as_json)
    sys.exit(exit_code(found.claims))


@dataclass
class Found:
    """What the scenarios so far have shown."""

    outcomes: list[Outcome] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def add(self, name: str, here: Place, jobs: int, seconds: float, plot: Path) -> None:
        """Run a scenario; the next one has its turn also when this one breaks down."""
        try:
            self._add(name, here, jobs, seconds, plot)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            self._claim([claims.of_breakdown(name, _ALL[name], error)])

    def _add(self, name: str, here: Place, jobs: int, seconds: float, plot: Path) -> None:
        if name in SYSTEMS:
            self._claim(claims.of_system(name, tried(name)))
        elif name == direct.NAME:
            outcome, comparison = compare(here, jobs, seconds, tell)
            self._judged(name, outcome)
            self.comparisons.append(comparison)
            self._claim([claims.of_comparison(comparison)])
        elif name == urgent.NAME:
            outcome, responses = urgent.play(here, plot, tell)
            self._judged(name, outcome)
            self._claim(claims.of_responses(responses))
        elif name == nat.NAME:
            self._judged(name, nat.play(here, jobs, seconds, tell))
        elif name == many_grids.NAME:
            for outcome, shares in many_grids.play(here, jobs, seconds, tell):
                self._judged(name, outcome)
                self.shares += shares
                self._claim([claims.of_shares(outcome.scenario, shares)])
        else:
            self._judged(name, play(name, SCENARIOS[name], here, jobs, seconds, tell))

    def _judged(self, name: str, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._claim(claims.of_outcome(outcome, _ALL[name]))

    def _claim(self, made: Iterable[Claim]) -> None:
        for claim in made:
            self.claims.append(claim)
            if claim.is_met is False:
                tell(f"NOT MET: {claim.claim}: {claim.measured}")

    def show(self, as_json: bool) -> None:
        """Print the figures, and what is claimed of them in one table."""
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
        print(shown(self.claims))


def _document(found: Found) -> dict[str, Any]:
    return {
        "nodes": NODES,
        "cpus": CPUS,
        "scenarios": [asdict(outcome) for outcome in found.outcomes],
        "direct": [{**asdict(item), "ratio": item.ratio} for item in found.comparisons],
        "grids": [asdict(share) for share in found.shares],
        "claims": [asdict(claim) for claim in found.claims],
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
