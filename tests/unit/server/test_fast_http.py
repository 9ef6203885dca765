from __future__ import annotations

import http.client
import io

import pytest

from gridbot_server.web import fast_http

MOST = 1000
HEAD = b"POST /rpc HTTP/1.1\r\nHost: server:8765\r\nAuthorization: Bearer gb_Key\r\n"


def request(*fields: bytes, body: bytes = b"{}", head: bytes = HEAD) -> bytes:
    lines = b"".join(field + b"\r\n" for field in fields)
    return head + b"Content-Length: %d\r\n" % len(body) + lines + b"\r\n" + body


def test_a_plain_request_is_read() -> None:
    data = request(b"connection: Keep-Alive", b"X-Forwarded-For: 10.0.0.1", body=b'{"a": "\r\n"}')
    found = fast_http.read(data, MOST)
    assert found is not None
    assert (found.authorization, found.size) == ("Bearer gb_Key", len(data))
    assert data[found.start : found.size] == b'{"a": "\r\n"}'


def test_what_follows_a_request_is_left_alone() -> None:
    data = request(body=b"[1]")
    found = fast_http.read(data + request(body=b"[2]"), MOST)
    assert found is not None
    assert found.size == len(data)


def test_no_key_is_an_empty_one() -> None:
    found = fast_http.read(request(head=b"POST /rpc HTTP/1.1\r\n"), MOST)
    assert found is not None
    assert found.authorization == ""


def test_a_head_that_is_all_there_says_how_much_is_to_come() -> None:
    data = request(body=b"x" * 20)
    found = fast_http.read(data, MOST)
    assert found is not None
    for size in range(len(data)):
        assert fast_http.read(data[:size], MOST) == (None if size < found.start else found)


@pytest.mark.parametrize(
    "field",
    [
        b"Transfer-Encoding: chunked",
        b"Expect: 100-continue",
        b"Connection: close",
        b"Connection: keep-alive, Upgrade",
        b"Upgrade: h2c",
        b"Trailer: X",
        b"content-length: 2",  # twice
        b"Authorization: Bearer other",  # twice
        b"X_Y: under_scores are dropped by gunicorn",
        b"X-Folded: a\r\n b",
        b"X-Space : before the colon",
        b"X-Text: \xe9",
        b"X-Bare: a\nb",
        b"X-Zero: a\0b",
        b"X-Empty:",
        b"X-Long: " + b"x" * fast_http.MAX_HEAD_BYTES,
        b"\r\n".join(b"X-%c: y" % (65 + n) for n in range(fast_http.MAX_FIELDS)),
    ],
)
def test_a_field_that_is_not_plain_leaves_the_request_to_gunicorn(field: bytes) -> None:
    assert fast_http.read(request(field), MOST) is None


@pytest.mark.parametrize(
    "line",
    [
        b"GET /rpc HTTP/1.1",
        b"POST /rpc HTTP/1.0",
        b"POST /rpc?x=1 HTTP/1.1",
        b"POST /rpc/ HTTP/1.1",
        b"POST //rpc HTTP/1.1",
        b"POST /api/v1/bots HTTP/1.1",
        b"post /rpc HTTP/1.1",
        b" POST /rpc HTTP/1.1",
        b"PRI * HTTP/2.0",
    ],
)
def test_any_other_request_line_is_left_to_gunicorn(line: bytes) -> None:
    assert fast_http.read(request(head=line + b"\r\n"), MOST) is None


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"+1", b"0x2", b"2, 2", b"1e0", b"\xb2", b" 2", b"2 "]
)
def test_a_length_that_is_no_plain_number_is_left_to_gunicorn(length: bytes) -> None:
    data = HEAD + b"Content-Length: " + length + b"\r\n\r\n{}"
    assert fast_http.read(data, MOST) is None
    assert fast_http.read(HEAD + b"\r\n{}", MOST) is None


def test_a_long_body_is_left_to_gunicorn() -> None:
    assert fast_http.read(request(body=b"x" * MOST), MOST) is not None
    assert fast_http.read(request(body=b"x" * (MOST + 1)), MOST) is None


def parsed_answer(data: bytes) -> http.client.HTTPResponse:
    """An answer as a client reads it."""

    class Wire:
        def makefile(self, _: str) -> io.BytesIO:
            return io.BytesIO(data)

    response = http.client.HTTPResponse(Wire())  # type: ignore[arg-type]  # all that it uses
    response.begin()
    return response


@pytest.mark.parametrize(("keep", "connection"), [(True, "keep-alive"), (False, "close")])
def test_an_answer_is_read_by_any_client(keep: bool, connection: str) -> None:
    response = parsed_answer(fast_http.answer(503, b"[1]", {"Retry-After": "5"}, keep))
    assert (response.status, response.reason) == (503, "Service Unavailable")
    assert response.read() == b"[1]"
    assert response.headers["Connection"] == connection
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Retry-After"] == "5"
    assert response.headers["Date"].endswith(" GMT")


def test_a_request_says_for_whom_it_is() -> None:
    heads = {path: b"POST %b HTTP/1.1\r\n" % path.encode() for path in ("/rpc", "/boinc/scheduler")}
    for path, head in heads.items():
        found = fast_http.read(request(head=head), MOST)
        assert found is not None
        assert found.path == path


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 0),
        (b"POST /x HTTP/1.1\r\ncontent-length: 7\r\n\r\n", 7),
        (b"POST /x HTTP/1.1\r\nX: a\r\nContent-Length:7 \r\n\r\n", None),
        (b"POST /x HTTP/1.1\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n", None),
        (b"POST /x HTTP/1.1\r\nContent-Length: 7\r\nExpect: 100-continue\r\n\r\n", None),
        (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        (b"POST /x HTTP/1.1\r\nTransfer-Encoding: 7\r\n\r\n", None),
        (b"POST /x HTTP/1.1\r\nContent-Length: 7\r\n", None),
    ],
)
def test_how_long_a_request_is_its_head_says(head: bytes, size: int | None) -> None:
    expected = None if size is None else len(head) + size
    assert fast_http.size_of(head) == fast_http.size_of(head + b"Expect: x") == expected


POLL = b"GET /bots/7?live HTTP/1.1\r\nHost: server:8765\r\nCookie: gridbot_session=abc\r\n"


def test_a_poll_of_a_browser_is_read() -> None:
    fields = (
        b'If-None-Match: "12"\r\nAccept-Language: en-US,en;q=0.9\r\n'
        b'sec-ch-ua: "Chromium";v="156"\r\nSec-Fetch-Mode: cors\r\nConnection: keep-alive\r\n\r\n'
    )
    found = fast_http.read_poll(POLL + fields + b"GET /next")
    assert found == fast_http.PagePoll("/bots/7", "gridbot_session=abc", '"12"', len(POLL + fields))


def test_a_poll_of_who_shows_nothing_has_no_etag() -> None:
    data = b"GET /?live HTTP/1.1\r\nHost: here\r\n\r\n"
    assert fast_http.read_poll(data) == fast_http.PagePoll("/", "", "", len(data))


@pytest.mark.parametrize(
    "data",
    [
        POLL,  # its head is not all there
        POLL + b"Content-Length: 2\r\n\r\n{}",
        POLL + b"Transfer-Encoding: chunked\r\n\r\n",
        POLL + b"Connection: close\r\n\r\n",
        POLL + b"cookie: another=1\r\n\r\n",
        POLL + b"X-Long: " + b"x" * fast_http.MAX_HEAD_BYTES + b"\r\n\r\n",
        POLL.replace(b"1.1", b"1.0") + b"\r\n",
        POLL.replace(b"GET", b"HEAD") + b"\r\n",
        POLL.replace(b"?live", b"?live=1") + b"\r\n",
        POLL.replace(b"/bots/7", b"/bots/%37") + b"\r\n",
        POLL.replace(b"?live", b"") + b"\r\n",
    ],
)
def test_a_poll_that_is_not_plain_is_left_to_gunicorn(data: bytes) -> None:
    assert fast_http.read_poll(data) is None


def test_who_has_the_content_already_gets_no_body() -> None:
    parsed = parsed_answer(fast_http.unchanged({"ETag": '"12"'}, keep=True))
    assert (parsed.status, parsed.headers["ETag"], parsed.read()) == (304, '"12"', b"")
    assert parsed.headers["Content-Length"] is None
