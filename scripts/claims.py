"""What trials claim, beside what was measured: one line of a table for each claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gridbot.printing import table


@dataclass(frozen=True)
class Claim:
    """A line of the table; `is_met` is None where there is a figure but no goal."""

    scenario: str
    claim: str
    goal: str
    measured: str
    is_met: bool | None


def shown(claims: Iterable[Claim]) -> str:
    """Render the table."""
    verdicts = {True: "yes", False: "NO", None: ""}
    rows = ([c.scenario, c.claim, c.goal, c.measured, verdicts[c.is_met]] for c in claims)
    return table(("scenario", "claim", "goal", "measured", "met"), rows)


def exit_code(claims: Iterable[Claim]) -> int:
    """Give 1 if a claim is not met, else 0."""
    return int(any(claim.is_met is False for claim in claims))
