"""Claims about what a BOT needs of the host that asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from gridbot_client.protocol.messages import Resources
from gridbot_client.protocol.programs import HostProgram
from gridbot_server.matching import requirements

STOCK = {
    "IsBoinc": True,
    "Platforms": "linux-x86_64",
    "NumCpus": 4,
    "NumGpus": 1,
    "NumNvidiaGpus": 1,
}


@dataclass(frozen=True)
class Work:
    resources: Resources
    owner: int = 1
    manifest_version: int = 2
    manifest_id: str = ""
    image: str = ""
    signed: bool = True
    owner_signed: bool = False
    platforms: Sequence[str] = ()
    sandbox: int = 0
    stock_platforms: Sequence[str] = ("linux-x86_64",)
    programs: Sequence[HostProgram] = ()
    together: int = 1
    boinc_api: bool = False
    has_storage: bool = False


@dataclass(frozen=True)
class Worker:
    attributes: dict[str, Any]
    owner: int = 2
    accepts: Sequence[int] = ()
    trusts: Sequence[int] = ()
    protocol: int = 2


def test_a_program_of_boincs_api_is_for_stock_clients_alone() -> None:
    work = Work(Resources(), boinc_api=True)
    assert requirements.obstacle(Worker(STOCK), work) is None
    assert requirements.obstacle(Worker({"ManifestVersion": 99}), work) == requirements.ONLY_STOCK


@pytest.mark.parametrize(
    ("wants", "kinds"),
    [
        ({}, {"cpu", "gpu"}),
        ({"Wants": "CPU"}, {"cpu"}),
        ({"Wants": "NVIDIA"}, {"gpu"}),
        ({"Wants": "CPU NVIDIA"}, {"cpu", "gpu"}),
        ({"Wants": "miner_asic"}, set()),
    ],
)
def test_a_stock_client_gets_work_for_the_processors_for_which_it_asks(
    wants: dict[str, str], kinds: set[str]
) -> None:
    work = {"cpu": Work(Resources()), "gpu": Work(Resources(gpus=1))}
    worker = Worker({**STOCK, **wants})
    assert {kind for kind in work if requirements.obstacle(worker, work[kind]) is None} == kinds


NATIVE = {"SandboxLevel": 1, "NumCpus": 4}


@pytest.mark.parametrize(
    ("host", "trusts", "asked", "is_fit"),
    [
        (NATIVE, (), 0, True),
        (NATIVE, (), 2, False),
        (NATIVE, (1,), 2, False),
        ({**NATIVE, "SandboxLevel": 2}, (), 2, True),
        ({**NATIVE, "SandboxLevel": 0}, (), 0, False),  # strangers' work needs walls
        ({**NATIVE, "SandboxLevel": 0}, (1,), 0, True),
        ({**NATIVE, "SandboxLevel": 0, "Grid": "here"}, (), 0, True),
        ({**NATIVE, "MinSandbox": 2}, (), 0, False),  # as its owner said
        ({**NATIVE, "MinSandbox": 2}, (1,), 0, True),
        ({"NumCpus": 4}, (), 3, True),  # an older client, which refuses by itself
        ({**STOCK, "SandboxLevel": 0}, (), 0, True),
        ({**STOCK, "SandboxLevel": 0}, (), 1, False),
    ],
)
def test_a_host_gets_no_work_for_which_its_sandbox_is_too_weak(
    host: dict[str, Any], trusts: Sequence[int], asked: int, is_fit: bool
) -> None:
    worker = Worker(host, accepts=(1,), trusts=trusts)
    found = requirements.obstacle(worker, Work(Resources(), owner_signed=True, sandbox=asked))
    assert found is None if is_fit else found and "needs sandbox level" in found


def test_a_program_for_gpus_of_one_maker_is_not_given_those_of_another() -> None:
    rows = (HostProgram("linux-x86_64 gpu=nvidia", ("cuda",)),)
    work = Work(Resources(gpus=2), programs=rows)
    mixed = {**STOCK, "NumGpus": 3, "NumAmdGpus": 2}
    assert requirements.obstacle(Worker(mixed), work) == "needs 2 GPUs"
    assert requirements.obstacle(Worker({**mixed, "NumNvidiaGpus": 2}), work) is None


def test_containers_get_no_gpus() -> None:
    work = Work(Resources(gpus=1), image="docker.io/library/debian:12", owner_signed=True)
    worker = Worker({"NumGpus": 1, "Containers": "podman"}, trusts=[1])
    assert requirements.obstacle(worker, work) == "containers get no GPUs"
