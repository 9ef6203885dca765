"""Looks at the machine for what preferences need, without root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from gridbot_client.preferences.decision import Facts

# Where /sys and /proc/stat are looked for; another folder serves machines that are made up.
_ROOT = Path(os.environ.get("GRIDBOT_SYSTEM_ROOT", "/"))
_ASK_SECONDS = 5.0


def on_battery() -> bool | None:
    """Whether no mains feed the machine; None without a battery.

    Source: Documentation/ABI/testing/sysfs-class-power of Linux.
    """
    has_battery = is_discharging = False
    for supply in sorted((_ROOT / "sys/class/power_supply").glob("*")):
        kind = _text(supply / "type")
        if kind in ("Mains", "USB") and _text(supply / "online") == "1":
            return False
        # Those of mice and keyboards have the scope Device.
        if kind == "Battery" and _text(supply / "scope") != "Device":
            has_battery = True
            is_discharging |= _text(supply / "status") == "Discharging"
    return is_discharging if has_battery else None


def idle_minutes(now: float) -> float | None:
    """Minutes since somebody used the machine, by logind and terminals; None if neither tells.

    Source: IdleHint and IdleSinceHint of org.freedesktop.login1(5), in microseconds since 1970.
    """
    found = [] if (hint := _hinted(now)) is None else [hint]
    for user in psutil.users():
        with suppress(OSError):
            found.append(now - os.stat(f"/dev/{user.terminal}").st_atime)
    return max(0.0, min(found) / 60) if found else None


def _hinted(now: float) -> float | None:
    if shutil.which("loginctl") is None:
        return None
    command = ["loginctl", "show", "-p", "IdleHint", "-p", "IdleSinceHint"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)
    if ended.returncode or "IdleHint" not in told:
        return None
    if told["IdleHint"] != "yes":
        return 0.0
    since = told.get("IdleSinceHint", "")
    return now - int(since) / 1e6 if since.isdecimal() else None


class OtherLoad:
    """The share of all CPUs that others than this process and its descendants use."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None

    def measure(self) -> float | None:
        """Per cent since the last call; None at the first, and where the kernel does not tell."""
        try:
            line = (_ROOT / "proc/stat").read_text().split("\n", 1)[0]
            # user nice system idle iowait irq softirq steal (proc_stat(5)), in ticks
            ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in line.split()[1:9]]
        except (OSError, ValueError):
            return None
        total, busy = sum(ticks), sum(ticks) - sum(ticks[3:5])
        now, before = (total, busy, _own_seconds()), self._before
        self._before = now
        if before is None or total <= before[0]:
            return None
        others = (now[1] - before[1]) - max(0.0, now[2] - before[2])
        return min(100.0, max(0.0, 100 * others / (total - before[0])))


def _own_seconds() -> float:
    """CPU seconds of this process and all below it, with those that they have reaped."""
    mine, found = psutil.Process(), 0.0
    for process in (mine, *mine.children(recursive=True)):
        with suppress(psutil.Error):
            found += sum(process.cpu_times()[:4])
    return found


def facts(load: OtherLoad, now: float, folder: Path) -> Facts:
    """All facts at a moment, in seconds since 1970."""
    clock = time.localtime(now)
    return Facts(
        minute=60 * clock.tm_hour + clock.tm_min, weekday=clock.tm_wday,
        on_battery=on_battery(), idle_minutes=idle_minutes(now), other_load=load.measure(),
        disk_bytes=shutil.disk_usage(folder).total,
    )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
