"""Which boot of the machine this is: pids, start times and monotonic clocks end with it."""

from pathlib import Path


def boot_id() -> str:
    """Name this boot; no two boots have the same name."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
