"""The GPUs that a client may use: found, claimed, described, and shown to the jobs that get them.

A batch system names those that it gave to a pilot.  Others are claimed, so that two clients of one
machine never use the same.  All are of one maker; the maker's own variable names a job's GPUs:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gridbot_client.protocol.messages import Scalar

NVIDIA, AMD = "NVIDIA", "AMD"
MOST = 64  # of a client, as many as one replica may ask for
GIVEN_VARIABLE = "GRIDBOT_GPUS"  # of a job: what it got, as the shim of stock clients tells it
# Where /sys is looked for; another folder serves machines that are made up.
_ROOT = Path(os.environ.get("GRIDBOT_SYSTEM_ROOT", "/"))
# In which a batch system, or a machine's owner, names what may be used.  The first counts: of a
# job that sees its own devices only, its numbers are those that CUDA and ROCm use.
_GIVEN = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "_CONDOR_AssignedGPUs",
    "SGE_HGR_gpu",
)  # fmt: skip
_TORQUE_FILE = "PBS_GPUFILE"  # lines such as node-gpu0
_ID = re.compile(r"(?:CUDA)?(\d{1,3}|(?:GPU|MIG)-[A-Za-z0-9/-]{4,100})")
_AMD_VENDOR = "4098"
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device; `id` names it in the maker's variable.  What nobody told is empty or 0."""

    id: str
    maker: str = ""
    model: str = ""
    memory_mb: int = 0
    driver: str = ""
    cuda: float = 0.0  # version of CUDA that the driver serves, as 12.4


class GpuClaims:
    """GPUs that no other client of this machine uses, as a context.

    The kernel frees a name of an abstract socket with its process; nobody connects to it.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> GpuClaims:
        return self

    def __exit__(self, *_: object) -> None:
        for claim in self._held:
            claim.close()

    def take(self, found: Sequence[Gpu], most: int) -> tuple[Gpu, ...]:
        """Claim those that are free, at most so many."""
        taken: list[Gpu] = []
        for gpu in found:
            if len(taken) < most and self._claim(gpu):
                taken.append(gpu)
        return tuple(taken)

    def _claim(self, gpu: Gpu) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0gridbot-gpu-{gpu.maker}-{gpu.id}")
        except OSError:
            claim.close()
            return False
        self._held.append(claim)
        return True


def usable(
    most: int | None, environ: Mapping[str, str], claims: GpuClaims, root: Path = _ROOT
) -> tuple[Gpu, ...]:
    """GPUs for this client: those that it was given, else what is free here; at most `most`."""
    if most == 0:
        return ()
    found, bound = installed(root), MOST if most is None else most
    given = named(environ)
    if given is None:
        return claims.take(found, bound)
    return tuple(_described(name, found) for name in given[:bound])


def named(environ: Mapping[str, str]) -> list[str] | None:
    """Ids of the devices that an environment names; None if it says nothing.

    As CUDA does, it stops at the first that is none, such as NoDevFiles.
    """
    for variable in _GIVEN:
        if variable in environ:
            return list(_ids(re.split(r"[,\s]+", environ[variable].strip())))
    if path := environ.get(_TORQUE_FILE):
        with suppress(OSError):
            return list(_ids(line.rpartition("-gpu")[2] for line in Path(path).read_text().split()))
    return None


def installed(root: Path = _ROOT) -> list[Gpu]:
    """GPUs of this machine as their drivers describe them: of NVIDIA, or else of AMD.

    `root` is where /sys is.
    """
    return _of_nvidia() or _of_amd(root)


def attributes(gpus: Sequence[Gpu]) -> dict[str, Scalar]:
    """Attributes of the host ad; model, memory and driver are those of the largest."""
    if not gpus:
        return {}
    largest = max(gpus, key=lambda gpu: gpu.memory_mb)
    found: dict[str, Scalar] = {"NumGpus": len(gpus)}
    if largest.maker:
        found |= {f"Num{largest.maker.capitalize()}Gpus": len(gpus), "GpuVendor": largest.maker}
    told: dict[str, Scalar] = {
        "GpuModel": largest.model[:_MOST_CHARACTERS],
        "GpuMemory": largest.memory_mb,
        "GpuDriver": largest.driver[:_MOST_CHARACTERS],
        "CudaVersion": largest.cuda,
    }
    return {**found, **{name: value for name, value in told.items() if value}}


def variables(assigned: Sequence[Gpu], all_: Sequence[Gpu]) -> dict[str, str]:
    """Variables of a job that got some of the client's GPUs; without any it sees none."""
    if not all_:
        return {}
    ids = ",".join(gpu.id for gpu in assigned)
    name = "ROCR_VISIBLE_DEVICES" if all_[0].maker == AMD else "CUDA_VISIBLE_DEVICES"
    return {name: ids, **({GIVEN_VARIABLE: ids} if ids else {})}


def _ids(words: Iterator[str] | Sequence[str]) -> Iterator[str]:
    for word in words:
        found = _ID.fullmatch(word)
        if found is None:
            return
        yield found[1]


def _described(name: str, found: Sequence[Gpu]) -> Gpu:
    """What is known of a device that was given by its number or the beginning of its UUID."""
    if name.isdecimal():
        known = found[int(name)] if int(name) < len(found) else None
    else:
        known = next((gpu for gpu in found if gpu.id.startswith(name)), None)
    return replace(known, id=name) if known else Gpu(name)


def _of_nvidia() -> list[Gpu]:
    """By NVIDIA's own library, if it and its bindings (nvidia-ml-py) are here.

    Ids are UUIDs: the numbers of CUDA and of the driver may differ.
    """
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        cuda = 0
        with suppress(pynvml.NVMLError):  # of drivers before 410
            cuda = pynvml.nvmlSystemGetCudaDriverVersion()  # 12040 is 12.4
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            Gpu(
                _text(pynvml.nvmlDeviceGetUUID(handle)),
                NVIDIA,
                _text(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
                driver,
                cuda // 1000 + cuda % 1000 // 10 / 10,
            )
            for handle in handles
        ]
    except pynvml.NVMLError:
        return []
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _of_amd(root: Path) -> list[Gpu]:
    """By the kernel's topology, in whose order ROCm counts.

    Source: Documentation/gpu/amdgpu and drivers/gpu/drm/amd/amdkfd/kfd_topology.c of Linux.
    """
    nodes = sorted(
        (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*"), key=lambda node: int(node.name)
    )
    driver = _read(root / "sys/module/amdgpu/version")
    gpus: list[Gpu] = []
    for node in nodes:
        lines = (line.partition(" ") for line in _read(node / "properties").splitlines())
        known = {name: value for name, _, value in lines}
        if known.get("vendor_id") == _AMD_VENDOR and known.get("simd_count", "0") != "0":
            device = root / f"sys/class/drm/renderD{known.get('drm_render_minor', '')}/device"
            model = _read(device / "product_name") or _read(node / "name")
            memory = _read(device / "mem_info_vram_total")
            size = int(memory) >> 20 if memory.isdecimal() else 0
            gpus.append(Gpu(str(len(gpus)), AMD, model, size, driver))
    return gpus


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
