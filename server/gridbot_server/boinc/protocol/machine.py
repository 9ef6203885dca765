"""What a BOINC client tells of its machine: hardware, preferences, habits and GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gridbot_server.boinc.protocol.preferences import version_of
from gridbot_server.boinc.protocol.tags import Section

MAX_FEATURES = 4000  # characters; processors of today need about 1,500
MAX_GPU_KINDS = 16
_UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class Machine:
    """`host_info`: sizes in bytes, speeds per second and core, the time zone in seconds."""

    timezone: int
    domain_name: str
    ip_addr: str
    host_cpid: str
    cpus: int
    cpu_vendor: str
    cpu_model: str
    cpu_features: str
    flops: float
    iops: float
    memory_bytes: int
    cache_bytes: int
    swap_bytes: int
    disk_bytes: int
    os_name: str
    os_version: str
    product_name: str
    virtualbox_version: str
    docker_version: str
    has_wsl: bool


@dataclass(frozen=True, slots=True)
class Preferences:
    """The working preferences that bound what may be used; percentages as fractions, 0 = unset."""

    cpu_fraction: float
    memory_busy_fraction: float
    memory_idle_fraction: float
    disk_fraction: float
    disk_most_bytes: float
    disk_free_bytes: float
    version: int = 0  # of the account's preferences, from which they come; 0: from no server


@dataclass(frozen=True, slots=True)
class TimeStats:
    """Shares of time, each None while unknown; `now` is the client's clock, 0 if it is silent."""

    on: float | None
    connected: float | None
    active: float | None
    gpu_active: float | None
    now: float


@dataclass(frozen=True, slots=True)
class NetStats:
    """Mean bytes per second."""

    up: float
    down: float


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes that BOINC and this project use, what this project may use, and what is free.

    0 = not said.
    """

    used_bytes: float
    project_bytes: float
    share_bytes: float
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Work that is wanted for one kind of processor."""

    seconds: float = 0.0  # of instances, to fill the client's queue
    instances: float = 0.0  # idle now

    @property
    def is_any(self) -> bool:
        """Whether any is wanted."""
        return self.seconds > 0 or self.instances > 0

    def replicas(self, mean_seconds: float) -> int:
        """How many replicas that is, if each takes one instance for about `mean_seconds`."""
        return math.ceil(max(self.instances, self.seconds / max(mean_seconds, 1.0)))


@dataclass(frozen=True, slots=True)
class Gpus:
    """All GPUs of one vendor; the client describes the best of them for all."""

    type: str  # NVIDIA, ATI, intel_gpu, apple_gpu, as in a reply's <coproc>
    count: int
    model: str
    memory_bytes: int
    flops: float
    driver: str
    cuda_version: int  # 11020 is 11.2
    compute_capability: float  # 8.6; 0 for all but NVIDIA's
    opencl_version: str
    wanted: Wanted


def read_machine(part: Section) -> Machine:
    """Read `host_info`."""
    return Machine(
        timezone=part.integer("timezone", least=-86_400, most=86_400),
        domain_name=part.text("domain_name"),
        ip_addr=part.text("ip_addr"),
        host_cpid=part.text("host_cpid"),
        cpus=part.integer("p_ncpus", 1, 1, 100_000),
        cpu_vendor=part.text("p_vendor"),
        cpu_model=part.text("p_model"),
        cpu_features=part.text("p_features", MAX_FEATURES),
        flops=part.number("p_fpops"),
        iops=part.number("p_iops"),
        memory_bytes=part.integer("m_nbytes"),
        cache_bytes=part.integer("m_cache"),
        swap_bytes=part.integer("m_swap"),
        disk_bytes=part.integer("d_total"),
        os_name=part.text("os_name"),
        os_version=part.text("os_version"),
        product_name=part.text("product_name"),
        virtualbox_version=part.text("virtualbox_version"),
        docker_version=part.text("docker_version"),
        has_wsl=part.flag("wsl_available"),
    )


def read_preferences(part: Section) -> Preferences:
    """Read `working_global_preferences`."""
    return Preferences(
        cpu_fraction=_percent(part, "max_ncpus_pct"),
        memory_busy_fraction=_percent(part, "ram_max_used_busy_pct"),
        memory_idle_fraction=_percent(part, "ram_max_used_idle_pct"),
        disk_fraction=_percent(part, "disk_max_used_pct"),
        disk_most_bytes=part.number("disk_max_used_gb") * 2**30,
        disk_free_bytes=part.number("disk_min_free_gb") * 2**30,
        version=version_of(part.number("mod_time")),
    )


def read_time_stats(part: Section) -> TimeStats:
    """Read `time_stats`."""
    return TimeStats(
        on=_share(part, "on_frac"),
        connected=_share(part, "connected_frac"),
        active=_share(part, "active_frac"),
        gpu_active=_share(part, "gpu_active_frac"),
        now=part.number("now"),
    )


def read_net_stats(part: Section) -> NetStats:
    """Read `net_stats`."""
    return NetStats(part.number("bwup"), part.number("bwdown"))


def read_disk_usage(part: Section, free_bytes: int) -> DiskUsage:
    """Read `disk_usage`, which clients from 8 on may leave out."""
    return DiskUsage(
        part.number("d_boinc_used_total"),
        part.number("d_boinc_used_project"),
        part.number("d_project_share"),
        free_bytes,
    )


# The element that describes them, and how a reply calls them.
_GPU_TYPES = {
    "coproc_cuda": "NVIDIA",
    "coproc_ati": "ATI",
    "coproc_intel_gpu": "intel_gpu",
    "coproc_apple_gpu": "apple_gpu",
}
GPU_ELEMENTS = frozenset({*_GPU_TYPES, "coproc"})


def read_gpus(part: Section) -> tuple[Gpus, ...]:
    """Read `coprocs`."""
    known = [_gpus(found, name) for tag, name in _GPU_TYPES.items() for found in part.all(tag)[-1:]]
    others = [_gpus(found, found.text("type")) for found in part.all("coproc")]
    return tuple(gpus for gpus in known + others if gpus.type and gpus.count)[:MAX_GPU_KINDS]


def _gpus(part: Section, type: str) -> Gpus:
    opencl = part.one("coproc_opencl")
    return Gpus(
        type=type,
        count=part.integer("count", most=1000),
        model=part.text("name"),
        memory_bytes=_first(part, "available_ram", "totalGlobalMem", "localRAM")
        or opencl.integer("global_mem_size"),
        flops=part.number("peak_flops"),
        driver=_driver(part),
        cuda_version=part.integer("cudaVersion", most=10**6),
        compute_capability=part.number("major", most=99) + part.number("minor", most=9) / 10,
        opencl_version=opencl.text("opencl_device_version"),
        wanted=Wanted(part.number("req_secs"), part.number("req_instances")),
    )


def _first(part: Section, *names: str) -> int:
    return next((size for name in names if (size := part.integer(name))), 0)


def _driver(part: Section) -> str:
    """The driver's version; NVIDIA's 47063 is 470.63."""
    if number := part.integer("drvVersion", most=10**8):
        return f"{number // 100}.{number % 100:02}"
    return part.text("version") or part.text("CALVersion")


def _percent(part: Section, name: str) -> float:
    return part.number(name, most=100.0) / 100


def _share(part: Section, name: str) -> float | None:
    share = part.number(name, _UNKNOWN, 0.0, 1.0)
    return None if share == _UNKNOWN else share
