"""Requests for work that wait in the server until there is some."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import psutil
import pytest
from tests.system.bare_client import BareClient
from tests.system.deployment import Deployment, deployment, eventually
from tests.system.waiting_hosts import Waiting, waiting

from gridbot_client.protocol.messages import ReplicaId, WorkRequest
from gridbot_client.storage import Folder
from gridbot_server.buffer.wake_up import WebPipes

POLICY = "Concurrency = 1000;"


@pytest.fixture(scope="module")
def shared() -> Iterator[Deployment]:
    """A server with one web process: what it does to its parked requests is seen."""
    with deployment() as made:
        made.configure(web_workers=1)
        made.start()
        yield made


def test_a_job_reaches_a_host_that_waits_for_one(running: Deployment) -> None:
    with waiting(running, "idle") as (host,):
        assert host.is_silent()
        bot = running.submit("--", "true", policy=POLICY)
        assert [item["id"] for item in host.answer()["assignments"]] == [[bot, 0, 1]]


def test_as_many_hosts_are_answered_as_there_are_jobs(running: Deployment) -> None:
    with waiting(running, *(f"idle {n}" for n in range(6))) as hosts:
        bot = running.submit("--range", "0:2", "--", "true", policy="Concurrency = 1;")
        eventually(lambda: len(running.leases(bot)) == 2, what="two leases")
        # The next round of offers would have answered them, too.
        other = running.submit("--", "true", policy="Concurrency = 1;")
        eventually(lambda: running.leases(other), what="a lease")
        silent = [host for host in hosts if host.is_silent()]
        assert len(silent) == 3


def test_a_host_that_hangs_up_is_given_nothing(running: Deployment) -> None:
    with waiting(running, "gone", "there") as (gone, there):
        gone.wire.close()
        bot = running.submit("--", "true", policy=POLICY)
        assert [item["id"] for item in there.answer()["assignments"]] == [[bot, 0, 1]]
        assert running.rows("SELECT count(*) FROM lease WHERE bot = %s", bot) == [(1,)]


def test_a_host_that_hangs_up_just_when_there_may_be_work_harms_nobody(running: Deployment) -> None:
    (process,) = psutil.Process(running.children()["gunicorn"]).children()
    with waiting(running, "gone", "there") as (gone, there):
        # So that the process finds both in one look at its sockets, the wake-up first.
        os.kill(process.pid, signal.SIGSTOP)
        WebPipes(running.settings.buffer_path).notify()
        gone.wire.close()
        os.kill(process.pid, signal.SIGCONT)
        bot = running.submit("--", "true", policy=POLICY)
        assert [item["id"] for item in there.answer()["assignments"]] == [[bot, 0, 1]]
        assert process.is_running()


def test_a_client_has_one_request_that_waits_its_newest(running: Deployment) -> None:
    with waiting(running, "moved") as (host,):
        newest = Waiting(running, host.client)
        with newest.wire:
            assert host.answer()["assignments"] == []
            assert newest.is_silent()
            bot = running.submit("--", "true", policy=POLICY)
            assert [item["id"] for item in newest.answer()["assignments"]] == [[bot, 0, 1]]


def test_a_client_that_asks_anew_waits_no_more_on_its_other_connection(running: Deployment) -> None:
    with waiting(running, "busy") as (host,):
        assert host.client.ask(0).assignments == ()
        assert host.answer()["assignments"] == []


def test_a_host_with_work_waits_for_more_and_hears_in_time_what_it_should_stop(
    running: Deployment,
) -> None:
    with waiting(running, "partly busy") as (host,):
        first = running.submit("--", "true", policy=POLICY)
        assert [item["id"] for item in host.answer()["assignments"]] == [[first, 0, 1]]
        held = (ReplicaId(first, 0, 1),)

        def told_to_stop() -> object:
            host.ask(50.0, holding=held)
            return host.answer()["abort"]

        assert told_to_stop() == []
        running.run("bot", "cancel", str(first))
        assert eventually(told_to_stop) == [list(held[0])]


def test_a_client_with_an_idle_cpu_waits_for_work_while_it_runs_some(fresh: Deployment) -> None:
    fresh.start()
    fresh.client("two", "--cpus", "2")
    gate = fresh.gate()
    long = fresh.submit("--range", "0:1", "--", *gate.command())
    eventually(lambda: fresh.programs("two"), what="a job that runs")
    saved = Folder(fresh.folder / "two").pending_request
    eventually(
        lambda: (kept := saved()) and kept.holding and kept.wait, what="a request that waits"
    )
    short = fresh.submit("--", "true")
    fresh.wait(short)
    assert fresh.outcomes(long) == {}
    gate.open()
    fresh.wait(long)
    assert [fresh.made(bot) for bot in (long, short)] == [{"first": 1}] * 2


def test_what_does_not_suit_a_host_leaves_it_waiting(running: Deployment) -> None:
    with waiting(running, "small") as (host,):
        running.submit("--cpus", "64", "--", "true")
        bot = running.submit("--", "true", policy=POLICY)
        assert [item["id"] for item in host.answer()["assignments"]] == [[bot, 0, 1]]


def test_waiting_ends_in_time_and_goes_on_with_the_next_request(running: Deployment) -> None:
    host = Waiting(running, running.bare_client("patient"), wait=0.3)
    with host.wire:
        reply = host.answer()
        assert (reply["assignments"], reply["next_request_seconds"]) == ([], 0.2)
        host.ask(50.0)
        eventually(host.is_noted, what="the request")
        bot = running.submit("--", "true", policy=POLICY)
        assert [item["id"] for item in host.answer()["assignments"]] == [[bot, 0, 1]]


def test_a_client_that_does_not_wait_is_answered_at_once(running: Deployment) -> None:
    reply = running.bare_client("hurried").ask()
    assert reply.assignments == ()
    assert reply.next_request_seconds > 0.5


def test_a_copy_of_a_client_is_sent_away_and_does_not_wait(running: Deployment) -> None:
    with waiting(running, "twin") as (host,):
        copy = BareClient(host.client.url, host.client.token)
        made = copy.request()
        reply = copy.send(WorkRequest(made.key, 0, made.host, made.want, wait=50.0))
        assert "another copy of this client" in reply.message
        assert reply.next_request_seconds >= 3600


def test_a_repeated_request_gets_the_job_that_went_to_a_lost_connection(
    running: Deployment,
) -> None:
    with waiting(running, "twice") as (host,):
        bot = running.submit("--", "true", policy=POLICY)
        assert host.answer()["assignments"]
        again = BareClient(host.client.url, host.client.token, host.client.seqno)
        assert [item.id for item in again.send(host.request).assignments] == [(bot, 0, 1)]


def test_a_server_that_stops_lets_waiting_hosts_go(fresh: Deployment) -> None:
    fresh.configure(web_workers=1)
    fresh.start()
    with waiting(fresh, "idle") as (host,):
        stopping = threading.Thread(target=fresh.stop)
        stopping.start()
        assert host.answer()["assignments"] == []
        stopping.join(60)
