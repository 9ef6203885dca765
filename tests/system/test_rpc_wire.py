"""Requests for work as bytes on a connection: however they arrive, the answer is the same."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, BinaryIO

import pytest
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, eventually

from gridbot_client.protocol.messages import ReplicaId, Report, encode_request

PATIENCE_SECONDS = 30.0
# What two answers to one request may differ in.
PASSING = {"Date", "Server"}


@contextmanager
def connected(server: Deployment) -> Iterator[tuple[socket.socket, BinaryIO]]:
    """A connection, and what comes on it."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SECONDS) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with wire.makefile("rb") as replies:
            yield wire, replies


def message(body: bytes, token: str, *fields: str) -> bytes:
    lines = ["POST /rpc HTTP/1.1", "Host: here", f"Authorization: Bearer {token}", *fields]
    if not any(field.startswith("Transfer-Encoding") for field in fields):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def answer(replies: BinaryIO) -> tuple[int, dict[str, str], Any]:
    """Read one answer of those that come on a connection."""
    status = int(replies.readline().split()[1])
    found = http.client.parse_headers(replies)
    headers = {name: text for name, text in found.items() if name not in PASSING}
    return status, headers, json.loads(replies.read(int(found["Content-Length"])))


def said(server: Deployment, pieces: Sequence[bytes]) -> tuple[int, dict[str, str], Any]:
    """Send a request piece by piece, each on its way before the next; return the answer."""
    with connected(server) as (wire, replies):
        for piece in pieces:
            wire.sendall(piece)
        return answer(replies)


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The whole; the head and the body; a cut in the head; a cut in the body; single bytes."""
    body = data.index(b"\r\n\r\n") + 4
    yield [data]
    for place in (body, 40, body + 5):
        yield [data[:place], data[place:]]
    yield [bytes([byte]) for byte in data]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"protocol": 1}', 400), (b"\xff{ is no JSON", 400), (b'{"protocol": 9}', 400)],
)
def test_a_wrong_request_is_refused_alike_however_it_arrives(
    running: Deployment, body: bytes, status: int
) -> None:
    found = [said(running, pieces) for pieces in cuts(message(body, "gb_x"))]
    assert found[0][0] == status
    assert found[0][1]["Cache-Control"] == "no-store"
    assert all(other == found[0] for other in found)


def test_a_stranger_is_refused_alike_however_the_request_arrives(running: Deployment) -> None:
    body = encode_request(BareClient(running.url, "").request())
    for token, detail in (
        ("gb_x", "this client's token is unknown, expired or revoked"),
        ("", "this needs a key: send the header Authorization: Bearer KEY"),
    ):
        found = [said(running, pieces) for pieces in cuts(message(body, token))]
        assert found[0][0] == 401
        assert found[0][1]["WWW-Authenticate"] == "Bearer"
        assert found[0][2] == {"error": "Unauthorized", "detail": detail, "retry": False}
        assert all(other == found[0] for other in found)


def test_a_request_gets_the_same_replicas_however_often_and_however_it_arrives(
    running: Deployment,
) -> None:
    bot = running.submit("--range", "0:3", "--", "true", policy="Concurrency = 1000;")
    client = running.bare_client("in pieces")
    eventually(lambda: client.ask(3).assignments, what="replicas")
    again = encode_request(client.request(3))
    found = [
        said(running, pieces)[2]["assignments"] for pieces in cuts(message(again, client.token))
    ]
    for assignments in found:
        assert sorted(item["id"] for item in assignments) == [[bot, seq, 1] for seq in range(3)]


def test_a_client_too_old_to_check_signatures_is_told_so_by_an_error_which_it_shows(
    running: Deployment,
) -> None:
    bot = running.submit("--", "true")
    old = running.bare_client("old")

    def asked(*reports: Report) -> tuple[int, dict[str, str], Any]:
        body = encode_request(replace(old.request(1, reports), protocol=1))
        return said(running, [message(body, old.token)])

    eventually(lambda: asked()[0] == 426, what="the refusal")
    status, _, document = asked()
    assert (status, document["error"]) == (426, "ClientTooOld")
    assert "the client is too old to check the BOT's signatures: update it" in document["detail"]
    # What it has to report is taken all the same, and it is a client like others once updated.
    report = Report(ReplicaId(bot, 0, 1), "error", reason="exit_nonzero")
    status, _, document = asked(report)
    assert (status, document["acks"], document["protocol"]) == (200, [[bot, 0, 1]], 1)
    assert [item.id for item in old.ask().assignments] == [ReplicaId(bot, 0, 1)]


def test_requests_sent_at_once_are_answered_in_their_order(running: Deployment) -> None:
    health = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
    wrong = [message(b'{"protocol": %d}' % number, "gb_x") for number in (21, 22, 23, 24)]
    with connected(running) as (wire, replies):
        wire.sendall(wrong[0] + wrong[1] + health + wrong[2] + wrong[3][:30])
        details = [answer(replies)[2].get("detail") for _ in range(4)]
        wire.sendall(wrong[3][30:])
        details.append(answer(replies)[2]["detail"])
    spoken = "unsupported protocol version {}; supported: 1 and 2"
    expected = [spoken.format(number) for number in (21, 22, 23, 24)]
    assert details == [*expected[:2], None, *expected[2:]]


def test_peers_that_do_not_close_their_end_keep_nobody_waiting(running: Deployment) -> None:
    last = b"GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        lazy = [stack.enter_context(connected(running)) for _ in range(40)]
        for wire, _ in lazy:
            wire.sendall(last)
        wrong = message(b'{"protocol": 21}', "gb_x")
        assert said(running, [wrong])[0] == 400
        assert [answer(replies)[0] for _, replies in lazy] == [200] * 40
        assert [replies.read() for _, replies in lazy] == [b""] * 40


def test_a_body_of_unknown_length_is_refused(running: Deployment) -> None:
    data = message(b"2\r\n{}\r\n0\r\n\r\n", "gb_x", "Transfer-Encoding: chunked")
    status, _, body = said(running, [data])
    assert (status, body["error"]) == (411, "LengthRequired")


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(running: Deployment) -> None:
    data = message(b'{"protocol": 5}', "gb_x", "Expect: 100-continue")
    head = data.index(b"\r\n\r\n") + 4
    with connected(running) as (wire, replies):
        wire.sendall(data[:head])
        assert replies.readline().startswith(b"HTTP/1.1 100 ")
        assert replies.readline() == b"\r\n"
        wire.sendall(data[head:])
        assert answer(replies)[0] == 400


def test_a_connection_is_closed_for_whoever_wants_that(running: Deployment) -> None:
    with connected(running) as (wire, replies):
        wire.sendall(message(b"{}", "gb_x", "Connection: close"))
        assert answer(replies)[1]["Connection"] == "close"
        assert replies.read() == b""


def test_a_long_request_is_answered_like_a_short_one(running: Deployment) -> None:
    client = running.bare_client("talkative")
    body = encode_request(client.request(0))
    assert said(running, [message(body + b" " * 200_000, client.token)])[0] == 200


def test_clients_that_hang_up_early_harm_nobody(running: Deployment) -> None:
    data = message(encode_request(BareClient(running.url, "").request()), "gb_x")
    for size in (1, 40, data.index(b"{"), len(data) - 1, len(data)):
        with connected(running) as (wire, _):
            wire.sendall(data[:size])
    assert running.bare_client("patient").ask(0).assignments == ()


def test_requests_for_work_are_answered_while_slow_clients_hold_all_threads(
    running: Deployment,
) -> None:
    client = running.bare_client("quick")
    settings = running.settings
    with ExitStack() as stack:
        for _ in range(2 * settings.web_workers * settings.web_threads):
            slow, _ = stack.enter_context(connected(running))
            slow.sendall(b"POST /api/v1/bots HTTP/1.1\r\n")
        for _ in range(10):
            assert client.ask(0).assignments == ()


def test_a_reply_larger_than_what_the_network_takes_arrives_whole(running: Deployment) -> None:
    count, long = 60, "x" * 90_000
    table = running.file("long.csv", "text\n" + f"{long}\n" * count)
    running.submit("--items", str(table), "--", "echo", "{text}", policy="Concurrency = 1000;")
    client = running.bare_client("narrow")

    def asked() -> list[dict[str, Any]]:
        with socket.socket() as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.settimeout(PATIENCE_SECONDS)
            wire.connect(("127.0.0.1", running.port))
            wire.sendall(message(encode_request(client.request(count)), client.token))
            with wire.makefile("rb") as replies:
                status, _, reply = answer(replies)
            assert status == 200
            return list(reply["assignments"])

    assignments = eventually(asked, what="replicas")
    assert [item["args"] for item in assignments] == [{"text": long}] * count
