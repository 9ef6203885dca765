"""What is claimed, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """A line of the table."""

    claim: str
    goal: str
    measured: str
    is_met: bool
