"""Captured requests of a 7.20.5, changed as the sources of 8.2.15 say that it would send them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.boinc_captures import FACTS, captures

from gridbot_server.boinc.application.description import PLAN_CLASSES
from gridbot_server.boinc.protocol.machine import DiskUsage
from gridbot_server.boinc.protocol.request import SchedulerRequest, parse
from gridbot_server.boinc.session.host_ad import host_ad


def as_version_8(body: bytes) -> bytes:
    """The request without what 8.x leaves out, and with what it adds."""
    for name in ("disk_usage", "final_bytes_sent", "final_bytes_received"):
        body = re.sub(rf"\s*<{name}>.*?</{name}>".encode(), b"", body, flags=re.S)
    body = re.sub(rb"(<core_client_\w+_version>)\d+", rb"\g<1>8", body)
    added = (
        b"<dont_use_wsl/>\n<dont_use_docker/>\n<host_info>\n<docker_version>27.1</docker_version>"
    )
    return body.replace(b"<host_info>", added)


def without_news(request: SchedulerRequest) -> SchedulerRequest:
    """What both versions say."""
    client = replace(request.client, version=(0, 0, 0))
    machine = replace(request.machine, docker_version="")
    return replace(request, client=client, machine=machine, disk=DiskUsage(0, 0, 0, 0))


@pytest.mark.parametrize("name", FACTS)
def test_a_request_says_the_same_in_both_versions(name: str) -> None:
    old, new = captures()[name], as_version_8(captures()[name])
    assert new != old
    assert without_news(parse(new)) == without_news(parse(old))


def test_a_report_without_transfers_says_the_same() -> None:
    old = captures()["run1_041_ok"]
    assert parse(as_version_8(old)).reported == parse(old).reported


def test_without_disk_usage_the_disk_is_what_is_free() -> None:
    new = parse(as_version_8(captures()["run1_003_ok"]))
    assert new.disk == DiskUsage(0, 0, 0, new.disk.free_bytes)
    disk = host_ad(new)["Disk"]
    assert isinstance(disk, int)
    assert 0 < disk <= new.disk.free_bytes


def test_an_apple_gpu_is_described_and_runs_nothing_of_other_vendors() -> None:
    gpu = b"<coprocs><coproc_apple_gpu><count>1</count><name>M2</name></coproc_apple_gpu></coprocs>"
    body = captures()["run1_003_ok"].replace(b"<app_versions>", gpu + b"<app_versions>")
    (found,) = parse(as_version_8(body)).gpus
    assert (found.type, found.model) == ("apple_gpu", "M2")
    assert found.type not in PLAN_CLASSES.values()
