"""What the owner's tasks see, what options change, and what is left when something is killed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from tests.sandbox.cage import LIMITS, PYTHON, Cage, highest
from tests.sandbox.zoo import FILES, OUTPUTS, PROCESSES, Beast
from tests.system.deployment import eventually

from gridbot_client.protocol.messages import ReplicaId
from gridbot_client.walls import cgroups
from gridbot_client.walls.cells import CGROUP, NAMESPACES
from gridbot_client.walls.levels import Sandbox
from gridbot_client.walls.views import around
from gridbot_client.work import trees
from gridbot_client.work.confinement import Plain, WallOptions, raised
from gridbot_client.work.processes import Census
from gridbot_client.work.runner import ProcessEnd, ReplicaProgram, Runner, Stop
from gridbot_client.work.slots import ReplicaSlot, slot_of

# Root's task may read what root may.
OF_THE_OWNER = {"read /etc/shadow"}


@pytest.fixture(scope="module")
def best() -> Sandbox:
    found = highest()
    if found.level < NAMESPACES:
        assert "CI" not in os.environ, found.obstacle
        pytest.skip(found.obstacle)
    return found


@pytest.fixture(scope="module")
def owners(best: Sandbox) -> Iterator[Cage]:
    made = Cage(best.level, is_stranger=False)
    yield made
    made.close()


@pytest.mark.parametrize(
    "beast",
    [beast for beast in (*FILES, *OUTPUTS, *PROCESSES) if beast.name not in OF_THE_OWNER],
    ids=lambda beast: f"{beast.kind}: {beast.name}",
)
def test_a_hostile_task_of_the_owner_does_no_harm_either(beast: Beast, owners: Cage) -> None:
    assert owners.let_in(beast).harm == []


class Machine:
    """A client's folder with a warden and one slot, below `base`."""

    def __init__(self, base: Path, **options: object) -> None:
        self.folder = base / "client"
        (self.folder / "slots").mkdir(parents=True)
        (self.folder / "client.json").write_text("token")
        (base / "data").write_text("data")
        self.base = base
        found = WallOptions(hidden=(str(self.folder),), **options)  # type: ignore[arg-type]
        self._stack = ExitStack()
        self.confinement, self.sandbox = self._stack.enter_context(raised(self.folder, found))
        self.slot: ReplicaSlot = slot_of(self.folder / "slots", ReplicaId(1, 1, 1))

    def close(self) -> None:
        """End all of it."""
        self._stack.close()

    def run(self, script: str, *, is_stranger: bool) -> tuple[ProcessEnd, str]:
        """Run a shell's script in the slot; how it ended, and what it printed."""
        self.slot.path.mkdir(exist_ok=True)
        self.slot.reset()
        end = Runner(self.confinement, Census()).run(
            ReplicaProgram(["sh", "-c", script, str(self.base)]), self.slot, LIMITS, Stop(),
            lambda _: None, is_stranger=is_stranger,
        )  # fmt: skip
        return end, self.slot.stdout.read_text() if self.slot.stdout.exists() else end.detail


Makes = Callable[..., Machine]


@pytest.fixture
def base() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="gridbot-test-"))
    made.chmod(0o755)  # under root a stranger's task is nobody
    yield made
    trees.remove(made)


@pytest.fixture
def machine(base: Path) -> Iterator[Makes]:
    made: list[Machine] = []

    def make(**options: object) -> Machine:
        made.append(Machine(base, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("is_stranger", [True, False])
def test_a_task_sees_what_the_machines_owner_allows_but_never_the_clients_folder(
    machine: Makes, base: Path, best: Sandbox, level: int, is_stranger: bool
) -> None:
    made = machine(most=level, reads=(str(base),))
    script = 'cat "$0"/data; cat "$0"/client/client.json; echo x > "$0"/new; echo done'
    assert made.run(script, is_stranger=is_stranger)[1] == "datadone\n"
    assert not (base / "new").exists()


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("is_stranger", [True, False])
def test_a_task_changes_what_the_machines_owner_allows(
    machine: Makes, base: Path, best: Sandbox, level: int, is_stranger: bool
) -> None:
    shared = base / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    made = machine(most=level, writes=(str(shared),))
    made.run('echo x > "$0"/shared/new; echo x > "$0"/new', is_stranger=is_stranger)
    assert (shared / "new").read_text() == "x\n"
    assert not (base / "new").exists()


def test_on_a_pilot_all_work_is_that_of_who_submitted_it(
    machine: Makes, base: Path, best: Sandbox
) -> None:
    made = machine(is_pilot=True, reads=(str(base),))
    script = 'cat "$0"/data "$0"/client/client.json; test -e /etc/fstab || test -e /opt; echo $?'
    assert made.run(script, is_stranger=True)[1] == "data0\n"
    assert made.confinement.refusal(is_stranger=True) == ""


@pytest.mark.parametrize("level", [1, 2])
def test_a_program_finds_its_usual_surroundings(machine: Makes, best: Sandbox, level: int) -> None:
    made = machine(most=level)
    script = (
        "set -e; echo err > /dev/stderr; : > /dev/stdout; date > file; test -s file;"
        " mkfifo pipe; (echo through > pipe &); read word < pipe; test $word = through;"
        " head -c 9 /dev/urandom > $TMPDIR/x; ls /usr > /dev/null; kill -0 $$; sort file | wc -l"
    )
    for is_stranger in (True, False):
        end, text = made.run(script, is_stranger=is_stranger)
        assert (end.reason, text.split()) == ("", ["1"])
        assert made.slot.stderr.read_text() == "err\n"


def test_a_strangers_processes_talk_over_a_loopback_of_their_own(
    machine: Makes, best: Sandbox
) -> None:
    talk = (
        "import socket; s = socket.create_server(('127.0.0.1', 4321));"
        " c = socket.create_connection(s.getsockname()); c.send(b'hello');"
        " print(s.accept()[0].recv(9).decode())"
    )
    assert machine().run(f'{PYTHON} -S -c "{talk}"', is_stranger=True)[1] == "hello\n"


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"most": 0}, "work of others needs sandbox level 1, and this machine offers 0"),
        ({"most": 1, "least": 2}, "work of others needs sandbox level 2, and this machine offers"),
    ],
)
def test_work_of_others_is_refused_behind_lower_walls_than_it_needs(
    machine: Makes, options: dict[str, int], refusal: str
) -> None:
    made = machine(**options)
    assert refusal in made.confinement.refusal(is_stranger=True)
    assert made.confinement.refusal(is_stranger=False) == ""
    assert made.run("echo hello", is_stranger=False)[1] == "hello\n"
    assert Plain(is_pilot=True).refusal(is_stranger=True) == ""
    assert Plain().refusal(is_stranger=True) and not Plain().refusal(is_stranger=False)


def test_a_program_that_cannot_be_executed_is_named(machine: Makes) -> None:
    made = machine()
    end, _ = made.run("true", is_stranger=False)
    assert end.reason == ""
    runner = Runner(made.confinement, Census())
    end = runner.run(
        ReplicaProgram(["no-such-program"]),
        made.slot,
        LIMITS,
        Stop(),
        lambda _: None,
        is_stranger=False,
    )
    assert (end.reason, end.exit_code) == ("not_executable", None)
    assert "'no-such-program'" in end.detail and "No such file" in end.detail


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_the_machine_cannot_do_is_not_laid_to_the_program(
    machine: Makes, best: Sandbox, level: int
) -> None:
    made = machine(most=level)
    made.slot.path.mkdir()
    runner = Runner(made.confinement, Census())
    end = runner.run(
        ReplicaProgram(["true"]), made.slot, LIMITS, Stop(), lambda _: None, is_stranger=level > 0
    )
    assert end.reason == "not_started"  # there is no directory to run in
    assert "No such file" in end.detail


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("killed", ["warden", "first process"])
def test_nothing_of_a_task_outlives_its_keepers(
    machine: Makes, best: Sandbox, level: int, killed: str
) -> None:
    made = machine(most=level)
    ends: list[ProcessEnd] = []
    script = "setsid sleep 1000.5 & sleep 1000.5"
    thread = threading.Thread(
        target=lambda: ends.append(made.run(script, is_stranger=False)[0]), daemon=True
    )
    thread.start()
    eventually(lambda: len(sleepers()) == 2)
    found = youngest_warden()
    victim = found if killed == "warden" else found.children()[0]
    victim.kill()
    thread.join(60)
    assert ends[0].reason == "task_lost"
    eventually(lambda: sleepers() == [])
    assert made.run("echo again", is_stranger=False)[1] == "again\n"


def sleepers() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True) + psutil.Process(1).children()
        if process.is_running() and "1000.5" in _words(process)
    ]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()[:2] if process.name() == "sleep" else []
    except psutil.Error:
        return []


def youngest_warden() -> psutil.Process:
    found = [
        process
        for process in psutil.Process().children()
        if any("gridbot_client.walls.warden" in word for word in process.cmdline())
    ]
    return max(found, key=lambda process: process.create_time())


def test_groups_that_a_killed_client_left_are_removed() -> None:
    found = cgroups.find()
    if found is None:
        pytest.skip("no writable cgroup")
    with subprocess.Popen(["true"]) as ended:
        pass
    left, kept = (
        {parent / f"gridbot-{pid}-99" for parent in found.parents.values()}
        for pid in (ended.pid, os.getpid())
    )
    for folder in left | kept:
        folder.mkdir()
    found.sweep()
    assert not any(folder.exists() for folder in left)
    assert all(folder.exists() for folder in kept)
    for folder in kept:
        folder.rmdir()


def test_groups_serve_one_task_after_another_and_keep_nothing_of_its_end(
    machine: Makes, best: Sandbox
) -> None:
    if best.level < CGROUP:
        pytest.skip(best.obstacle)
    made = machine()
    hungry = f"exec {PYTHON} -S -c 'x = bytearray(400 << 20)'"
    assert made.run(hungry, is_stranger=True)[0].reason == "memory_limit"
    ends = [made.run("true", is_stranger=True)[0].reason for _ in range(4)]
    assert ends == [""] * 4
    assert 1 <= len(own_groups()) < 5  # a group is used again once its zombies are reaped
    made.close()
    assert own_groups() == set()


def own_groups() -> set[str]:
    found = cgroups.find()
    assert found
    pattern = f"gridbot-{os.getpid()}-*"
    return {path.name for parent in found.parents.values() for path in parent.glob(pattern)}


def test_around_leaves_out_what_is_hidden_and_links_to_it(tmp_path: Path) -> None:
    for path in ("a/b/c", "a/d", "e"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    top = str(tmp_path)
    assert sorted(around({f"{top}/a/b"}, top)) == [f"{top}/a/d", f"{top}/e"]
    assert around({f"{top}/x"}, f"{top}/a") == [f"{top}/a"]
    assert around({top}, f"{top}/a") == []
