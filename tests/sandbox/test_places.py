"""Walls that stay: what one replica leaves is gone before the next, and no other BOT gets them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
from tests.sandbox.cage import LIMITS, PYTHON
from tests.sandbox.test_walls import Machine, Makes, base, best, machine, youngest_warden  # noqa: F401
from tests.system.deployment import eventually

from gridbot_client.protocol.messages import ReplicaId, Resources
from gridbot_client.walls.levels import Sandbox
from gridbot_client.work.execution import Stopped
from gridbot_client.work.places import PlaceKey, ReplicaPlace, ReplicaPlaces
from gridbot_client.work.processes import Census
from gridbot_client.work.residents import ResidentJob
from gridbot_client.work.runner import ProcessEnd, ReplicaProgram, Runner, Stop
from gridbot_client.work.slots import ReplicaSlot, slot_of

BOT = PlaceKey(1, "a" * 64, True)
OWN = PlaceKey(1, "a" * 64, False)
OTHER = PlaceKey(1, "b" * 64, True)
NAMESAKE = PlaceKey(2, "a" * 64, True)


class House:
    """The places of one client, in which scripts run as replicas."""

    def __init__(self, client: Machine) -> None:
        self.machine = client
        (client.folder / "cells").mkdir()
        self.now = 0.0
        self.places = ReplicaPlaces(
            client.folder / "cells", keeps_cells=True, clock=lambda: self.now
        )
        self.runner = Runner(client.confinement, Census())
        self.seq = 0

    def slot(self) -> ReplicaSlot:
        self.seq += 1
        slot = slot_of(self.machine.folder / "slots", ReplicaId(1, self.seq, 0))
        slot.path.mkdir(mode=0o700)
        slot.reset()
        return slot

    def run(self, script: str, key: PlaceKey = BOT) -> tuple[str, str]:
        """Run a shell's script; why it failed, and what it printed."""
        with self.places.taken(self.slot(), key) as place:
            end = self.end_of(ReplicaProgram(["sh", "-c", script]), place, key)
            return end.reason, place.slot.stdout.read_text() + place.slot.stderr.read_text()

    def end_of(
        self, program: ReplicaProgram, place: ReplicaPlace, key: PlaceKey,
        job: ResidentJob | None = None, limits: Resources = LIMITS, stop: Stop | None = None,
    ) -> ProcessEnd:  # fmt: skip
        return self.runner.run(
            program, place.slot, limits, stop or Stop(), lambda _: None, is_stranger=key[2],
            kept=place.kept, job=job,
        )  # fmt: skip

    def cells(self) -> list[str]:
        return sorted(path.name for path in (self.machine.folder / "cells").iterdir())


@pytest.fixture
def house(machine: Makes, best: Sandbox) -> Iterator[House]:  # noqa: F811
    made = House(machine())
    yield made
    made.places.close()


@pytest.mark.parametrize("key", [BOT, OWN])
def test_replicas_of_a_bot_run_in_one_cell_and_find_nothing_of_each_other(
    house: House, key: PlaceKey
) -> None:
    leave = "echo secret | tee file .hidden tmp/x /tmp/y; mkdir -p a/b; sleep 1000 & echo err >&2"
    # In a pipe, the second program may not have begun when the first one looks.
    look = "pwd; find . /dev/shm; there=$(ls /proc); echo \"$there\" | grep -c '^[0-9]'; cat"
    before = house.run(look, key)
    assert house.run(leave, key) == ("", "secret\nerr\n")
    assert house.run(look, key) == before
    assert house.cells() == ["1"]


def test_another_bot_gets_another_cell_and_so_does_other_trust(house: House) -> None:
    for key in (BOT, OTHER, OWN, NAMESAKE, BOT):
        assert house.run("true", key)[0] == ""
    assert house.cells() == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    "spoil",
    [
        "echo x > /dev/shm/left",
        "rmdir tmp",
        "mv tmp other; mkdir tmp",
        "chmod 755 tmp; chmod 500 .",
        "rm -r tmp; ln -s /usr tmp",
    ],
)
def test_a_cell_that_is_not_as_it_was_serves_no_more(house: House, spoil: str) -> None:
    before = house.run("stat -c '%a %F' . tmp; ls -A /dev/shm tmp/")
    house.run(spoil)
    assert house.run("stat -c '%a %F' . tmp; ls -A /dev/shm tmp/") == before


def test_the_end_of_one_replica_says_nothing_of_the_next(house: House) -> None:
    assert house.run("kill -9 $$")[0] == "signal"
    assert house.run("exit 3")[0] == "exit_nonzero"
    assert house.run("no-such-program")[0] == "exit_nonzero"
    assert house.run("echo fine") == ("", "fine\n")
    hungry = f"exec {PYTHON} -S -c 'x = bytearray(400 << 20)'"
    house.run(hungry)
    assert house.run("echo fine") == ("", "fine\n")


def test_no_replica_changes_what_the_next_one_inherits(house: House) -> None:
    look = f"exec {PYTHON} -S -c '{INHERITED}'"
    before = house.run(look)
    assert house.run(f"exec {PYTHON} -S -c '{SPOIL}'") == ("", "5 refused\n")
    assert house.run(look) == before
    assert house.cells() == ["1"]


INHERITED = """
import fcntl, os, resource
print(os.getpriority(os.PRIO_PROCESS, 1), os.getpriority(os.PRIO_PROCESS, 0))
print(os.sched_getaffinity(1) == os.sched_getaffinity(0), os.sched_getaffinity(0))
print(os.sched_getscheduler(0), [resource.getrlimit(kind) for kind in range(16)])
print(fcntl.fcntl(1, fcntl.F_GETFL), fcntl.fcntl(1, fcntl.F_GETLEASE), os.lseek(1, 0, 1))
"""
SPOIL = """
import fcntl, os, resource
refused = 0
for spoil in (
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 7),
    lambda: os.setpriority(os.PRIO_USER, os.getuid(), 7),
    lambda: os.sched_setaffinity(1, list(os.sched_getaffinity(0))[:1]),
    lambda: os.sched_setscheduler(1, os.SCHED_BATCH, os.sched_param(0)),
    lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (20, 20)),
):
    try:
        spoil()
    except PermissionError:
        refused += 1
print(refused, "refused")
fcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
try:
    fcntl.fcntl(1, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    pass  # not on this file system
"""


def test_a_stopped_replica_takes_its_cell_along(house: House) -> None:
    stop = Stop()
    with pytest.raises(Stopped), house.places.taken(house.slot(), BOT) as place:
        stop.ask()
        program = ReplicaProgram(["sleep", "1000"])
        assert house.end_of(program, place, BOT, stop=stop).reason in ("stopped", "signal")
        raise Stopped
    assert house.cells() == []
    assert house.run("echo next") == ("", "next\n")


def test_what_a_killed_client_left_is_swept(house: House) -> None:
    house.run("true")
    (house.machine.folder / "cells" / "7" / "work" / "tmp").mkdir(parents=True)
    with house.places.taken(house.slot(), OTHER):
        left = ReplicaPlaces(house.machine.folder / "cells", keeps_cells=True)
        left.sweep(Census())
        assert house.cells() == []


def test_cells_whose_keeper_was_killed_are_made_anew(house: House) -> None:
    house.run("true")
    youngest_warden().kill()
    assert house.run("echo again") == ("", "again\n")


def test_outputs_are_moved_to_the_replicas_own_slot(house: House) -> None:
    slot = house.slot()
    with house.places.taken(slot, BOT) as place:
        script = "mkdir -p out; echo content > out/x; echo printed"
        assert house.end_of(ReplicaProgram(["sh", "-c", script]), place, BOT).reason == ""
        place.hand_over(slot, ["out/x", "stdout"])
    assert (slot.work / "out" / "x").read_text() == "content\n"
    assert slot.stdout.read_text() == "printed\n"


def test_cells_end_with_the_client_and_leave_no_folder(house: House) -> None:
    house.run("true")
    house.run("true", OTHER)
    house.places.close()
    assert house.cells() == []
    eventually(lambda: wards() == [])


def wards() -> list[psutil.Process]:
    """First processes of cells."""
    return youngest_warden().children()


# --- programs that stay

PROGRAM = """
import json, os, socket, subprocess, sys, threading, time
channel = socket.socket(fileno=os.dup(0)).makefile("rwb")
for line in channel:
    told = json.loads(line)
    inputs = {name: channel.read(size) for name, size in told["inputs"].items()}
    what = told["arguments"][0]
    if what == "crash":
        os.abort()
    if what == "leave":
        subprocess.Popen(["sleep", "1000.25"])
    if what == "sleep":
        time.sleep(1000)
    if what == "burn":
        until = time.process_time() + 0.4
        while time.process_time() < until:
            pass
    if what == "eat":
        eaten = bytearray(os.urandom(1 << 20)) * 400
        time.sleep(1000)
    if what == "linger":
        threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)]).start()
    if what == "babble":
        channel.write(b"no JSON\\n")
    if what == "climb":
        channel.write(b'{"exit_code": 0, "outputs": {"../x": 1}}\\nx')
    if what == "flood":
        channel.write(b'{"exit_code": 0, "outputs": {"x": 1}}\\n' + bytes(1 << 20))
    print(what, flush=True)
    value = b"%d %s" % (os.getpid(), b"".join(inputs.values()))
    channel.write(json.dumps({"exit_code": 0, "outputs": {"out": len(value)}}).encode())
    channel.write(b"\\n" + value)
    channel.flush()
"""


class Hosted:
    """Jobs for one resident program."""

    def __init__(self, house: House) -> None:
        self.house = house

    def ask(self, what: str, content: bytes = b"", key: PlaceKey = BOT) -> tuple[str, str]:
        """Give it a job; why that failed, and what came out."""
        end, slot = self.ended(what, content, key)
        out = slot.work / "out"
        return end.reason, out.read_text() if out.exists() else ""

    def ended(
        self, what: str, content: bytes = b"", key: PlaceKey = BOT, limits: Resources = LIMITS,
        stop: Stop | None = None,
    ) -> tuple[ProcessEnd, ReplicaSlot]:  # fmt: skip
        """Give it a job; how that ended, and where."""
        slot = self.house.slot()
        with self.house.places.taken(slot, key) as place:
            (slot.work / "in").write_bytes(content)
            if not place.has_program:
                (place.slot.work / "program.py").write_text(PROGRAM)
            program = ReplicaProgram([PYTHON, "-S", "program.py", what])
            job = ResidentJob(3, slot, ("in",), 1 << 20)
            end = self.house.end_of(program, place, key, job, limits, stop)
        return end, slot


@pytest.fixture
def hosted(house: House) -> Hosted:
    return Hosted(house)


@pytest.mark.parametrize("key", [BOT, OWN])
def test_a_program_stays_for_the_jobs_of_its_bot_and_no_others(
    hosted: Hosted, key: PlaceKey
) -> None:
    answers = [hosted.ask("work", b"%d" % number, key) for number in range(3)]
    pids = {text.split()[0] for _, text in answers}
    assert [reason for reason, _ in answers] == [""] * 3
    assert [text.split()[1] for _, text in answers] == ["0", "1", "2"]
    assert len(pids) == 1
    assert hosted.house.cells() == ["1"]
    hosted.ask("work", b"x", OTHER)
    assert hosted.house.cells() == ["2"]  # that of the other BOT has ended


def test_limits_hold_for_each_job(hosted: Hosted) -> None:
    assert hosted.ask("work", b"1")[0] == ""
    short = replace(LIMITS, seconds=0.5)
    assert hosted.ended("sleep", limits=short)[0].reason == "time_limit"
    assert hosted.ask("work", b"2")[0] == ""
    assert hosted.ended("eat")[0].reason == "memory_limit"
    assert hosted.ask("work", b"3")[0] == ""


def test_each_job_is_told_its_own_cpu_time(hosted: Hosted) -> None:
    assert hosted.ended("burn")[0].cpu_seconds >= 0.4
    assert hosted.ended("work")[0].cpu_seconds < 0.4
    assert hosted.ended("crash")[0].cpu_seconds < 0.4


def test_nothing_of_a_program_runs_between_two_jobs(hosted: Hosted) -> None:
    assert hosted.ask("linger")[0] == ""
    eventually(lambda: [program.status() for program in programs()] == [psutil.STATUS_STOPPED])
    assert hosted.ask("work", b"1")[0] == ""


def test_a_job_that_is_stopped_takes_the_program_along(hosted: Hosted) -> None:
    hosted.ask("work", b"1")
    stop = Stop()
    stop.ask()
    assert hosted.ended("sleep", stop=stop)[0].reason in ("stopped", "signal")
    assert hosted.house.cells() == []
    eventually(lambda: wards() == [])


def test_a_program_that_was_killed_while_idle_fails_no_later_job(hosted: Hosted) -> None:
    hosted.ask("work", b"1")
    for program in programs():
        program.kill()
    hosted.ask("work", b"2")  # which the client repeats elsewhere
    assert hosted.ask("work", b"3")[0] == ""


def programs() -> list[psutil.Process]:
    """Resident programs."""
    return [program for ward in wards() for program in ward.children()]


def test_large_contents_pass_both_ways(hosted: Hosted) -> None:
    content = os.urandom(300_000).hex()
    reason, text = hosted.ask("work", content.encode())
    assert (reason, text.split()[1]) == ("", content)


@pytest.mark.parametrize("what", ["crash", "babble", "climb", "flood"])
def test_a_program_that_breaks_or_lies_fails_its_present_job_only(
    hosted: Hosted, what: str
) -> None:
    assert hosted.ask("work", b"1")[0] == ""
    reason, _ = hosted.ask(what)
    assert reason == "signal"
    assert hosted.ask("work", b"2")[1].split()[1] == "2"
    assert not list(hosted.house.machine.folder.glob("slots/*/x"))


def test_what_a_job_leaves_running_ends_with_it(hosted: Hosted) -> None:
    assert hosted.ask("leave")[0] == ""
    eventually(lambda: not sleepers())
    assert hosted.ask("work", b"1")[0] == ""


def sleepers() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.name() == "sleep" and "1000.25" in process.cmdline()
    ]


def test_an_idle_program_ends_after_some_seconds(hosted: Hosted) -> None:
    hosted.ask("work", b"1")
    assert hosted.house.cells() == ["1"]
    hosted.house.now += 1000.0
    eventually(lambda: hosted.house.cells() == [])
    eventually(lambda: wards() == [])


def test_what_it_prints_goes_to_the_job_that_it_runs(hosted: Hosted) -> None:
    house = hosted.house
    for what in ("one", "two"):
        hosted.ask(what)
        path = slot_of(house.machine.folder / "slots", ReplicaId(1, house.seq, 0)).stdout
        assert path.read_text() == f"{what}\n"
