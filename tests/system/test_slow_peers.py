"""One who takes what he asked for slowly, or sends slowly what he has: others are served."""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import requests
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.test_overload import refused
from tests.system.test_rpc_wire import connected

from gridbot_server.overload.slow_senders import PATIENCE_SECONDS

THREADS = 32
DATA = bytes(range(256)) * 80_000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.configure(web_workers=1, web_threads=THREADS)
        made.start()
        yield made


@contextmanager
def asked(server: Deployment, requests: Iterable[bytes]) -> Iterator[list[socket.socket]]:
    """Connections of somebody who asks for all at once, and then takes and sends no more."""
    with ExitStack() as stack:
        wires = []
        for data in requests:
            wire, _ = stack.enter_context(connected(server))
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            wire.sendall(data)
            wires.append(wire)
        yield wires


def head(method: str, path: str, token: str, size: int = 0) -> bytes:
    fields = f"Host: here\r\nAuthorization: Bearer {token}\r\nContent-Length: {size}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode()


def status(wire: socket.socket) -> int:
    return int(wire.recv(100).split()[1])


def test_one_who_reads_slowly_gets_few_threads_and_others_their_files(server: Deployment) -> None:
    path = f"/files/{SHA256}"
    data = server.folder / "data"
    data.write_bytes(DATA)
    server.submit("--range", "0:2", "--input", f"{data}", "--", "true")
    slow, other = server.bare_client("slow"), server.bare_client("other")
    eventually(lambda: slow.ask().assignments, what="a replica")
    eventually(lambda: other.ask().assignments, what="another replica")
    few = THREADS * 3 // 8 // 4
    with asked(server, 2 * THREADS * [head("GET", path, slow.token)]) as wires:
        assert Counter(map(status, wires)) == {200: few, 503: 2 * THREADS - few}
        assert other.call("GET", path).content == DATA
        assert requests.get(f"{server.url}/health", timeout=30).ok
    eventually(lambda: slow.call("GET", path).ok, what="a released slot")


def test_one_who_sends_slowly_gets_few_threads_and_others_upload(server: Deployment) -> None:
    bot = server.submit("--range", "0:2", "--output", "part*", "--", "true")
    slow, other = server.bare_client("slow"), server.bare_client("other")
    (mine,) = eventually(lambda: slow.ask().assignments, what="a replica")
    (others,) = eventually(lambda: other.ask().assignments, what="another replica")
    query = f"sha256={SHA256}&size={len(DATA)}"
    heads = [
        head(
            "PUT",
            f"/uploads/{bot}/{mine.id.seq}/{mine.id.replica}/part{i}?{query}",
            slow.token,
            900_000,
        )
        for i in range(THREADS)
    ]
    few = THREADS // 2 // 4
    with asked(server, heads) as wires:
        assert {status(wire) for wire in refused(wires, THREADS - few)} == {503}
        path = f"/uploads/{bot}/{others.id.seq}/{others.id.replica}/part0?{query}"
        assert other.call("PUT", path, DATA).json()["complete"]


def test_those_whose_bodies_never_end_keep_nobody_from_a_page(server: Deployment) -> None:
    targets = ("/boinc/scheduler", "/boinc/file_upload_handler", "/boinc/account", "/rpc")
    heads = [head("POST", path, "", size) for path in targets for size in (4_000, 900_000)]
    with asked(server, [one + b"x" for one in heads for _ in range(4 * THREADS)]):
        for page in ("/health", "/boinc/", "/boinc/get_project_config.php", "/boinc/account"):
            # Sooner than any of their threads is given back.
            answer = requests.get(f"{server.url}{page}", timeout=PATIENCE_SECONDS / 2)
            assert answer.status_code == 200, page


@pytest.mark.parametrize("size", [100, 900_000])
def test_a_body_that_ends_early_is_refused(server: Deployment, size: int) -> None:
    request = head("POST", "/api/v1/bots", server.operator_key, size)
    typed = request.replace(b"Host:", b"Content-Type: application/json\r\nHost:")

    def answer() -> bytes:
        with asked(server, [typed + b"{}"]) as (wire,):
            wire.shutdown(socket.SHUT_WR)
            said = wire.makefile("rb").read()
        # While threads of those who have just gone away are not back, all are told to come again.
        return b"" if said.split()[1] == b"503" else said

    said = eventually(answer, what="an answer of a server that is not busy")
    assert said.split()[1] == b"400"
    assert b"the body ended after 2 of the %d bytes" % size in said


def test_a_request_for_work_that_ends_early_is_refused(server: Deployment) -> None:
    client = server.bare_client("hasty")
    with asked(server, [head("POST", "/rpc", client.token, 100) + b"{}"]) as (wire,):
        wire.shutdown(socket.SHUT_WR)
        assert b"the body ended after 2 of the 100 bytes" in wire.makefile("rb").read()
