"""Measures this machine: the attributes of its host ad, and a stable machine id."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from gridbot_client.agent import Room
from gridbot_client.host import gpus as devices
from gridbot_client.host.gpus import Gpu
from gridbot_client.installation import release
from gridbot_client.protocol.manifest import LATEST
from gridbot_client.protocol.messages import Scalar
from gridbot_policies.policy.owner import OwnerPolicy

# uuid.getnode sets this bit in a random address, as RFC 4122 demands.
_MADE_UP = 1 << 40
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_id() -> str:
    """Id of the machine: GRIDBOT_HOST_ID, a MAC address, or the system's machine-id.

    The variable is for machines that share one MAC address, such as cloned containers.
    """
    if given := os.environ.get("GRIDBOT_HOST_ID"):
        return given
    node = uuid.getnode()
    if not node & _MADE_UP:
        return ":".join(re.findall("..", f"{node:012x}"))
    for path in (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id")):
        if path.exists() and (text := path.read_text().strip()):
            return text
    return socket.gethostname()


def room(cpus: int | None = None, memory_mb: int | None = None) -> Room:
    """CPUs and memory for replicas: the owner's limits, else all that this process may use."""
    return Room(cpus or _cpus(), memory_mb or _memory_mb())


def attributes(
    room: Room,
    folder: Path,
    *,
    gpus: Sequence[Gpu] = (),
    is_pilot: bool = False,
    is_dedicated: bool = False,
    policy: OwnerPolicy | None = None,
) -> dict[str, Scalar]:
    """Attributes of the host ad that change rarely; sizes in MB."""
    system, machine = platform.system().lower(), platform.machine().lower()
    return {
        "Name": socket.gethostname(),
        "PythonVersion": "{}.{}".format(*sys.version_info),
        "NumCpus": room.cpus,
        "Memory": room.memory_mb,
        "NumNodes": room.nodes,
        # In steps of 1 GB: a host whose ad changes at every request is written at every request.
        "Disk": shutil.disk_usage(folder).free >> 30 << 10,
        "OpSys": system.upper(),
        "Arch": machine.upper(),
        "Platform": f"{system}-{machine}",
        "ClientVersion": release(),
        "ManifestVersion": LATEST,
        "CpuModel": _cpu("model name", platform.processor() or "unknown")[:200],
        "CpuVendor": _cpu("vendor_id|CPU implementer", "unknown")[:200],
        "IsPilot": is_pilot,
        "IsBoinc": False,
        "IsDedicated": is_dedicated,
        **devices.attributes(gpus),
        **({"Requirements": policy.text} if policy else {}),
    }


def live_attributes(now: float) -> dict[str, Scalar]:
    """Attributes of the host ad that change by the minute; `now` in seconds since 1970."""
    clock = time.localtime(now)
    found: dict[str, Scalar] = {
        "LoadAvg": round(psutil.getloadavg()[0], 2),
        "ClockMin": 60 * clock.tm_hour + clock.tm_min,
        "ClockDay": (clock.tm_wday + 1) % 7,  # Python's weeks begin on Monday
    }
    battery = None
    with suppress(AttributeError, OSError):  # not on every system
        battery = psutil.sensors_battery()
    if battery is not None and battery.power_plugged is not None:
        found["OnBattery"] = not battery.power_plugged
    return found


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_mb() -> int:
    """Memory of the machine or the container, in MB."""
    sizes = [psutil.virtual_memory().total]
    for path in map(Path, _CGROUP_LIMITS):
        if path.exists() and (text := path.read_text().strip()).isdigit():
            sizes.append(int(text))
    return max(1, min(sizes) >> 20)


def _cpu(field: str, default: str) -> str:
    """What the kernel says of the processor."""
    path = Path("/proc/cpuinfo")
    pattern = rf"^(?:{field})\s*:\s*(.+)$"
    found = path.exists() and re.search(pattern, path.read_text(), re.MULTILINE)
    return found[1] if found else default
