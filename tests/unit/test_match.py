from typing import Any

import pytest

from gridbot_client.protocol import Resources
from gridbot_server.match import fits, trusts

HOST = {"NumCpus": 4, "Memory": 8000, "Disk": 1000, "Platform": "linux-x86_64"}


@pytest.mark.parametrize(
    ("changes", "platforms", "host", "obstacle"),
    [
        ({}, (), {}, None),
        ({"cpus": 4, "memory_mb": 8000, "disk_mb": 1000}, ("linux-x86_64",), HOST, None),
        ({"cpus": 5}, (), HOST, "needs 5 CPUs"),
        ({"memory_mb": 8001}, (), HOST, "needs 8001 MB memory"),
        ({"memory_mb": 1 << 30}, (), HOST, "needs 1073741824 MB memory"),
        ({"disk_mb": 1001}, (), HOST, "needs 1001 MB disk"),
        ({"disk_mb": 1}, (), {**HOST, "Disk": "much"}, None),
        ({"gpus": 1}, (), HOST, "needs 1 GPUs"),
        ({"gpus": 1}, (), {**HOST, "NumGpus": 2}, None),
        ({}, ("a", "b"), HOST, "needs platform a or b"),
    ],
)
def test_the_first_thing_that_a_host_lacks_is_named(
    changes: dict[str, Any], platforms: tuple[str, ...], host: dict[str, Any], obstacle: str | None
) -> None:
    wanted = {"disk_mb": 1000, **changes}
    assert fits(Resources(**wanted), platforms, host) == obstacle


@pytest.mark.parametrize(
    ("signed", "client_owner", "accepts", "expected"),
    [
        (False, 1, [], True),
        (False, 2, [], False),
        (False, 2, [3], False),
        (False, 2, [3, 1], True),
        (True, 2, [], True),
    ],
)
def test_unsigned_commands_run_for_their_owner_and_where_accepted(
    signed: bool, client_owner: int, accepts: list[int], expected: bool
) -> None:
    assert trusts(signed, 1, client_owner, accepts) == expected
