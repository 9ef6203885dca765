"""Claims about what a BOT needs of the host that asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from gridbot_client.protocol.messages import Resources
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
    signed: bool = True
    owner_signed: bool = False
    platforms: Sequence[str] = ()
    stock_platforms: Sequence[str] = ("linux-x86_64",)


@dataclass(frozen=True)
class Worker:
    attributes: dict[str, Any]
    owner: int = 2
    accepts: Sequence[int] = ()
    trusts: Sequence[int] = ()
    protocol: int = 2


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
