"""The load's stock clients: what they say is what a client would say, by what it was told."""

from __future__ import annotations

import pytest
from scripts.benchmarks.harness.load import boinc_hosts
from scripts.benchmarks.harness.load.boinc_hosts import BoincHost, NotServed
from scripts.benchmarks.harness.load.generator import Echo, Load, Plan
from tests.boinc_captures import our_name

from gridbot_server.boinc.protocol.request import SchedulerRequest, parse

PLAN = Plan(1, 1, 5, 1.0, 10, path=boinc_hosts.PATH, key="f" * 32)
KEY = "<code_sign_key>\n1024\n00ff\n.\n</code_sign_key>\n"
VERSION = "<app_version>\n<app_name>gridbot_ann</app_name>\n<version_num>9</version_num>\n"
NAMES = [our_name(f"j_{letter}_r0") for letter in "abcd"]


def told(*names: str, acks: int = 0, more: str = "") -> bytes:
    results = "".join(
        f"<result>\n<name>{name}</name>\n<platform>p</platform>\n<version_num>9</version_num>\n"
        for name in names
    )
    text = "<result_ack>\n" * acks + more + (VERSION if names else "") + results
    return f"{text}</scheduler_reply>\n".encode()


def said(host: BoincHost, want: int = 2) -> SchedulerRequest:
    return parse(host.body(want))


def test_a_client_attaches_and_is_then_known_by_its_number() -> None:
    host = BoincHost(1, "f" * 32)
    first = said(host)
    host.hear(told(more="<hostid>71</hostid>\n" + KEY))
    second = said(host)
    assert (first.hostid, first.code_sign_key) == (0, "")
    assert (second.hostid, second.rpc_seqno) == (71, 0)
    assert second.code_sign_key == "1024\n00ff\n."
    assert second.machine.host_cpid == first.machine.host_cpid


def test_a_request_asks_for_as_many_jobs_as_the_host_has_processors() -> None:
    request = said(BoincHost(1, "f" * 32), want=7)
    assert (request.machine.cpus, request.cpu.instances) == (7, 7.0)


def test_what_a_host_got_is_held_for_one_request_and_then_reported() -> None:
    host = BoincHost(1, "f" * 32)
    said(host)
    assert host.hear(told(*NAMES[:2])) == 2
    holding = said(host)
    host.hear(told(*NAMES[2:]))
    reporting = said(host)
    assert (list(holding.held), holding.reported) == (NAMES[:2], ())
    assert [item.name for item in reporting.reported] == NAMES[:2]
    assert list(reporting.held) == NAMES[2:]
    assert {item.state for item in reporting.reported} == {5}


def test_a_reply_that_does_not_acknowledge_stops_the_load() -> None:
    host = BoincHost(1, "f" * 32)
    for names in (NAMES[:1], []):
        said(host)
        host.hear(told(*names))
    said(host)
    with pytest.raises(NotServed, match="1 were reported"):
        host.hear(told())
    host.hear(told(acks=1))


def test_the_load_speaks_boinc_to_the_scheduler_and_echoes_the_same_to_the_floor() -> None:
    for talk in (Load().talk(PLAN, 0), Echo(PLAN)):
        head, _, body = talk.ask().partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        assert parse(body).authenticator
    assert len(parse(body).reported) == PLAN.jobs_per_rpc
