"""A volunteer's client from day to day: in the background, as a service, under examination."""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import psutil
import pytest
from tests.system.deployment import Deployment, eventually
from tests.system.relay import relay
from tests.system.volunteers import Volunteer, machine

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in *{refused}*) echo "Failed to connect to bus" >&2; exit 1;; esac
"""


@pytest.fixture
def volunteer(private_directory: Path) -> Iterator[Volunteer]:
    with machine(private_directory / "home") as made:
        yield made


def join(volunteer: Volunteer, server: Deployment) -> None:
    volunteer.call("join", server.url, "--key", server.operator_key)


def test_a_client_works_in_the_background_until_it_is_stopped(
    running: Deployment, volunteer: Volunteer
) -> None:
    join(volunteer, running)
    assert "running as process" in volunteer.call("start", "--cpus", "1")
    assert volunteer.bad() == {}
    running.wait(running.submit("--range", "0:2", "--", "true"), 120)
    assert "it runs already, as process" in volunteer.call("start", code=1)
    process = int(json.loads(volunteer.call("status", "--json"))["process"])
    assert "stopped" in volunteer.call("stop")
    eventually(lambda: not psutil.pid_exists(process), what="its end")
    assert "it was not running" in volunteer.call("stop")
    assert "the client is not running" in volunteer.call("status", code=3)
    assert volunteer.bad() == {"client": "not running; gridbot client start"}


def test_a_client_that_does_not_start_says_why(volunteer: Volunteer) -> None:
    assert "No such option '--cpuss'" in volunteer.call("start", "--cpuss", "1", code=2)


def test_the_doctor_names_what_is_missing_and_the_cure(
    running: Deployment, volunteer: Volunteer
) -> None:
    assert volunteer.bad() == {
        "server": "none is known; to join one: gridbot client join URL --key KEY",
        "client": "not running; gridbot client start",
    }
    join(volunteer, running)
    volunteer.call("pause")
    volunteer.call("start", "--requirements", "false")
    obstacle = "the machine's own policy keeps it from work"
    eventually(lambda: obstacle in volunteer.bad().get("policy", ""), 120, "the obstacle")
    assert volunteer.bad()["client"] == "paused; gridbot client resume"
    text = volunteer.call("doctor", code=1)
    assert "BAD client: paused; gridbot client resume" in text.splitlines()
    assert f"ok  server: {running.url}" in text.splitlines()


def test_the_doctor_says_that_the_server_refuses_the_client(
    running: Deployment, volunteer: Volunteer
) -> None:
    join(volunteer, running)
    ((host,),) = running.rows("SELECT host FROM client ORDER BY id DESC LIMIT 1")
    running.run("host", "ban", str(host), "--why", "it mines coins")
    assert "this machine is banned: it mines coins" in volunteer.bad()["joined"]


def test_a_newer_release_at_the_server_is_told_and_installed_by_nobody_else(
    running: Deployment, volunteer: Volunteer
) -> None:
    own = version("gridbot")
    newer = "9" + own[1:]

    def later(_: str, body: bytes) -> bytes:
        return body.replace(f'"release":"{own}"'.encode(), f'"release":"{newer}"'.encode())

    with relay(running.port) as server:
        volunteer.call("join", server.url, "--key", running.operator_key)
        assert "to update" not in volunteer.call("status", code=3)
        server.spoil = later
        advice = f"GridBot {own}: the server runs GridBot {newer}; to update, when it suits you:"
        assert advice in volunteer.call("status", code=3)
        (told,) = (
            line for line in volunteer.call("doctor", code=1).splitlines() if "GridBot" in line
        )
        assert told.startswith(f"ok  GridBot: {own}; the server runs GridBot {newer}")


class LateServer(BaseHTTPRequestHandler):
    """Says that it is yesterday."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The time for the header `Date`."""
        return "Sat, 21 Nov 2020 12:00:00 GMT"

    def do_GET(self) -> None:
        """Answer as a healthy server."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_doctor_compares_the_clock_with_the_servers(volunteer: Volunteer) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), LateServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        volunteer.environment |= {"GRIDBOT_SERVER": url, "GRIDBOT_KEY": "gb_join_x"}
        found = volunteer.bad()["clock"]
        server.shutdown()
    assert "s ahead of the server's; set it: timedatectl set-ntp true" in found


def test_a_service_runs_the_client_with_its_options(
    running: Deployment, volunteer: Volunteer, tmp_path: Path
) -> None:
    calls = systemd(volunteer, tmp_path)
    assert "not joined yet" in volunteer.call("install", "--user", code=3)
    join(volunteer, running)
    volunteer.call("install", "--user", "--cpus", "1", "--requirements", 'Me.Hint != "50%"')
    assert calls() == [
        "--user daemon-reload",
        "--user enable gridbot-client.service",
        "--user restart gridbot-client.service",
    ]
    unit = Path(volunteer.environment["XDG_CONFIG_HOME"], "systemd/user/gridbot-client.service")
    told = configparser.RawConfigParser()
    told.read(unit)
    assert told["Service"]["Delegate"] == "yes"
    # As systemd reads it: quoted words, in which %% stands for a per cent sign.
    argv = [word.replace("%%", "%") for word in shlex.split(told["Service"]["ExecStart"])]
    assert argv[-2:] == ["--requirements", 'Me.Hint != "50%"']
    with subprocess.Popen(argv[:-2], env=volunteer.environment):
        running.wait(running.submit("--", "true"), 120)
        volunteer.call("stop")
    assert "removed" in volunteer.call("uninstall", "--user")
    assert not unit.exists()
    assert "there is no such service" in volunteer.call("uninstall", "--user")


def test_without_systemd_the_client_can_run_in_the_background(
    running: Deployment, volunteer: Volunteer, tmp_path: Path
) -> None:
    join(volunteer, running)
    path = volunteer.environment["PATH"]
    volunteer.environment["PATH"] = str(tmp_path / "nothing")
    said = volunteer.call("install", "--user", code=1)
    assert "no systemd; to run the client in the background: gridbot client start" in said
    assert not Path(volunteer.environment["XDG_CONFIG_HOME"]).exists()  # nothing is left of it
    volunteer.environment["PATH"] = path
    systemd(volunteer, tmp_path, refused="daemon-reload")
    said = volunteer.call("install", "--user", code=1)
    assert "Failed to connect to bus; without systemd: gridbot client start" in said
    assert not list(Path(volunteer.environment["XDG_CONFIG_HOME"]).rglob("*.service"))


def test_a_client_in_the_background_makes_room_for_the_service(
    running: Deployment, volunteer: Volunteer, tmp_path: Path
) -> None:
    calls = systemd(volunteer, tmp_path)
    join(volunteer, running)
    volunteer.call("start", "--cpus", "1")
    volunteer.call("install", "--user")
    assert calls()[-1] == "--user restart gridbot-client.service"
    assert "the client is not running" in volunteer.call("status", code=3)


def test_a_client_that_leaves_gives_its_jobs_back_and_removes_what_it_had(
    running: Deployment, volunteer: Volunteer, private_directory: Path, tmp_path: Path
) -> None:
    calls = systemd(volunteer, tmp_path)
    data = private_directory / "lent"
    volunteer.call("join", running.url, "--key", running.operator_key, "--data", str(data))
    volunteer.call("install", "--user", "--data", str(data))
    gate = running.gate()
    volunteer.call("start", "--cpus", "1", "--data", str(data), "--allow-read", str(gate.path))
    bot = running.submit("--range", "0:1", "--", *gate.command())
    eventually(lambda: running.leases(bot), what="the job")
    (data / "mine").write_text("not the client's")
    assert "took back 1 unfinished" in volunteer.call("leave", "--yes", "--data", str(data))
    assert calls()[-2:] == [
        "--user disable --now gridbot-client.service",
        "--user daemon-reload",
    ]
    assert [path.name for path in data.iterdir()] == ["mine"]
    assert running.leases(bot) == []
    assert "no client that has joined" in volunteer.call("leave", "--data", str(data), code=3)
    running.run("bot", "cancel", str(bot))


def test_a_client_leaves_a_server_that_does_not_answer(
    running: Deployment, volunteer: Volunteer, private_directory: Path
) -> None:
    data = private_directory / "lent"
    with relay(running.port) as network:
        volunteer.call("join", network.url, "--key", running.operator_key, "--data", str(data))
    assert "could not be told" in volunteer.call("leave", "--yes", "--data", str(data))
    assert not data.exists()


def systemd(
    volunteer: Volunteer, folder: Path, refused: str = "nothing"
) -> Callable[[], list[str]]:
    """Put a systemctl on the PATH that only writes down what it is told."""
    programs, log = folder / "programs", folder / "calls"
    programs.mkdir(exist_ok=True)
    log.touch()
    (programs / "systemctl").write_text(SYSTEMCTL.format(calls=log, refused=refused))
    (programs / "systemctl").chmod(0o755)
    volunteer.environment["PATH"] = f"{programs}:{volunteer.environment['PATH']}"
    return lambda: log.read_text().splitlines()
