"""The load in an open loop: it counts what came of each request, and goes on whatever came."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scripts.benchmarks.harness.load.closed_loop import whole
from scripts.benchmarks.harness.load.open_loop import Arrivals, Flood, Tally

from gridbot_client.protocol.messages import Assignment, ReplicaId, WorkReply, encode_reply

JOB = Assignment(ReplicaId(1, 2, 3), "0" * 64, {}, 60.0)
WORK = encode_reply(WorkReply(1, 1.0, assignments=(JOB,)))
REFUSAL = (
    b"HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
)
SILENT = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"


def served() -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(WORK) + WORK


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """Answer each request on every connection, until the block ends; give the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads: list[threading.Thread] = []

        def talk(conn: socket.socket) -> None:
            with conn:
                while request := conn.recv(1 << 16):
                    conn.sendall(answer(request))

        def accept() -> None:
            while True:
                try:
                    conn, _ = listening.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=talk, args=(conn,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def came_of(answer: Callable[[bytes], bytes], keeps: bool = False, hosts: int = 4) -> Tally:
    """What comes of a tenth of a second of arrivals."""
    with answering(answer) as port:
        flood = Flood(port, 200.0, 0.1, 16, 5, (0, hosts), keeps)
        arrivals = Arrivals(flood)
        tally = arrivals.run()
        arrivals.close()
    return tally


def test_a_host_reports_what_it_was_given_when_it_comes_again() -> None:
    tally = came_of(lambda _: served(), hosts=1)
    assert tally.asking.served == 1
    assert tally.reporting.served == tally.reporting.sent > 0
    assert tally.reporting.jobs == tally.reporting.served


def test_kept_connections_are_used_again() -> None:
    tally = came_of(lambda _: served(), keeps=True)
    assert tally.reporting.served > 0
    assert tally.reporting.failed == tally.asking.failed == 0


def test_refusals_are_told_apart_by_their_retry_time() -> None:
    told, silent = came_of(lambda _: REFUSAL), came_of(lambda _: SILENT)
    assert told.asking.refused == told.asking.sent == told.retry[17] > 0
    assert told.asking.silent == 0
    assert silent.asking.silent == silent.asking.refused > 0


def test_what_was_refused_is_reported_again() -> None:
    answers = iter([served()])
    tally = came_of(lambda _: next(answers, REFUSAL), hosts=1)
    assert (tally.asking.served, tally.asking.refused) == (1, 0)
    assert tally.reporting.refused == tally.reporting.sent > 0


def test_a_reply_is_whole_when_all_its_bytes_came() -> None:
    for size in range(len(REFUSAL)):
        assert whole(REFUSAL[:size]) is None
    reply = whole(REFUSAL)
    assert reply is not None
    assert (reply.status, reply.body, reply.closes, reply.retry_seconds) == (503, b"{}", True, 17)
