"""Which grids an expression suits, as a GridPolicy would say (paper section 5).  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gridbot_policies.classad import CLIENT_LIMITS, Node, Record, evaluate, record
from gridbot_policies.classad.operators import truth
from gridbot_policies.policy.ads import grid_scope

_NOTHING = record({})


def suited(wanted: Node, ads: Iterable[Mapping[str, Any]], now: float) -> list[bool]:
    """Tell for each ad whether `wanted` is true of it as `Grid`, within a small budget each.

    `now` is in s since 1970.  There is no BOT and no queue: what looks at them is undefined.
    """
    return [_is_suited(wanted, record(ad), now) for ad in ads]


def _is_suited(wanted: Node, ad: Record, now: float) -> bool:
    scope = grid_scope(ad, _NOTHING, _NOTHING)
    return truth(evaluate(wanted, scope, now=now, limits=CLIENT_LIMITS)) is True
