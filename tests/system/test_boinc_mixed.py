"""Jobs of every kind on a stock client, through a bad network and a restart of the server.

A stock client takes its time, so all of it happens at once, and each test looks at one side of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts.benchmarks.harness.database import believe_all_hosts
from tests.fakes.failing_gateway import FailingGateway
from tests.system.deployment import NO_COPIES, Deployment, Gate, deployment, eventually
from tests.system.relay import serving
from tests.system.stock_client import StockClient, needs_boinc, stock_client

pytestmark = needs_boinc

JOBS = 20
# $2 is a gate; jobs 18 and 19 end when it opens.
SCRIPT = r"""
line() { i=0; while [ $i -lt "$2" ]; do echo "line $i of job $1"; i=$((i + 1)); done; }
# As BOINC's library does it; there is no such file under a native client.
say_to_the_project() {
    [ -f ../init_data.xml ] || return 0
    project=$(sed -n 's:.*<project_dir>\(.*\)</project_dir>.*:\1:p' ../init_data.xml)
    name=$(sed -n 's:.*<result_name>\(.*\)</result_name>.*:\1:p' ../init_data.xml)
    file=$project/trickle_up_${name}_$(date +%s).xml
    echo "<variety>progress</variety><text>$1</text>" > "$file"
}
line "$1" 3 > result
case $1 in
    5) say_to_the_project "half of job $1" ;;
    6 | 7) line "$1" 1 > extra.a ;;
    8) line "$1" 2 > extra.a; line "$1" 1 > extra.b ;;
    9) exit 1 ;;
    10) exit 7 ;;
    11) exit 255 ;;
    12) kill -s SEGV $$ ;;
    13) kill -s ABRT $$ ;;
    14) kill -s KILL $$ ;;
    15) rm result ;;
    16) head -c 1500000 /dev/zero > extra.large ;;
    17) line "$1" 4000 > result ;;
    18 | 19) while test -e "$2"; do sleep 0.05; done ;;
esac
"""
ENDS = {
    **{seq: ("success", "", 0) for seq in range(JOBS)},
    9: ("error", "exit_nonzero", 1),
    10: ("error", "exit_nonzero", 7),
    11: ("error", "exit_nonzero", 255),
    12: ("error", "signal", -11),
    13: ("error", "signal", -6),
    14: ("error", "signal", -9),
    15: ("error", "missing_output", 0),
    16: ("error", "output_too_big", 0),
}
GOOD = {seq for seq, (how, *_) in ENDS.items() if how == "success"}
STOCK_ONLY = f"JobRequirements = Host.IsBoinc; {NO_COPIES}"
STARTS = 2 * JOBS + 1  # of jobs
WAITING = 5  # of them: two of each BOT, and one that never ends
STOCKS = 3
ACKED = "got ack for task"
IN_VAIN = "Temporarily failed upload"
# So many bytes of the one large upload reach the server before the gateway breaks it.
PART = 30_000


def lines(seq: int, count: int = 3) -> bytes:
    return b"".join(b"line %d of job %d\n" % (number, seq) for number in range(count))


RESULTS = {f"{seq}/result": lines(seq) for seq in GOOD} | {
    "6/extra.a": lines(6, 1),
    "7/extra.a": lines(7, 1),
    "8/extra.a": lines(8, 2),
    "8/extra.b": lines(8, 1),
    "17/result": lines(17, 4000),
}


@dataclass(frozen=True)
class Story:
    """What happened."""

    server: Deployment
    gateway: FailingGateway
    stocks: Sequence[StockClient]
    mixed: int  # the BOT that only stock clients run
    pair: int  # the same one with a quorum, which a native client runs as well
    doomed: int  # a job that never ends, cancelled

    @property
    def log(self) -> str:
        return "".join(stock.log for stock in self.stocks)

    def tasks(self) -> dict[str, bool]:
        return {name: runs for stock in self.stocks for name, runs in stock.tasks().items()}


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with deployment() as server, serving(FailingGateway(server.port, PART)) as gateway:
        server.start("--sign-on-submit", "--url", gateway.url)
        server.run("user", "add", "volunteer")
        with server.database() as conn:
            believe_all_hosts(conn)
        made = server.run("token", "create", "volunteer", "--scope", "join", "--json")
        key, gate, endless = json.loads(made)["token"], server.gate(), server.gate().command()
        mixed = submit(server, gate, STOCK_ONLY, "--attempts", "1")
        pair = submit(server, gate, NO_COPIES, "--attempts", "2", "--quorum", "2")
        doomed = server.submit("--range", "0:1", "--time", "10m", "--", *endless, policy=STOCK_ONLY)
        # A stock client takes a second for the end of each job, so the jobs go to several.
        with ExitStack() as clients:
            stocks = [
                clients.enter_context(stock_client(server, key, STARTS // STOCKS + 1))
                for _ in range(STOCKS)
            ]
            told = Story(server, gateway, stocks, mixed, pair, doomed)
            happen(told, gate)
            yield told


def submit(server: Deployment, gate: Gate, policy: str, *options: str) -> int:
    script = server.file("job.sh", SCRIPT)
    outputs = ("--output", "result", "--output", "extra*", "--max-output", "1")
    jobs = ("--range", f"0:{JOBS}", "--input", f"{script}=job.sh", "--time", "10m")
    command = ("sh", "job.sh", "{}", str(gate.path))
    return server.submit(*jobs, *outputs, *options, "--", *command, policy=policy)


def happen(story: Story, gate: Gate) -> None:
    server, gateway = story.server, story.gateway
    eventually(lambda: story.log.count("Starting task") >= STARTS, what="the start of all jobs")
    eventually(lambda: sum(story.tasks().values()) == WAITING, what="the end of all other jobs")
    eventually(lambda: any(item.offset for item in gateway.since_failure()), what="the resumption")
    server.stop()
    failed = story.log.count(IN_VAIN)
    gate.open()
    eventually(lambda: story.log.count(IN_VAIN) > failed, what="an upload in vain")
    server.start("--sign-on-submit", "--url", gateway.url)
    server.run("bot", "cancel", str(story.doomed))
    server.client("native", "--cpus", "2")
    server.wait(story.mixed)
    server.wait(story.pair)
    eventually(lambda: not story.tasks(), what="that the clients hold nothing")


def logged(story: Story, words: str, bot: int) -> list[int]:
    """The jobs of the BOT of which the clients' logs say that."""
    return sorted(int(seq) for seq in re.findall(rf"{words} gb_{bot}_(\d+)_", story.log))


def test_each_of_20_jobs_ends_as_it_should(story: Story) -> None:
    query = "SELECT seq, how, reason, exit_code FROM ended WHERE bot = %s"
    rows = story.server.rows(query, story.mixed)
    assert len(rows) == JOBS
    assert {seq: tuple(end) for seq, *end in rows} == ENDS


def test_the_scientist_is_told_why_a_job_failed(story: Story) -> None:
    with story.server.session() as session:
        results = {result.seq: result for result in session.bot(story.mixed).results()}
    assert {seq for seq, result in results.items() if result.state == "done"} == GOOD
    said = {seq: result.reason.rpartition(": ")[2] for seq, result in results.items()}
    assert said == {seq: reason for seq, (_, reason, _) in ENDS.items()}
    logs = story.server.run("bot", "logs", str(story.mixed), "--failed")
    assert "output_too_big" in logs
    shown = story.server.run("bot", "show", str(story.mixed))
    assert f"{JOBS} of {JOBS} jobs, {JOBS - len(GOOD)} failed" in shown


@pytest.mark.parametrize("bot", ["mixed", "pair"])
def test_all_outputs_arrive_byte_for_byte(story: Story, bot: str, tmp_path: Path) -> None:
    story.server.run("bot", "results", str(getattr(story, bot)), "--to", str(tmp_path))
    assert {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for pattern in ("*/result", "*/extra*")
        for path in tmp_path.glob(pattern)
    } == RESULTS


def test_a_broken_upload_goes_on_where_the_server_stopped(story: Story) -> None:
    failed, asked, resumed = story.gateway.since_failure()
    assert (failed.offset, failed.size) == (0, PART)
    assert (asked.offset, asked.arrived) == (None, PART)
    assert resumed.offset == PART
    assert "<status>0</status>" in resumed.answer


def test_a_restart_of_the_server_loses_no_work(story: Story) -> None:
    assert story.server.made(story.mixed) == {"first": JOBS}
    assert logged(story, "[sS]tarting task", story.mixed) == list(range(JOBS))


def test_point_17_all_is_reported_and_acknowledged(story: Story) -> None:
    assert logged(story, ACKED, story.mixed) == list(range(JOBS))
    assert set(logged(story, ACKED, story.pair)) == set(range(JOBS))
    assert story.server.leases(story.mixed) == story.server.leases(story.pair) == []


def test_work_whose_reply_was_lost_is_sent_again_to_the_same_client(story: Story) -> None:
    lost = re.findall(r"<result>\n<name>([^<]+)", story.gateway.lost.decode())
    assert len(lost) > 1
    assert set(lost) <= set(re.findall(rf"{ACKED} (\S+)", story.log))


def test_point_16_a_running_job_is_aborted_and_reported(story: Story) -> None:
    assert set(logged(story, ACKED, story.doomed)) == {0}
    assert story.server.outcomes(story.doomed) == {}


def test_a_stock_and_a_native_client_agree(story: Story) -> None:
    query = """SELECT seq, how, reason, exit_code, valid, b.client IS NULL AS is_native
                 FROM ended LEFT JOIN boinc_client b USING (client)
                WHERE bot = %s AND how <> 'cancelled'"""
    rows = story.server.rows(query, story.pair)
    assert {(seq, (how, reason, code)) for seq, how, reason, code, *_ in rows} == set(ENDS.items())
    answers = sorted((seq, is_native) for seq, how, *_, valid, is_native in rows if valid)
    assert answers == [(seq, is_native) for seq in sorted(GOOD) for is_native in (False, True)]
    canonical = story.server.outcomes(story.pair)
    assert {seq for seq, replica in canonical.items() if replica is not None} == GOOD


def test_what_a_job_tells_its_project_is_kept_with_its_logs(story: Story) -> None:
    assert not list(story.server.folder.glob("boinc-*/projects/*/trickle_up_*"))
    with story.server.session() as session:
        said = {entry["seq"]: entry["said"] for entry in session.bot(story.mixed).logs()}
    assert said.pop(5) == "<variety>progress</variety><text>half of job 5</text>"
    assert set(said.values()) == {None}
