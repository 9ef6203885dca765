"""The host ad of a BOINC client: what its request says, under the names that native clients use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from gridbot_client.protocol.messages import Scalar
from gridbot_server.boinc.protocol.machine import Gpus, Machine, Preferences, TimeStats
from gridbot_server.boinc.protocol.names import platform
from gridbot_server.boinc.protocol.request import ClientInfo, SchedulerRequest

# How a system's name begins, and what native clients call it.
_SYSTEMS = {
    "linux": "LINUX",
    "microsoft windows": "WINDOWS",
    "windows": "WINDOWS",
    "darwin": "DARWIN",
    "mac": "DARWIN",
    "android": "ANDROID",
    "freebsd": "FREEBSD",
}
_VENDORS = {"NVIDIA": "Nvidia", "ATI": "Amd", "intel_gpu": "Intel", "apple_gpu": "Apple"}


def host_ad(request: SchedulerRequest) -> dict[str, Scalar]:
    """Return all that policies may know of the host; what it does not say is left out."""
    lasting = _lasting(request.client, request.machine, request.preferences, request.gpus)
    return {**lasting, **_said(_passing(request))}


@lru_cache(maxsize=512)
def _lasting(
    client: ClientInfo, machine: Machine, preferences: Preferences, gpus: tuple[Gpus, ...]
) -> Mapping[str, Scalar]:
    """What a host says again in every request."""
    return _said(
        {**_client(client), **_hardware(machine), **_usable(machine, preferences), **_gpus(gpus)}
    )


def _passing(request: SchedulerRequest) -> dict[str, Scalar | None]:
    """What changes from one request to the next, rounded: a changed ad is written again."""
    return {
        "Disk": _disk_mb(request),
        **_habits(request.time),
        **_clock(request),
        "BandwidthUp": _rough(request.net.up),
        "BandwidthDown": _rough(request.net.down),
        "Wants": _wants(request),
    }


def _said(found: Mapping[str, Scalar | None]) -> dict[str, Scalar]:
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _wants(request: SchedulerRequest) -> str:
    kinds = [gpus.type for gpus in request.gpus if gpus.wanted.is_any]
    return " ".join(["CPU", *kinds] if request.cpu.is_any else kinds)


def _client(client: ClientInfo) -> dict[str, Scalar | None]:
    name = platform(client.platforms[0]) if client.platforms else ""
    system, _, architecture = name.partition("-")
    return {
        "OpSys": system.upper(),
        "Arch": architecture.upper(),
        "Platform": name,
        "Platforms": " ".join(map(platform, client.platforms)),
        "IsPilot": False,
        "IsDedicated": False,
        "IsBoinc": True,
        "SandboxLevel": 0,
        "Sandbox": "no walls; limits on time, memory and the size of files, watched by its job",
        "ClientVersion": ".".join(map(str, client.version)),
    }


def _usable(machine: Machine, preferences: Preferences) -> dict[str, Scalar | None]:
    """What the owner allows at most, in use or idle; no memory when the client does not say."""
    cpus = machine.cpus * (preferences.cpu_fraction or 1.0)
    share = max(preferences.memory_busy_fraction, preferences.memory_idle_fraction) or 1.0
    return {"NumCpus": max(1, int(cpus)), "Memory": int(machine.memory_bytes * share) >> 20 or None}


def _disk_mb(request: SchedulerRequest) -> int | None:
    """What is free within all the limits that the owner and the client set, in steps of 1 GB."""
    machine, wishes, disk = request.machine, request.preferences, request.disk
    if not disk.free_bytes:
        return None
    limits = [disk.free_bytes - wishes.disk_free_bytes]
    if wishes.disk_most_bytes:
        limits.append(wishes.disk_most_bytes - disk.used_bytes)
    if wishes.disk_fraction and machine.disk_bytes:
        limits.append(machine.disk_bytes * wishes.disk_fraction - disk.used_bytes)
    if disk.share_bytes:
        limits.append(disk.share_bytes - disk.project_bytes)
    return int(max(0.0, min(limits))) >> 30 << 10


def _system(name: str) -> str:
    folded = name.lower()
    return next((ours for start, ours in _SYSTEMS.items() if folded.startswith(start)), "")


def _hardware(machine: Machine) -> dict[str, Scalar | None]:
    system = _system(machine.os_name)
    return {
        **({"OpSys": system} if system else {}),  # rather than by the platform's name
        "Name": machine.domain_name,
        "CpuModel": machine.cpu_model,
        "Flops": machine.flops or None,
        "CpuVendor": machine.cpu_vendor,
        "CpuFeatures": machine.cpu_features,
        "IntOps": machine.iops or None,
        "DetectedCpus": machine.cpus,
        "DetectedMemory": machine.memory_bytes >> 20 or None,
        "TotalDisk": machine.disk_bytes >> 30 << 10 or None,
        "Swap": machine.swap_bytes >> 20,
        "CpuCache": machine.cache_bytes >> 10 or None,
        "OpSysName": machine.os_name,
        "OpSysVersion": machine.os_version,
        "Product": machine.product_name,
        "VirtualBox": machine.virtualbox_version,
        "Docker": machine.docker_version,
        "HasWsl": machine.has_wsl,
    }


def _habits(time: TimeStats) -> dict[str, Scalar | None]:
    on, active = time.on, time.active
    return {
        "OnFraction": _hundredths(on),
        "ActiveFraction": _hundredths(active),
        "ConnectedFraction": _hundredths(time.connected),
        "GpuActiveFraction": _hundredths(time.gpu_active),
        "Availability": None if on is None or active is None else _hundredths(on * active),
    }


def _clock(request: SchedulerRequest) -> dict[str, Scalar | None]:
    """The time of day and of the week by the client's own clock, if it says what it shows."""
    if not request.time.now:
        return {}
    local = int(request.time.now) + request.machine.timezone
    # 1970 began on a Thursday.
    return {"ClockMin": local // 60 % 1440, "ClockDay": (local // 86_400 + 4) % 7}


def _gpus(kinds: tuple[Gpus, ...]) -> dict[str, Scalar | None]:
    """How many GPUs of which vendor, and what the fastest can do."""
    if not kinds:
        return {}
    best = max(kinds, key=lambda gpus: gpus.flops)
    counts = {
        f"Num{_VENDORS[gpus.type]}Gpus": gpus.count for gpus in kinds if gpus.type in _VENDORS
    }
    return {
        "NumGpus": sum(gpus.count for gpus in kinds) or None,
        **counts,
        "GpuVendor": _VENDORS.get(best.type, "").upper(),
        "GpuModel": best.model,
        "GpuMemory": best.memory_bytes >> 20 or None,
        "GpuFlops": best.flops or None,
        "GpuDriver": best.driver,
        "GpuOpenCl": best.opencl_version,
        # 11020 is 11.2.
        "CudaVersion": best.cuda_version // 1000 + best.cuda_version % 1000 / 100 or None,
        "CudaCapability": best.compute_capability or None,
    }


def _hundredths(share: float | None) -> float | None:
    """A share that does not change with every request."""
    return None if share is None else round(share, 2)


def _rough(rate: float) -> float | None:
    """A rate to one digit, for the same reason."""
    return float(f"{rate:.0e}") or None
