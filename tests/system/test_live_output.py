"""What running jobs print comes to who follows them, whole and in order; others pay nothing."""

from __future__ import annotations

import json
import subprocess
import threading
from functools import partial

from tests.console.test_entry import logged_in
from tests.system.deployment import GRIDBOT, NO_COPIES, Deployment, eventually
from tests.system.relay import relay

LINES = """
i=0
while test $i -lt {}; do
    i=$((i + 1))
    echo "line $i"
    echo "error $i" >&2
    sleep 0.02
done
"""


def expected(count: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(1, count + 1))


class Follower:
    """`gridbot bot logs --follow`, while it runs."""

    def __init__(self, server: Deployment, bot: int, *options: str) -> None:
        self.process = subprocess.Popen(
            [*GRIDBOT, "bot", "logs", str(bot), "--follow", *options],
            env=server.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        self.lines += iter(self.process.stdout.readline, "")

    def end(self) -> tuple[str, str]:
        with self.process:
            assert self.process.stderr
            self._reader.join(120.0)
            stderr = self.process.stderr.read()
        return "".join(self.lines), stderr


def test_who_follows_a_job_reads_what_it_prints_while_it_runs(running: Deployment) -> None:
    running.client("one", "--cpus", "1")
    gate = running.gate()
    script = 'echo begun; while test -e "$0"; do sleep 0.05; done; echo over'
    bot = running.submit("--", "sh", "-c", script, str(gate.path), policy=NO_COPIES)
    follower = Follower(running, bot, "--job", "0")
    eventually(lambda: follower.lines == ["begun\n"], what="the first line, while it runs")
    assert running.leases(bot)
    gate.open()
    assert follower.end()[0] == "begun\nover\n"


def test_output_of_several_jobs_has_their_numbers_and_both_streams(running: Deployment) -> None:
    running.client("one", "--cpus", "2")
    script = 'echo "out $1"; echo "err $1" >&2; sleep 3'
    bot = running.submit("--range", "0:2", "--", "sh", "-c", script, "sh", "{}", policy=NO_COPIES)
    follower = Follower(running, bot)
    stdout, stderr = follower.end()
    assert sorted(stdout.splitlines()) == ["job 0: out 0", "job 1: out 1"]
    assert sorted(stderr.splitlines()) == ["job 0: err 0", "job 1: err 1"]


def test_a_cut_network_loses_nothing_and_keeps_the_order(running: Deployment) -> None:
    with relay(running.port) as network:
        key = str(running.settings.operator_key_path)
        running.client("cut", "--cpus", "1", "--server", network.url, "--key-file", key)
        bot = running.submit("--", "sh", "-c", LINES.format(1000), policy=NO_COPIES)
        follower = Follower(running, bot, "--job", "0", "--json")
        for least in (20, 100):
            eventually(partial(has_read, follower, least), what="lines")
            network.is_open = False
            eventually(lambda: printed(running) > len(read(follower)) + 40, what="lines unread")
            network.is_open = True
        follower.end()
    assert "".join(read(follower)) == expected(1000)
    assert "".join(read(follower, "stderr")) == expected(1000, "error")


def test_a_page_shows_what_a_job_prints_while_a_command_far_behind_reads_all(
    running: Deployment,
) -> None:
    with relay(running.port) as network:
        key = str(running.settings.operator_key_path)
        running.client("page", "--cpus", "1", "--server", network.url, "--key-file", key)
        gate = running.gate()
        script = f'{LINES.format(200)}while test -e "$0"; do sleep 0.05; done'
        bot = running.submit("--", "sh", "-c", script, str(gate.path), policy=NO_COPIES)
        session = logged_in(running.url, running.settings.operator_key_path.read_text().strip())
        address = f"{running.url}/bots/{bot}/jobs/0?live"
        eventually(lambda: "line 20\n" in session.get(address).text, what="some lines")
        network.is_open = False
        eventually(lambda: printed(running, "page") > 100, what="lines that have not come")
        follower = Follower(running, bot, "--job", "0")
        network.is_open = True
        eventually(lambda: expected(200) in session.get(address).text, what="all lines")
        assert expected(200, "error") in session.get(address).text
        gate.open()
        assert follower.end()[0] == expected(200)


def read(follower: Follower, stream: str = "stdout") -> list[str]:
    """The lines of a stream that have come to who follows."""
    pieces = [json.loads(line) for line in list(follower.lines)]
    text = "".join(piece["content"] for piece in pieces if piece["stream"] == stream)
    return text.splitlines(keepends=True)


def has_read(follower: Follower, least: int) -> bool:
    return len(read(follower)) > least


def printed(running: Deployment, client: str = "cut") -> int:
    """How many lines the job has printed at its client."""
    found = (running.folder / client).glob("*/*/stdout")
    return sum(path.read_bytes().count(b"\n") for path in found)


def test_requests_of_clients_that_nobody_follows_are_as_they_were(running: Deployment) -> None:
    bodies: list[bytes] = []

    def noted(path: str, body: bytes) -> bytes:
        if path == "/rpc":
            bodies.append(body)
        return body

    with relay(running.port) as network:
        network.spoil = noted
        key = str(running.settings.operator_key_path)
        running.client("noted", "--cpus", "1", "--server", network.url, "--key-file", key)
        gate = running.gate()
        bot = running.submit("--", *gate.command()[:-1], policy=NO_COPIES)
        eventually(lambda: running.leases(bot), what="its start")
        before = len(bodies)
        eventually(lambda: len(bodies) > before + 2, what="some requests")
        assert not any(b"follow" in body for body in bodies)
        follower = Follower(running, bot)
        eventually(lambda: b"follow" in bodies[-1], what="the server's wish")
        follower.process.terminate()
        follower.end()
        eventually(lambda: b"follow" not in bodies[-1], what="the end of it")
        eventually(
            lambda: running.rows("SELECT count(*) FROM live_output") == [(0,)], what="its end"
        )
        gate.open()
        running.wait(bot)
