"""The load on the host request path: what it says, what it counts, how figures are made of it."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from scripts.benchmarks import storm
from scripts.benchmarks.harness import windows
from scripts.benchmarks.harness.host_requests import COLUMNS
from scripts.benchmarks.harness.load.closed_loop import (
    Course,
    LoadFailed,
    Talk,
    Tally,
    figures,
    percentile,
)
from scripts.benchmarks.harness.load.generator import Echo, Load, Plan
from scripts.benchmarks.harness.usage import Usage, by_purpose
from scripts.benchmarks.harness.windows import Window, median_row, ratios

from gridbot_client.protocol.messages import (
    Assignment,
    ReplicaId,
    SignedManifest,
    WorkReply,
    WorkRequest,
    decode_request,
    encode_reply,
    manifest_id,
)

PLAN = Plan(port=1, connections=1, jobs_per_rpc=5, seconds=1.0, requests=10)
MANIFEST = '{"owner":"ann"}'
# What programs that read the figures rely on.
FORM = {"jobs_per_rpc", "concurrency", "rpc_per_s", "jobs_per_s", "p50_ms", "p99_ms"}


def body_of(request: bytes) -> bytes:
    """The body, of which the head must tell the length."""
    head, _, body = request.partition(b"\r\n\r\n")
    told = re.search(rb"Content-Length: (\d+)", head)
    assert told
    assert int(told[1]) == len(body)
    return body


def said(talk: Talk) -> WorkRequest:
    return decode_request(body_of(talk.ask()))


def reply(*names: ReplicaId) -> bytes:
    """A reply with these replicas, and the manifest that goes with them."""
    name = manifest_id(MANIFEST)
    assignments = tuple(Assignment(item, name, {"i": item.seq}, 60.0) for item in names)
    manifests = {name: SignedManifest(MANIFEST, b"signed")} if names else {}
    return encode_reply(WorkReply(1, 1.0, assignments=assignments, manifests=manifests))


# ------------------------------------------------------------------------------ what it says


def test_a_host_of_the_load_asks_as_a_client_does() -> None:
    request = said(Load().talk(PLAN, 0))

    assert (request.seqno, request.want, request.reports) == (1, 5, ())
    assert request.host["NumCpus"] == 16


def test_a_host_of_the_load_has_the_token_that_the_plan_gives_it() -> None:
    plan = replace(PLAN, connections=2, tokens=("first", "second"))

    assert b"\r\nAuthorization: Bearer second\r\n" in Load().talk(plan, 1).ask()


def test_what_a_host_got_is_reported_as_a_success_in_its_next_request() -> None:
    talk = Load().talk(PLAN, 0)
    names = (ReplicaId(3, 7, 1), ReplicaId(3, 8, 2))
    first = said(talk)

    assert talk.hear(reply(*names)) == 2
    second = said(talk)

    assert tuple(report.id for report in second.reports) == names
    assert {report.how for report in second.reports} == {"success"}
    assert second.manifests == (manifest_id(MANIFEST),)
    assert (second.seqno, second.key != first.key) == (2, True)


def test_what_was_reported_is_not_reported_again() -> None:
    talk = Load().talk(PLAN, 0)
    said(talk)
    talk.hear(reply(ReplicaId(3, 7, 1)))
    said(talk)
    talk.hear(reply())

    assert said(talk).reports == ()


def test_hosts_keep_their_jobs_from_one_plan_to_the_next() -> None:
    load = Load()
    talk = load.talk(PLAN, 0)
    said(talk)
    talk.hear(reply(ReplicaId(3, 7, 1)))

    again = said(load.talk(replace(PLAN, jobs_per_rpc=1), 0))

    assert [report.id.seq for report in again.reports] == [7]
    assert (again.want, again.seqno) == (1, 2)


def test_hosts_that_share_a_connection_take_turns() -> None:
    talk = Load().talk(replace(PLAN, hosts=2), 0)
    said(talk)
    talk.hear(reply(ReplicaId(3, 7, 1)))

    other, first = said(talk), said(talk)

    assert (len(other.reports), len(first.reports)) == (0, 1)


@pytest.mark.parametrize(("connections", "hosts"), [(1, 0), (16, 0), (16, 100), (64, 2000)])
def test_every_host_uses_one_connection(connections: int, hosts: int) -> None:
    plan = replace(PLAN, connections=connections, hosts=hosts)
    found = [host for number in range(connections) for host in plan.hosts_of(number)]

    assert sorted(found) == list(range(max(hosts, connections)))


def test_the_floor_is_asked_with_a_body_of_the_usual_size() -> None:
    request = decode_request(body_of(Echo(PLAN).ask()))

    assert len(request.reports) == 5


# --------------------------------------------------------------------------------- the wire


def serve(listening: socket.socket, answers: list[bytes]) -> None:
    """Answer each request of one connection with the next of `answers`, in two pieces."""
    conn, _ = listening.accept()
    with conn:
        for answer in answers:
            conn.recv(1 << 20)
            conn.sendall(answer[:40])
            conn.sendall(answer[40:])


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def play(listening: socket.socket, answers: list[bytes], requests: int) -> Tally:
    server = threading.Thread(target=serve, args=(listening, answers))
    server.start()
    plan = replace(PLAN, port=listening.getsockname()[1])
    (line,) = Load().lines(plan)
    try:
        with closing(line.socket):
            return Course([line], requests, seconds=60.0).run()
    finally:
        server.join()


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_course_counts_requests_jobs_and_empty_hands(listening: socket.socket) -> None:
    answers = [http(reply(ReplicaId(1, 0, 1))), http(reply()), http(reply(ReplicaId(1, 1, 1)))]

    tally = play(listening, answers, requests=3)

    assert (len(tally.delays), tally.jobs, tally.empty) == (3, 2, 1)


def test_a_refusal_ends_the_measurement_and_is_told(listening: socket.socket) -> None:
    with pytest.raises(LoadFailed, match=r"503 Busy.*: b'come back'"):
        play(listening, [http(b"come back", "503 Busy")], requests=3)


def test_a_server_that_hangs_up_is_no_answer(listening: socket.socket) -> None:
    with pytest.raises(LoadFailed, match="hung up"):
        play(listening, [http(reply())[:30]], requests=1)


def test_no_request_is_sent_when_time_is_over(listening: socket.socket) -> None:
    server = threading.Thread(target=serve, args=(listening, []))
    server.start()
    (line,) = Load().lines(replace(PLAN, port=listening.getsockname()[1]))
    with closing(line.socket):
        tally = Course([line], requests=3, seconds=-1.0).run()
    server.join()

    assert tally.delays == []


# ------------------------------------------------------------------------------ the figures


def test_percentiles_are_values_that_were_seen() -> None:
    hundred = [float(value) for value in range(100, 0, -1)]

    assert [percentile(hundred, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.01) == 7.0


def test_a_tally_is_told_in_milliseconds() -> None:
    told = figures(Tally(jobs=9, empty=1, delays=[0.1, 0.2, 0.4]), 2.0, 0.5)

    assert (told["requests"], told["jobs"], told["empty"]) == (3, 9, 1)
    assert (told["p50_ms"], told["p99_ms"]) == (200.0, 400.0)


def usage(web: float, database: float, busy: float, at: float) -> Usage:
    groups = {"gunicorn": web, "postgresql": database, "feeder": 0.0, "daemons": 0.1}
    return Usage(groups, {"upkeep": database}, busy, at)


def window(requests: int = 1000) -> Window:
    """A second in which 1.5 of two cores were busy, 1.35 of them for us."""
    used = usage(1.5, 1.25, 11.5, 21.0).since(usage(0.5, 1.0, 10.0, 20.0))
    return Window(PLAN, 0.0, requests, 5 * requests, 0, 1.0, 2.0, 3.0, 0.1, used)


def test_cpu_time_is_told_per_request_and_process() -> None:
    row = window().row(cores=2)

    assert row["cpu_us_per_rpc"]["gunicorn"] == pytest.approx(1000)
    assert row["cpu_us_per_rpc"]["load"] == pytest.approx(100)
    assert row["postgresql_us_per_rpc"] == {"upkeep": pytest.approx(250)}


def test_the_cost_of_a_request_leaves_out_the_load_and_the_cycles() -> None:
    assert window().row(cores=2)["server_us_per_rpc"] == pytest.approx(1250)


def test_shares_tell_what_we_got_of_the_machine_and_what_others_took() -> None:
    row = window().row(cores=2)

    assert row["machine_share"] == pytest.approx(1.35 / 2)
    assert row["others_share"] == pytest.approx((1.5 - 1.35) / 2)


def test_rows_have_the_form_that_was_agreed_and_are_json() -> None:
    row = json.loads(json.dumps(median_row([window().row(), window(500).row()])))

    assert row.keys() >= FORM
    assert row["cpu_us_per_rpc"].keys() == {"gunicorn", "postgresql", "feeder", "daemons", "load"}
    assert all(isinstance(row[name], int | float) for name in FORM)


def test_every_figure_is_the_median_of_the_rounds_beside_their_spread() -> None:
    rows = [{**window(n).row(), "queued": 10_000} for n in (500, 1000, 4000)]

    row = median_row(rows)

    assert (row["rpc_per_s"], row["spread"]["rpc_per_s"]) == (1000.0, [500.0, 4000.0])
    assert row["cpu_us_per_rpc"]["gunicorn"] == pytest.approx(1000)
    assert (row["queued"], row["rounds"]) == (10_000, 3)


def test_ratios_compare_what_was_measured_in_the_same_round() -> None:
    noisy = [{"cost": 100.0}, {"cost": 900.0}, {"cost": 100.0}]
    doubled = [{"cost": 200.0}, {"cost": 1800.0}, {"cost": 150.0}]

    assert ratios(doubled, noisy, "cost") == {"median": 2.0, "least": 1.5, "most": 2.0}


def test_postgresqls_time_goes_to_those_whom_it_served() -> None:
    names = {1: "gridbot-web-17", 2: "gridbot-feeder", 3: "gridbot-transitioner", 4: "", 5: "bench"}
    spent = dict.fromkeys((1, 2, 3, 4, 5, 6), 1.0)

    found = by_purpose(spent, names)

    assert found == {"host requests": 1.0, "feeder": 1.0, "daemons": 1.0, "upkeep": 3.0}


def test_the_columns_name_figures_that_rows_have() -> None:
    row = {**window().row(), "lag_seconds": {"p99": 1.0}}
    own = {path[0] for path in COLUMNS.values()} & row.keys()

    assert own >= FORM | {"cpu_us_per_rpc", windows.SPREAD[-1]}


# ---------------------------------------------------------------------------------- the storm

STORM = storm.Storm(hosts=2000, outage_seconds=600, per_second=1000, poll_seconds=600)


def play_storm(**changes: float) -> dict[str, float]:
    return storm.play(replace(STORM, **changes))  # type: ignore[arg-type]


def test_a_storm_is_the_same_each_time() -> None:
    assert play_storm() == play_storm()


def test_hosts_that_backed_off_for_long_come_back_spread_over_the_longest_wait() -> None:
    row = play_storm(outage_seconds=86_400)

    assert row["peak_per_s"] < 20
    assert 1800 < row["drain_seconds"] <= 3700


def test_after_a_short_outage_hosts_come_back_soon() -> None:
    assert play_storm(outage_seconds=5)["drain_seconds"] < 700


def test_a_server_that_is_overrun_refuses_and_still_answers_everybody() -> None:
    row = play_storm(per_second=2, queue=10)

    assert row["refused"] > 0
    assert row["drain_seconds"] >= STORM.hosts / 2 - 1


def test_a_server_that_can_take_all_refuses_nobody() -> None:
    assert play_storm(per_second=1e6)["refused"] == 0
