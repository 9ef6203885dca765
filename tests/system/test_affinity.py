"""Claims about what is moved for BOTs whose inputs some hosts hold: real servers and clients."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from tests.fakes.source_server import SourceServer, source_server
from tests.system.deployment import Deployment, deployment

BYTES = 3 << 20
ONE_AT_A_TIME = "Concurrency = 1;"
BY_DATA = f"{ONE_AT_A_TIME} Rank = Host.CachedMB;"


@pytest.fixture
def server() -> Iterator[Deployment]:
    with deployment() as made:
        made.start()
        yield made
        made.kill_clients()


class Survey:
    """Two sets of data, and two hosts that work one after the other: so nothing is a race."""

    def __init__(self, server: Deployment, place: SourceServer) -> None:
        self._server, self._place = server, place
        self._inputs = [self._input(f"/set-{number}", number) for number in range(2)]

    def _input(self, path: str, number: int) -> str:
        content = bytes([number]) * BYTES
        url, sha256 = self._place.file(path, content), hashlib.sha256(content).hexdigest()
        return f"{url}#sha256={sha256}&size={BYTES}&name=data"

    def bot(self, number: int, policy: str) -> int:
        """Submit a job over a set of data."""
        return self._server.submit(
            "--input", self._inputs[number], "--", "sha256sum", "data", policy=policy
        )

    def work(self, host: str) -> None:
        """Let a host run one job."""
        self._server.client(host, "--cpus", "1", "--once")
        assert self._server.client_ends(host) == 0

    def moved(self, policy: str) -> int:
        """Bytes that the source gives for a second pair of BOTs, the other set's first."""
        before = len(self._place.asked)
        bots = [self.bot(1, policy), self.bot(0, policy)]
        for host in ("first", "second"):
            self.work(host)
        for bot in bots:
            self._server.wait(bot)
        assert all(asked == "" for _, asked in self._place.asked)  # whole files
        return BYTES * (len(self._place.asked) - before)


def test_the_rank_of_what_hosts_hold_at_least_halves_the_bytes_that_second_bots_move(
    server: Deployment,
) -> None:
    with source_server() as place:
        survey = Survey(server, place)
        for number, host in enumerate(("first", "second")):
            bot = survey.bot(number, ONE_AT_A_TIME)
            survey.work(host)
            server.wait(bot)
        by_data, in_order = survey.moved(BY_DATA), survey.moved(ONE_AT_A_TIME)
    print(f"moved by Rank = Host.CachedMB: {by_data} bytes; without: {in_order} bytes")
    assert in_order == 2 * BYTES
    assert 2 * by_data <= in_order
