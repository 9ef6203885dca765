"""Stands in for NVIDIA's bindings (nvidia-ml-py); FAKE_GPUS lists the UUIDs of the GPUs."""

import os
from types import SimpleNamespace

UUIDS = os.environ["FAKE_GPUS"].split(",")


class NVMLError(Exception):
    """What the library raises."""


def nvmlInit() -> None: ...


def nvmlShutdown() -> None: ...


def nvmlSystemGetDriverVersion() -> str:
    return "550.54.15"


def nvmlSystemGetCudaDriverVersion() -> int:
    return 12040


def nvmlDeviceGetCount() -> int:
    return len(UUIDS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return UUIDS[handle]


def nvmlDeviceGetName(handle: int) -> str:
    return f"Imagined {100 * (handle + 1)}"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=(16 << 30) * (handle + 1))
