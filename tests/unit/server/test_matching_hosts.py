from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gridbot_client.protocol.messages import Manifest, Resources
from gridbot_client.protocol.programs import HostProgram
from gridbot_policies import PolicySet
from gridbot_policies.classad import record
from gridbot_server.matching.hosts import BotRequirements, HostClient
from gridbot_server.matching.requirements import distrust, lacks, obstacle

HOST = {"NumCpus": 4, "Memory": 8000, "Disk": 1000, "Platform": "linux-x86_64"}


def client(host: dict[str, Any], owner: int = 1) -> HostClient:
    return HostClient(1, host, owner, [], [owner], 2)


def demand(
    platforms: tuple[str, ...], stock_platforms: tuple[str, ...] = (), **resources: int
) -> BotRequirements:
    wanted = Resources(**{"disk_mb": 1000, **resources})
    return BotRequirements(
        bot=7,
        owner=1,
        owner_name="alice",
        signed=False,
        owner_signed=True,
        manifest=Manifest("alice", ("p",), resources=wanted, platforms=platforms),
        policies=PolicySet.parse(""),
        ad=record({}),
        queue=record({}),
        now=0.0,
        stock_platforms=stock_platforms,
    )


@pytest.mark.parametrize(
    ("changes", "platforms", "host", "expected"),
    [
        ({}, (), {}, None),
        ({"cpus": 4, "memory_mb": 8000, "disk_mb": 1000}, ("linux-x86_64",), HOST, None),
        ({"cpus": 5}, (), HOST, "needs 5 CPUs"),
        ({"memory_mb": 8001}, (), HOST, "needs 8001 MB memory"),
        ({"memory_mb": 1 << 30}, (), HOST, "needs 1073741824 MB memory"),
        ({"disk_mb": 1001}, (), HOST, "needs 1001 MB disk"),
        ({"disk_mb": 1}, (), {**HOST, "Disk": "much"}, None),
        ({"gpus": 1}, (), HOST, "needs 1 GPU"),
        ({"gpus": 2}, (), {**HOST, "NumGpus": 1}, "needs 2 GPUs"),
        ({"gpus": 1}, (), {**HOST, "NumGpus": 2}, None),
        ({}, ("a", "b"), HOST, "needs platform a or b"),
    ],
)
def test_the_first_thing_that_a_host_lacks_is_named(
    changes: dict[str, Any], platforms: tuple[str, ...], host: dict[str, Any], expected: str | None
) -> None:
    assert obstacle(client(host), demand(platforms, **changes)) == expected


def test_a_stranger_gets_no_gpu_of_a_volunteer_but_those_of_a_pilot() -> None:
    has_gpu, wanted = {**HOST, "NumGpus": 1}, demand((), gpus=1)
    text = "GPUs are for work of those whom the machine's owner trusts"
    signed = replace(wanted, signed=True)
    assert obstacle(client(has_gpu, owner=2), signed) == text
    assert obstacle(HostClient(1, {**has_gpu, "Grid": "g"}, 2, [1], [1], 2), signed) is None


STOCK = {**HOST, "IsBoinc": True, "Platforms": "linux-x86_64 linux-i686"}


@pytest.mark.parametrize(
    ("host", "stock_platforms", "gpus", "expected"),
    [
        (STOCK, (), 0, [("boinc", "not signed for BOINC clients")]),
        (STOCK, ("linux-i686",), 0, []),
        (STOCK, ("a", "b"), 0, [("boinc platform", "needs platform a or b")]),
        # A job runs on one maker's GPUs; of Apple's, BOINC clients are offered none.
        ({**STOCK, "NumGpus": 2, "NumAmdGpus": 1, "NumNvidiaGpus": 1}, ("linux-x86_64",), 2,
         [("gpus", "needs 2 GPUs")]),
        ({**STOCK, "NumGpus": 1, "NumAppleGpus": 1}, ("linux-x86_64",), 1,
         [("gpus", "needs 1 GPU")]),
        ({**STOCK, "NumGpus": 3, "NumIntelGpus": 1, "NumAmdGpus": 2}, ("linux-x86_64",), 2, []),
        # Whose BOT it is matters to native clients only.
        ({**HOST, "Platform": "other", "Memory": 1}, (), 0,
         [("trust", "not signed by the project, and the client does not trust its owner's key"),
          ("memory", "needs 512 MB memory")]),
    ],
)  # fmt: skip
def test_all_that_a_host_lacks_is_told(
    host: dict[str, Any], stock_platforms: tuple[str, ...], gpus: int, expected: list[Any]
) -> None:
    wanted = demand((), stock_platforms, gpus=gpus)
    found = lacks(client(host, owner=2), wanted)
    assert [(lack.kind, lack.text) for lack in found] == expected


@dataclass(frozen=True)
class Signed:
    """A BOT of owner 1, and who has signed it."""

    manifest_version: int
    signed: bool
    owner_signed: bool
    owner: int = 1
    manifest_id: str = ""
    image: str = ""
    resources: Resources = field(default_factory=Resources)
    platforms: tuple[str, ...] = ()
    sandbox: int = 0
    stock_platforms: tuple[str, ...] = ()
    programs: tuple[HostProgram, ...] = ()
    together: int = 1
    boinc_api: bool = False
    has_storage: bool = False


@pytest.mark.parametrize(
    ("protocol", "bot", "owner", "trusted", "expected"),
    [
        (2, Signed(2, True, False), 2, [], None),
        (2, Signed(2, False, True), 1, [1], None),
        (2, Signed(2, False, True), 2, [3, 1], None),
        (2, Signed(2, False, True), 1, [], "does not trust its owner's key"),
        (2, Signed(2, False, True), 2, [3], "does not trust its owner's key"),
        (2, Signed(2, False, False), 1, [1], "nobody has signed it"),
        (2, Signed(1, True, False), 1, [1], "submit it again"),
        (1, Signed(2, True, True), 1, [1], "the client is too old"),
        (1, Signed(1, True, False), 2, [], None),
        (1, Signed(1, False, False), 1, [], None),
        (1, Signed(1, False, False), 2, [3, 1], None),
        (1, Signed(1, False, False), 2, [3], "does not accept its owner"),
    ],
)
def test_a_client_is_given_what_it_can_check_and_trusts(
    protocol: int, bot: Signed, owner: int, trusted: list[int], expected: str | None
) -> None:
    why = distrust(HostClient(1, HOST, owner, trusted, trusted, protocol), bot)
    assert why == expected if expected is None else why and expected in why
