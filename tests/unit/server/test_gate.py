"""What a look at a request tells before anything of it is decoded, and how often one may ask."""

from __future__ import annotations

import json

import pytest

from gridbot_client.protocol.messages import Output, ReplicaId, Report, WorkRequest, encode_request
from gridbot_server.overload.gate import Gate, brings_reports, native_client

REPORT = Report(ReplicaId(1, 2, 3), "success", exit_code=0)


def body(*reports: Report, **host: str) -> bytes:
    return encode_request(WorkRequest("key", 1, host, 5, reports=reports))


def test_a_request_with_reports_is_known_by_them() -> None:
    assert brings_reports(body(REPORT))
    assert not brings_reports(body())


def test_other_spellings_of_the_same_document_are_read_alike() -> None:
    for text in (body(REPORT), body()):
        spaced = json.dumps(json.loads(text), indent=3).encode()
        assert brings_reports(spaced) is brings_reports(text)


@pytest.mark.parametrize("text", ['"reports":[{', '"reports":[1', '\\"reports\\":[{', "<result>"])
def test_no_text_of_a_host_looks_like_a_report(text: str) -> None:
    assert not brings_reports(body(Name=text))


def test_what_a_program_printed_hides_no_report() -> None:
    output = Output("stdout", "0" * 64, 3, b"abc")
    printed = Report(ReplicaId(1, 2, 3), "success", outputs=(output,), stdout='"reports":[]')
    assert brings_reports(body(printed))


def test_a_native_client_is_its_token_however_it_is_sent() -> None:
    sent = ("Bearer gb_1", "bearer gb_1", "BEARER  gb_1 ")
    assert {native_client(text) for text in sent} == {"gb_1"}
    assert native_client("Bearer gb_2") != "gb_1"
    assert native_client("") == ""


def test_a_client_may_ask_so_often_and_then_has_to_wait() -> None:
    gate = Gate(per_minute=10, processes=1)
    found = [gate.refusal("Bearer one", has_reports=False) for _ in range(12)]
    refusal = found[-1]
    assert found[:10] == [None] * 10
    assert refusal is not None
    assert (refusal.status, refusal.seconds > 0) == (429, True)
    assert gate.refusal("Bearer one", has_reports=True) is not None
    assert gate.refusal("Bearer other", has_reports=False) is None


def test_whoever_finds_the_server_full_is_told_when_to_come() -> None:
    gate = Gate(per_minute=1000, processes=1)
    while gate.admission.admits(has_reports=False):
        gate.admission.begin()
    refusal = gate.refusal("Bearer one", has_reports=False)
    assert refusal is not None
    assert (refusal.status, refusal.headers["Retry-After"].isdigit()) == (503, True)
    assert gate.refusal("Bearer one", has_reports=True) is None
