"""Makes orders for pilots, each valid by itself; what a test is about, it says."""

from __future__ import annotations

from typing import Any

from gridbot_overlay.decide.model import PilotOrder, PilotShape

SMALL = PilotShape(memory_mb=100, walltime_seconds=600)


def make_order(tag: str, script: str = "exit 0", *directives: str, **fields: Any) -> PilotOrder:
    """Give an order for one small pilot."""
    fields = {"count": 1, "shape": SMALL, "owners": ("alice",), **fields}
    return PilotOrder(tag=tag, script=script, directives=directives, **fields)
