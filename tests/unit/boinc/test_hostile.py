import random

import pytest
from scripts.boinc_replay.damage import cut, mutated
from tests.boinc_captures import FACTS, NAMES, our_name, ours

from gridbot_client.protocol.messages import Report
from gridbot_server.boinc.protocol import reply, upload
from gridbot_server.boinc.protocol.reply import SchedulerReply
from gridbot_server.boinc.protocol.request import parse
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session.host_ad import host_ad
from gridbot_server.boinc.session.reports import read_reports

TRUNCATIONS, MUTATIONS = 50, 1000


def serve(body: bytes) -> bool:
    """Everything that the codec does with a request; whether it could be read."""
    try:
        request = parse(body)
    except BoincError as error:
        assert str(error)
        return False
    assert host_ad(request)
    found = read_reports(request, NAMES)
    for end in found.ends:
        assert isinstance(end.report([False], {}), Report)
    assert reply.render(SchedulerReply("p", acks=found.acks, aborts=found.unknown))
    return True


@pytest.mark.parametrize("name", FACTS)
def test_a_request_cut_short_anywhere_is_refused(name: str) -> None:
    body = ours(name)
    end = body.rindex(b"</scheduler_request>") + len(b"</scheduler_request>")
    rng = random.Random(name)
    assert serve(body)
    assert not any(serve(cut(body[:end], rng)) for _ in range(TRUNCATIONS))


@pytest.mark.parametrize("name", FACTS)
def test_a_mutated_request_is_served_or_refused_with_a_reason(name: str) -> None:
    body, rng = ours(name), random.Random(name)
    served = sum(serve(mutated(body, rng)) for _ in range(MUTATIONS))
    assert MUTATIONS / 2 < served <= MUTATIONS


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit",
    ["]]>", "]]> \n", "<stderr_txt>", "</stderr_txt>", "&#195;", "<error_code>", "\n[gridbot "],
)
def test_what_programs_write_takes_time_by_its_size_only(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    name = our_name("j_ok_r0")
    report = (
        f"<result><name>{name}</name><stderr_out>\n<![CDATA[\n{text}]]>\n</stderr_out></result>"
    )
    assert serve(f"<scheduler_request>{report}</scheduler_request>".encode())


@pytest.mark.parametrize("unit", ["<a></a>", "<job_log></job_log>", "<stderr_out>x</stderr_out>"])
def test_a_request_of_very_many_elements_is_refused(unit: str) -> None:
    body = f"<scheduler_request>{unit * 100_000}</scheduler_request>"
    with pytest.raises(BoincError, match="more than 100000 tags"):
        parse(body.encode())


UPLOAD = (
    b"<data_server_request>\n<file_upload>\n<file_info>\n<name>gb_1_0</name>\n<xml_signature>\n"
    b"00ff\n.</xml_signature>\n<max_nbytes>100</max_nbytes>\n</file_info>\n<nbytes>3</nbytes>\n"
    b"<md5_cksum>900150983cd24fb0d6963f7d28e17f72</md5_cksum>\n<offset>0</offset>\n<data>\nabc"
)


@pytest.mark.parametrize("seed", range(5))
def test_a_mutated_upload_is_read_or_refused_with_a_reason(seed: int) -> None:
    rng, read = random.Random(seed), 0
    for _ in range(MUTATIONS):
        body = mutated(UPLOAD, rng)
        head = rng.choice((body, cut(body, rng)))
        try:
            found = upload.parse(head, is_all=rng.random() < 0.5)
            read += isinstance(found, upload.UploadRequest)
        except BoincError as error:
            assert str(error)
    assert read
