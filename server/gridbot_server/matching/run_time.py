"""How long a BOT's replicas run, and for which hosts that is too long.  Pure.

The time of a pilot is limited: a replica that outlives it is lost.  So a pilot gets only what is
likely to end there.  A job that saves checkpoints goes on elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gridbot_client.protocol.messages import Manifest, Resources

_NOT_GIVEN = Resources().seconds  # the limit of a BOT whose owner names none


def run_seconds(usual: float | None, manifest: Manifest) -> float | None:
    """Return the seconds that a replica is taken to run; None if that is no matter.

    `usual` is the 95th percentile of those that ended.  Before, the time limit counts, if given.
    It is unknown without both, and no matter if the job goes on elsewhere from a checkpoint.
    """
    if manifest.checkpoint:
        return None
    if usual is not None:
        return usual
    seconds = manifest.resources.seconds
    return None if seconds == _NOT_GIVEN else seconds


def outlives(seconds: float | None, host: Mapping[str, Any]) -> bool:
    """Whether a replica that runs so long would outlive the host, by its ad."""
    if seconds is None:
        return False
    left = host.get("TimeLeft")
    return isinstance(left, int | float) and seconds > left
