"""Which boot of the machine this is, and how long ago: pids and monotonic clocks end with it."""

from __future__ import annotations

import time
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Name of this boot, which no other has; empty where the kernel gives none."""
    try:
        return BOOT_ID.read_text().strip()
    except FileNotFoundError:
        return ""


def since_boot() -> float:
    """Seconds since boot, on a monotonic clock that includes sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
