"""How long a BOT's replicas run, and for which hosts that is too long.  Pure.

The time of a pilot is limited: a replica that outlives it is lost.  So a pilot gets only what is
likely to end there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gridbot_client.protocol.messages import Resources

_NOT_GIVEN = Resources().seconds  # the limit of a BOT whose owner names none


def run_seconds(usual: float | None, resources: Resources) -> float | None:
    """Return the seconds that a replica is taken to run; None if nobody knows.

    `usual` is the 95th percentile of those that ended.  Before, the time limit counts, if given.
    """
    if usual is not None:
        return usual
    return None if resources.seconds == _NOT_GIVEN else resources.seconds


def outlives(seconds: float | None, host: Mapping[str, Any]) -> bool:
    """Whether a replica that runs so long would outlive the host, by its ad."""
    if seconds is None:
        return False
    left = host.get("TimeLeft")
    return isinstance(left, int | float) and seconds > left
