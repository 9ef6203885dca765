"""What the trials claim of the overlay, with goal, measured value and verdict.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scripts.claims import Claim

from .direct import NAME as DIRECT
from .direct import Comparison
from .many_grids import Share
from .measure import Outcome
from .scenarios import Scenario
from .urgent import NAME as URGENT
from .urgent import Responses

_FIRST_PILOT_SECONDS, _FIRST_URGENT_SECONDS = 2.0, 6.0


def of_outcome(found: Outcome, scenario: Scenario) -> Iterator[Claim]:
    """Judge one scenario."""
    hours = found.pilot_hours / found.ideal_hours
    burnt = found.burnt / found.jobs
    yield Claim(
        scenario=found.scenario,
        claim=f"{scenario.what}: all answers right, invariants hold, no pilot stays",
        goal="no fault",
        measured="; ".join(found.faults) or f"none in {found.makespan_seconds:.0f} s",
        is_met=not found.faults,
    )
    yield Claim(
        scenario=found.scenario,
        claim="pilot-hours ÷ the jobs' own",
        goal=f"≤ {scenario.most_hours}" if scenario.most_hours else "",
        measured=f"{hours:.2f}",
        is_met=hours <= scenario.most_hours if scenario.most_hours else None,
    )
    if scenario.most_burnt is not None:
        yield Claim(
            scenario=found.scenario,
            claim="jobs that failed",
            goal=f"< {scenario.most_burnt:.0%}",
            measured=f"{burnt:.1%}",
            is_met=burnt < scenario.most_burnt,
        )
    if scenario.most_twice is not None:
        yield Claim(
            scenario=found.scenario,
            claim="jobs that were done more than once",
            goal=f"≤ {scenario.most_twice}",
            measured=str(found.twice),
            is_met=found.twice <= scenario.most_twice,
        )


def of_breakdown(name: str, scenario: Scenario, error: Exception) -> Claim:
    """Say that a scenario could not be brought to its end."""
    return Claim(
        scenario=name,
        claim=f"{scenario.what}: it can be tried",
        goal="to its end",
        measured=str(error) or type(error).__name__,
        is_met=False,
    )


def of_comparison(found: Comparison) -> Claim:
    """Judge the overlay beside a submission for each job."""
    return Claim(
        scenario=DIRECT,
        claim=f"{found.jobs} jobs of {found.job_seconds:g} s: time by an sbatch each ÷ by pilots",
        goal="> 1",
        measured=f"{found.slurm_seconds:.0f} s ÷ {found.overlay_seconds:.0f} s = {found.ratio:.2f}",
        is_met=found.ratio > 1,
    )


def of_shares(scenario: str, shares: Sequence[Share]) -> Claim:
    """Judge how a BOT was divided among several grids."""
    excluded = [share.grid for share in shares if share.is_excluded]
    goal = "each > 0" + "".join(f", {grid} 0" for grid in excluded)
    return Claim(
        scenario=scenario,
        claim="jobs by grid",
        goal=goal,
        measured=", ".join(f"{share.grid} {share.jobs}" for share in shares),
        is_met=all((share.jobs == 0) == share.is_excluded for share in shares),
    )


def of_responses(found: Responses) -> Iterator[Claim]:
    """Judge how fast the overlay followed two BOTs."""
    for claim, seconds, most in (
        (
            "from a submission until Slurm has a pilot, at most",
            found.first_pilot,
            _FIRST_PILOT_SECONDS,
        ),
        ("from a submission until all slots ran its jobs", found.grown, None),
        (
            "from an urgent submission to its first result",
            found.first_urgent,
            _FIRST_URGENT_SECONDS,
        ),
        ("from an urgent submission to its last result", found.last_urgent, None),
        ("from the last result to an empty queue", found.shrunk, None),
    ):
        yield Claim(
            scenario=URGENT,
            claim=claim,
            goal="" if most is None else f"≤ {most:g} s",
            measured=f"{seconds:.1f} s",
            is_met=None if most is None else seconds <= most,
        )


def of_system(system: str, found: Iterable[Mapping[str, Any]]) -> Iterator[Claim]:
    """Take over what `scripts/grid-systems` claims of a submitter."""
    for item in found:
        yield Claim(
            scenario=system,
            claim=item["claim"],
            goal="holds",
            measured=item["said"] or f"holds; {item['seconds']:.0f} s",
            is_met=item["is_good"],
        )
