"""A server that is asked for more than it can do: who is refused, who is served, what is said."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest
import requests
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.test_rpc_wire import PATIENCE_SECONDS, answer, connected, message

from gridbot_client.protocol.messages import Report, encode_request
from gridbot_server.overload.admission import LEAST_SECONDS, QueueLimits

OFTEN = 50  # requests that a client of the shared server may make at once
BEYOND = 30  # requests that come although the server is full


@pytest.fixture(scope="module")
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(web_workers=1, web_threads=2, client_requests_per_minute=OFTEN)
        made.start("--sign-on-submit")
        yield made


@contextmanager
def stuck(server: Deployment) -> Iterator[None]:
    """A database that answers the requests for work no more, until the block ends."""
    query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'gridbot-web-%%'"
    backends = [psutil.Process(pid) for (pid,) in server.rows(query)]
    assert backends
    for backend in backends:
        backend.suspend()
    try:
        yield
    finally:
        for backend in backends:
            backend.resume()


def refused(wires: Sequence[socket.socket], count: int) -> list[socket.socket]:
    """Wait until so many of them have an answer; return which."""
    found: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        for wire in wires:
            selector.register(wire, selectors.EVENT_READ)
        while len(found) < count:
            ready = selector.select(PATIENCE_SECONDS)
            assert ready, f"{len(found)} of {count} were answered"
            for key, _ in ready:
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                found.append(key.fileobj)
    return found


def heard(wire: socket.socket) -> tuple[int, dict[str, str], Any]:
    with wire.makefile("rb") as replies:
        return answer(replies)


def health(server: Deployment) -> int:
    return requests.get(f"{server.url}/health", timeout=PATIENCE_SECONDS).status_code


def is_well(server: Deployment) -> bool:
    try:
        return health(server) == 200
    except requests.RequestException:
        return False


def test_a_flooded_server_refuses_with_a_time_and_still_takes_reports(server: Deployment) -> None:
    bot = server.submit("--range", "0:1", "--", "true", policy="Concurrency = 1000;")
    client = server.bare_client("reporter")
    (job,) = eventually(lambda: client.ask(1).assignments, what="a replica")
    report = Report(job.id, "error", "exit_nonzero", exit_code=1)
    work = encode_request(client.request(1))
    most = QueueLimits().asking

    with ExitStack() as stack:
        wires = [stack.enter_context(connected(server))[0] for _ in range(most + BEYOND)]
        reporting = stack.enter_context(connected(server))[0]
        with stuck(server):
            for number, wire in enumerate(wires):
                wire.sendall(message(work, f"gb_stranger{number}"))
            away = refused(wires, BEYOND)
            for wire in away:
                status, headers, body = heard(wire)
                assert (status, body["error"], body["retry"]) == (503, "ServerBusy", True)
                assert int(headers["Retry-After"]) > LEAST_SECONDS
                assert headers["Connection"] == "close"
            reporting.sendall(message(encode_request(client.request(0, (report,))), client.token))
            assert health(server) == 200
        assert heard(reporting)[2]["acks"] == [list(job.id)]
        for wire in set(wires) - set(away):
            assert heard(wire)[0] == 401
    assert server.ended(bot)[job.id.seq, job.id.replica][:2] == ("first", "error")


def test_a_server_is_its_old_self_after_a_flood(server: Deployment) -> None:
    work = encode_request(BareClient(server.url, "").request())
    with ExitStack() as stack:
        wires = [
            stack.enter_context(connected(server))[0] for _ in range(QueueLimits().asking + BEYOND)
        ]
        with stuck(server):
            for number, wire in enumerate(wires):
                wire.sendall(message(work, f"gb_other{number}"))
            refused(wires, BEYOND)
    client = server.bare_client("afterwards")
    eventually(lambda: client.call("POST", "/rpc", encode_request(client.request(0))).ok)


@pytest.mark.parametrize("field", ["Connection: keep-alive", "Connection: close"])
def test_a_client_that_asks_too_often_is_told_to_wait_and_others_are_not(
    server: Deployment, field: str
) -> None:
    eager, patient = server.bare_client("eager"), server.bare_client("patient")

    def asked() -> tuple[int, dict[str, str], Any]:
        with connected(server) as (wire, _):
            wire.sendall(message(encode_request(eager.request(0)), eager.token, field))
            return heard(wire)

    began, replies = time.monotonic(), [asked()]
    while replies[-1][0] == 200:
        replies.append(asked())
    *served, (status, headers, body) = replies
    assert status == 429
    assert OFTEN <= len(served) <= allowed_since(began)
    assert int(headers["Retry-After"]) > 0
    assert (body["error"], body["retry"]) == ("TooManyRequests", True)
    assert patient.ask(0).assignments == ()


def test_a_boinc_client_that_asks_too_often_is_told_so_in_a_reply(server: Deployment) -> None:
    request = "<scheduler_request>\n<authenticator>{}</authenticator>\n<hostid>1</hostid>\n"
    body = (request.format("0123456789abcdef") + "</scheduler_request>\n").encode()

    def asked() -> str:
        return requests.post(f"{server.url}/boinc/scheduler", body, timeout=PATIENCE_SECONDS).text

    began, replies = time.monotonic(), [asked()]
    while "<project_is_down/>" not in replies[-1]:
        replies.append(asked())
    assert OFTEN <= len(replies) - 1 <= allowed_since(began)
    assert "<request_delay>60" in replies[-1]
    assert "asks too often" in replies[-1]


def allowed_since(began: float) -> int:
    """The most requests that a client may have made: its allowance grows with time."""
    return OFTEN + int((time.monotonic() - began) * OFTEN / 60)


def test_slow_requests_that_hold_all_their_threads_hide_no_page_and_no_retry_time(
    server: Deployment,
) -> None:
    with ExitStack() as stack:
        head = "POST /api/v1/bots HTTP/1.1\r\nHost: here\r\nContent-Length: 900000\r\n"
        head += f"Content-Type: application/json\r\nAuthorization: Bearer {server.operator_key}\r\n"
        for _ in range(20 * server.settings.web_threads):
            wire, _ = stack.enter_context(connected(server))
            wire.sendall(f"{head}\r\n".encode())

        def is_refused() -> bool:
            with connected(server) as (wire, _):
                wire.settimeout(1)
                wire.sendall(f"{head}\r\n".encode())
                try:
                    status, headers, _ = heard(wire)
                except TimeoutError:  # it waits for a thread: there was room still
                    return False
            return status == 503 and int(headers["Retry-After"]) > 0

        eventually(is_refused, what="a refusal")
        assert health(server) == 200
        with connected(server) as (wire, _):
            wire.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: here\r\n\r\n")
            assert heard(wire)[0] == 200


def test_half_a_head_holds_no_thread(server: Deployment) -> None:
    with ExitStack() as stack:
        wires = [
            stack.enter_context(connected(server)) for _ in range(20 * server.settings.web_threads)
        ]
        for wire, _ in wires:
            wire.sendall(b"GET /health HTTP/1.1\r\nHost: he")
        with connected(server) as (wire, replies):
            wire.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: here\r\n\r\n")
            assert answer(replies)[0] == 200
        slow, replies = wires[0]
        slow.sendall(b"re\r\n\r\n")
        assert answer(replies)[0] == 200


def test_idle_connections_make_room_for_new_ones(fresh: Deployment) -> None:
    fresh.configure(web_workers=1, web_threads=2)
    fresh.start()
    supervisor, first = psutil.Process(fresh.supervisor), fresh.children()["gunicorn"]
    supervisor.rlimit(psutil.RLIMIT_NOFILE, (200, 200))  # of those that it starts from now on
    psutil.Process(first).kill()
    eventually(lambda: fresh.children().get("gunicorn", first) != first, what="another gunicorn")
    eventually(lambda: is_well(fresh), what="that it serves")
    client = fresh.bare_client("early")
    work = message(encode_request(client.request(0)), client.token)
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(fresh)) for _ in range(200)]
        for wire, replies in idle:
            wire.sendall(work)
            assert answer(replies)[0] == 200
        assert client.ask(0).assignments == ()
        assert health(fresh) == 200
        assert idle[0][1].read() == b""
