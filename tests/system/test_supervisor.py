"""Claims about the supervisor: it restarts, takes over, refuses and stops."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg
import pytest
from click.testing import CliRunner, Result
from tests.system.deployment import eventually, free_port

from gridbot_server.commands.server import server as command
from gridbot_server.settings import Settings
from gridbot_server.supervision.lock_file import child_records, health, supervisor_record
from gridbot_server.supervision.processes import (
    Child,
    ProcessRecord,
    members,
    own_record,
    spawn,
    stop_leftover,
)
from gridbot_server.supervision.supervisor import next_delay

STAND_IN = Path(__file__).with_name("stand_in.py")


class Server:
    """A stand-in server that a test may start several times; nothing of it outlives the test."""

    def __init__(self, data: Path) -> None:
        self.settings = Settings(data=data, bind=f"127.0.0.1:{free_port()}")
        self.settings.save()
        self.started: list[subprocess.Popen[str]] = []

    def launch(self, *children: str, database: bool = False) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable,
                STAND_IN,
                self.settings.data,
                "database" if database else "",
                *children,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def start(self, *children: str, database: bool = False) -> subprocess.Popen[str]:
        process = self.launch(*children, database=database)
        eventually(lambda: process.poll() is not None or self.endpoint_pid() == process.pid)
        assert process.poll() is None
        return process

    def endpoint_pid(self) -> int | None:
        path = self.settings.endpoint_path
        return int(json.loads(path.read_text())["pid"]) if path.exists() else None

    def record(self, name: str) -> ProcessRecord:
        return next(record for record in child_records(self.settings) if record.name == name)

    def command(self, *arguments: str) -> Result:
        return CliRunner().invoke(command, [*arguments, "--data", str(self.settings.data)])

    def close(self) -> None:
        self.command("stop")
        for process in self.started:
            process.communicate(timeout=30)


@pytest.fixture
def server(private_directory: Path) -> Iterator[Server]:
    made = Server(private_directory)
    yield made
    made.close()


def test_a_killed_child_is_replaced(server: Server) -> None:
    server.start("web", "family")
    first = server.record("web")
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: server.record("web").pid != first.pid)
    assert server.record("web").restarts == 1
    eventually(lambda: health(server.settings) == {"jobs": 7})


def test_what_a_killed_child_left_of_its_group_is_killed_too(server: Server) -> None:
    server.start("web", "family")
    first = server.record("family")
    eventually(lambda: len(members(first.pid)) == 3)
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: server.record("family").pid != first.pid)
    assert members(first.pid) == []


def test_stop_leaves_nothing(server: Server) -> None:
    supervisor = server.start("web", "family")
    groups = [record.pid for record in child_records(server.settings)]
    result = server.command("stop")
    assert (result.exit_code, result.output) == (0, "stopped\n")
    assert supervisor.wait(10) == 0
    assert [members(group) for group in groups] == [[], []]
    assert not server.settings.endpoint_path.exists()
    assert list(Path("/dev/shm").glob(f"{server.settings.buffer_path.stem}*")) == []


def test_stop_without_a_server_says_so(server: Server) -> None:
    assert server.command("stop").output == f"no server is running in {server.settings.data}\n"


def test_an_interrupt_stops_it_too(server: Server) -> None:
    supervisor = server.start("web")
    web = server.record("web")
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(10) == 0
    assert not web.is_alive()


def test_a_child_that_ignores_sigterm_is_stopped_by_force(server: Server) -> None:
    server.start("web", "stubborn")
    group = server.record("stubborn").pid
    server.command("stop")
    assert members(group) == []


def test_a_killed_supervisor_leaves_its_children_at_work(server: Server) -> None:
    supervisor = server.start("web")
    supervisor.kill()
    supervisor.wait()
    assert health(server.settings) == {"jobs": 7}


def test_the_next_start_takes_over_what_a_killed_supervisor_left(server: Server) -> None:
    supervisor = server.start("web", "family", "stubborn")
    left = child_records(server.settings)
    supervisor.kill()
    supervisor.wait()
    server.start("web", "family")
    assert [members(record.pid) for record in left] == [[], [], []]
    assert health(server.settings) == {"jobs": 7}


def test_take_over_finds_the_group_of_a_leader_that_died_meanwhile(server: Server) -> None:
    supervisor = server.start("web", "family")
    group = server.record("family").pid
    eventually(lambda: len(members(group)) == 3)
    supervisor.kill()
    supervisor.wait()
    os.kill(group, signal.SIGKILL)
    server.start("web")
    assert members(group) == []


def test_stop_ends_what_a_killed_supervisor_left(server: Server) -> None:
    supervisor = server.start("web", "family")
    left = child_records(server.settings)
    supervisor.kill()
    supervisor.wait()
    assert "left running: family, web" in server.command("stop").output
    assert not any(record.is_alive() for record in left)
    assert not server.settings.buffer_path.exists()


def test_a_second_start_says_who_runs_already(server: Server) -> None:
    supervisor = server.start("web")
    result = server.command("start", "--bind", "127.0.0.1:1")
    assert result.exit_code == 1
    assert f"is already running (pid {supervisor.pid}) at {server.settings.url}" in result.output
    assert Settings.load(server.settings.data) == server.settings


def test_a_child_that_keeps_ending_stops_the_start_and_shows_its_log(server: Server) -> None:
    supervisor = server.launch("web", "broken")
    _, said = supervisor.communicate(timeout=30)
    assert supervisor.returncode == 1
    log = server.settings.log / "broken.log"
    assert f"broken keeps ending; {log} ends:\n  the reason why\n" in said
    assert child_records(server.settings) == []
    assert health(server.settings) is None


def test_a_program_that_is_not_there_is_named(server: Server) -> None:
    _, said = server.launch("web", "missing").communicate(timeout=30)
    assert "/no/such/program" in said


def test_a_taken_address_is_named(server: Server) -> None:
    _, port = server.settings.bind.split(":")
    with socket.create_server(("127.0.0.1", int(port))):
        _, said = server.launch("web").communicate(timeout=30)
    assert said.startswith(f"cannot listen on {server.settings.bind}: address already in use;")


def test_a_start_in_the_background_says_why_it_failed(server: Server) -> None:
    result = server.command("start", "--dsn", "host=/no/such/directory")
    assert result.exit_code == 1
    assert f"did not start; {server.settings.log / 'supervisor.log'} ends:\n" in result.output
    assert "/no/such/directory" in result.output
    assert "Traceback" not in result.output
    assert supervisor_record(server.settings) is None


def test_a_start_that_would_show_keys_to_the_network_is_refused(server: Server) -> None:
    result = server.command("start", "--bind", "0.0.0.0:8765")
    assert result.exit_code == 1
    assert "add --behind-proxy, or bind to 127.0.0.1" in result.output


def test_status_shows_every_process_and_the_counts(server: Server) -> None:
    supervisor = server.start("web", "family")
    result = server.command("status", "--json")
    found = json.loads(result.output)
    assert result.exit_code == 0
    assert [(process["name"], process["state"]) for process in found["processes"]] == [
        ("supervisor", "up"),
        ("web", "up"),
        ("family", "up"),
    ]
    assert found["processes"][0]["pid"] == supervisor.pid
    assert found["health"] == {"jobs": 7}
    assert re.search("  jobs: +7\n", server.command("status").output)


def test_status_of_a_stopped_server_fails(server: Server) -> None:
    result = server.command("status")
    assert (result.exit_code, "no server is running in" in result.output) == (1, True)


def test_status_of_a_killed_server_shows_what_it_left(server: Server) -> None:
    supervisor = server.start("web")
    supervisor.kill()
    supervisor.wait()
    result = server.command("status", "--json")
    assert result.exit_code == 1
    assert [process["name"] for process in json.loads(result.output)["processes"]] == ["web"]


def test_a_killed_database_comes_back_with_its_rows(server: Server) -> None:
    server.start("web", database=True)
    dsn = server.settings.dsn_or_embedded
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    first = server.record("postgresql")
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: server.record("postgresql").pid != first.pid)
    eventually(lambda: answers(dsn))
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_a_database_left_by_a_killed_supervisor_is_taken_over(server: Server) -> None:
    supervisor = server.start("web", database=True)
    first = server.record("postgresql")
    supervisor.kill()
    supervisor.wait()
    server.start("web", database=True)
    assert not first.is_alive()
    assert answers(server.settings.dsn_or_embedded)


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def test_delays_double_up_to_a_minute() -> None:
    delays = [0.0]
    for _ in range(12):
        delays.append(next_delay(delays[-1], up_seconds=1))
    assert delays[1:5] == [0.2, 0.4, 0.8, 1.6]
    assert delays[-2:] == [60, 60]


def test_a_child_that_stayed_up_a_minute_starts_again_at_once() -> None:
    assert next_delay(60, up_seconds=60) == 0.2


def test_a_supervisor_is_not_taken_for_the_next_process_with_its_pid(server: Server) -> None:
    server.start("web")
    lock = server.settings.lock_path
    text = lock.read_text()
    lock.write_text(json.dumps({**json.loads(text), "ticks": 1}))
    assert supervisor_record(server.settings) is None
    lock.write_text(text)


@pytest.mark.parametrize("change", [{"ticks": 1}, {"boot": "another"}])
def test_a_process_that_only_has_the_same_pid_is_left_alone(change: dict[str, object]) -> None:
    with subprocess.Popen(["sleep", "60"], process_group=0) as other:
        ours = ProcessRecord.of(sleeper(Path("/")), other.pid, datetime.now(UTC), 0)
        assert not stop_leftover(replace(ours, **change), ("NO", "MARK"))  # type: ignore[arg-type]
        assert ours.is_alive()
        other.kill()


def test_the_asking_process_is_alive() -> None:
    assert own_record("me", datetime.now(UTC)).is_alive()


def test_a_zombie_is_dead() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        record = ProcessRecord.of(sleeper(Path("/")), process.pid, datetime.now(UTC), 0)
        process.kill()
        eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert not record.is_alive()


def test_a_child_whose_start_could_not_be_recorded_never_runs(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    pids = []

    def fail(pid: int) -> None:
        pids.append(pid)
        raise OSError("disk full")

    child = replace(sleeper(tmp_path), argv=["/bin/touch", str(witness)])
    with pytest.raises(OSError, match="disk full"):
        spawn(child, subprocess.DEVNULL, fail)
    eventually(lambda: not psutil.pid_exists(pids[0]))
    assert not witness.exists()


def sleeper(directory: Path) -> Child:
    return Child(name="sleeper", argv=["/bin/sleep", "60"], env={}, directory=directory)
