import pytest

from gridbot_server.boinc.protocol import upload
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.protocol.upload import SizeQuery, UploadRequest

VERSION = """\
    <core_client_major_version>7</core_client_major_version>
    <core_client_minor_version>20</core_client_minor_version>
    <core_client_release>5</core_client_release>
"""
MD5 = "e10e00213711c5bf7eef265049936551"


def body(
    name: str = "j_big_r0_0",
    size: str = "60000",
    most: str = "100000",
    offset: str = "20000",
    md5: str = MD5,
    signature: str = "45246fad\nef382a1e\n.",
) -> bytes:
    return (
        f"<data_server_request>\n{VERSION}<file_upload>\n<file_info>\n<name>{name}</name>\n"
        f"<xml_signature>\n{signature}</xml_signature>\n<max_nbytes>{most}</max_nbytes>\n"
        f"</file_info>\n<nbytes>{size}</nbytes>\n<md5_cksum>{md5}</md5_cksum>\n"
        f"<offset>{offset}</offset>\n<data>\n"
    ).encode()


def query(name: str) -> bytes:
    return (
        f"<data_server_request>\n{VERSION}    <get_file_size>{name}</get_file_size>\n"
        "</data_server_request>\n"
    ).encode()


def test_a_size_query_names_its_file() -> None:
    assert upload.parse(query("j_big_r0_0"), is_all=True) == SizeQuery("j_big_r0_0")


def test_an_upload_says_what_follows() -> None:
    head = body()
    found = upload.parse(head + b"\x00\xff<data>\n", is_all=False)
    assert found == UploadRequest(
        name="j_big_r0_0",
        signature="45246fad\nef382a1e\n.",
        max_size=100_000,
        size=60_000,
        md5=MD5,
        offset=20_000,
        data_at=len(head),
    )
    assert found.bytes_left == 40_000


def test_an_upload_may_come_without_a_certificate() -> None:
    found = upload.parse(body(signature=""), is_all=True)
    assert isinstance(found, UploadRequest)
    assert found.signature == ""


def test_an_empty_file_and_a_complete_one_have_nothing_left() -> None:
    for size in ("0", "60000"):
        found = upload.parse(body(size=size, offset=size), is_all=True)
        assert isinstance(found, UploadRequest)
        assert found.bytes_left == 0


@pytest.mark.parametrize("cut", [0, 1, 100, 400, len(body()) - 1])
def test_the_head_of_an_upload_is_waited_for(cut: int) -> None:
    assert upload.parse(body()[:cut], is_all=False) is None


def test_a_query_is_answered_once_it_is_whole() -> None:
    assert upload.parse(query("a")[:-5], is_all=False) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "the text has no <data_server_request>"),
        (query("a")[:-30], "ends before </data_server_request>"),
        (b"<data_server_request><a></a></data_server_request>", "there is nothing to do"),
        (query("../../etc/passwd"), "'../../etc/passwd' is not a usable file name"),
        (query("a/b"), "not a usable file name"),
        (query(".hidden"), "not a usable file name"),
        (query("a..b"), "not a usable file name"),
        (query(""), "not a usable file name"),
        (query("a\x00b"), "not a usable file name"),
        (query("a" * 256), "not a usable file name"),
        (body(name="/tmp/x"), "not a usable file name"),
        (body(size="100001"), "j_big_r0_0 has 100001 bytes, at most 100000"),
        (body(size="-1"), "<nbytes> is missing or no size"),
        (body(size=""), "<nbytes> is missing or no size"),
        (body(most="lots"), "<max_nbytes> is missing or no size"),
        (body(offset="60001"), "offset 60001 is beyond 60000 bytes"),
        (body(md5="x"), "'x' is no MD5 in hex"),
        (b"<data>\n", "the text has no <data_server_request>"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_reason(text: bytes, reason: str) -> None:
    with pytest.raises(BoincError, match=reason):
        upload.parse(text, is_all=True)


def test_a_head_without_an_end_is_not_waited_for_for_ever() -> None:
    with pytest.raises(BoincError, match="more than 8192 bytes come before the data"):
        upload.parse(b"x" * 8193, is_all=False)


def test_answers_are_as_the_client_reads_them() -> None:
    assert upload.accepted() == "<data_server_reply>\n<status>0</status>\n</data_server_reply>\n"
    assert upload.arrived(20_000) == (
        "<data_server_reply>\n<status>0</status>\n<file_size>20000</file_size>\n"
        "</data_server_reply>\n"
    )
    assert "<status>1</status>\n<message>disk full</message>" in upload.refused("disk full", True)
    assert "<status>-1</status>\n<message>a &lt; b</message>" in upload.refused("a < b", False)
