"""What a client does as a pilot, against a real server."""

import os
import signal

from tests.system.deployment import Deployment, eventually
from tests.system.relay import relay

from gridbot_client.protocol.messages import decode_reply


def hows(server: Deployment, bot: int) -> list[tuple[str, str]]:
    query = "SELECT how, reason FROM ended WHERE bot = %s ORDER BY seq, replica"
    return [(how, reason) for how, reason in server.rows(query, bot)]


def test_a_pilot_that_is_ended_gives_back_what_it_ran(running: Deployment) -> None:
    bot = running.submit("--range", "0:1", "--", "sleep", "60")
    running.client("ended", "--cpus", "1", "--pilot", "gb1.0")
    eventually(lambda: running.leases(bot), what="a lease")
    running.client_ends("ended", signal.SIGTERM)
    assert running.leases(bot) == []
    assert hows(running, bot) == [("expired", "client_left")]


def test_a_pilot_that_is_ended_before_it_hears_what_it_was_granted_gives_that_back(
    running: Deployment,
) -> None:
    bot = running.submit("--range", "0:1", "--", "sleep", "60")
    pilots: list[int] = []

    def end_the_pilot(path: str, body: bytes) -> bytes | None:
        if path != "/rpc" or not decode_reply(body).assignments or not pilots:
            return body
        os.kill(pilots.pop(), signal.SIGTERM)
        return None

    with relay(running.port) as network:
        network.spoil = end_the_pilot
        key = str(running.settings.operator_key_path)
        where = ["--server", network.url, "--key-file", key]
        pilots.append(running.client("deaf", "--cpus", "1", "--pilot", "gb5.0", *where))
        running.client_ends("deaf")
    assert not pilots and running.leases(bot) == []
    assert hows(running, bot) == [("expired", "client_left")]


def test_a_pilot_leaves_before_its_walltime_and_tells_what_is_left_of_it(
    running: Deployment,
) -> None:
    policy = "JobRequirements = Host.TimeLeft <= 15;"  # it keeps 20 s for leaving
    bot = running.submit("--range", "0:1", "--", "sleep", "60", policy=policy)
    running.client("walltime", "--cpus", "1", "--pilot", "gb2.0", "--walltime", "35")
    eventually(lambda: running.leases(bot), what="a lease")
    assert running.client_ends("walltime") == 0
    assert hows(running, bot) == [("expired", "client_left")]


def test_a_job_that_uses_no_cpu_is_ended_and_the_pilot_leaves(running: Deployment) -> None:
    bot = running.submit("--range", "0:2", "--attempts", "1", "--", "sleep", "600")
    running.client("low", "--cpus", "1", "--pilot", "gb3.0", "--low-cpu-after", "3")
    assert running.client_ends("low") == 0
    assert hows(running, bot) == [("error", "low_cpu")]


def test_a_node_that_fails_every_job_burns_one_and_then_waits(running: Deployment) -> None:
    bot = running.submit("--range", "0:50", "--", "false")
    running.client("black hole", "--cpus", "8", "--pilot", "gb4.0", "--walltime", "40")
    assert running.client_ends("black hole") == 0
    assert hows(running, bot) == [("error", "exit_nonzero")] and running.leases(bot) == []
