"""Claims about logs: they stay short, there are few of them, and no line is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.system.deployment import eventually

from gridbot_server.supervision.log_rotation import FILE_BYTES, OLDER_FILES, RotatedLog, rotate_long
from gridbot_server.supervision.log_writer import LogKeeper
from gridbot_server.supervision.processes import Child, spawn, wait_gone

MOST = 10_000
# Starts a child that waits to be told to write, says who the child and the writer are, and waits.
SUPERVISOR = """
import sys, time
from pathlib import Path
from psutil import Process
from gridbot_server.supervision.log_writer import LogKeeper
from gridbot_server.supervision.processes import Child, spawn
folder = Path(sys.argv[1])
keeper = LogKeeper(folder)
writer = Process().children()[0].pid
program = "n=0; until [ -e go ]; do sleep 0.05; done; while [ $n -lt 300 ]; do echo line $n;"
program += " n=$((n + 1)); done"
child = Child(name="child", argv=["/bin/sh", "-c", program], env={}, directory=folder)
print(spawn(child, keeper.pipe("child"), int).pid, writer, sep="\\n", flush=True)
time.sleep(1000)
"""
COUNT = "import sys\nfor n in range(int(sys.argv[1])): print('line', n, flush=n % 7 == 0)"
# Numbers its lines while its own log is set aside again and again.
OWN = """
import sys
from pathlib import Path
from gridbot_server.supervision.log_rotation import rotate_own
for number in range(int(sys.argv[2])):
    print("line", number, file=sys.stderr, flush=True)
    if number % 50 == 0:
        rotate_own(Path(sys.argv[1]), most=2_000)
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[LogKeeper]:
    made = LogKeeper(tmp_path, MOST)
    yield made
    made.close()


def python(directory: Path, program: str, *arguments: object) -> Child:
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    return Child(name="child", argv=argv, env=dict(os.environ), directory=directory)


def started(keeper: LogKeeper, child: Child, name: str = "child") -> subprocess.Popen[bytes]:
    output = keeper.pipe(name)
    try:
        return spawn(child, output, int)
    finally:
        os.close(output)


def files(path: Path) -> list[Path]:
    """The log and its older files, the oldest first."""
    older = [path.with_name(f"{path.name}.{number}") for number in range(OLDER_FILES + 5, 0, -1)]
    return [name for name in (*older, path) if name.exists()]


def lines(path: Path) -> list[str]:
    return b"".join(name.read_bytes() for name in files(path)).decode().splitlines()


def test_what_a_running_child_writes_is_in_files_of_bounded_size_in_order(
    keeper: LogKeeper, tmp_path: Path
) -> None:
    child = started(keeper, python(tmp_path, COUNT, 5000))
    assert child.wait() == 0
    keeper.settle()
    log = tmp_path / "child.log"
    assert len(files(log)) == OLDER_FILES + 1
    assert all(name.stat().st_size <= MOST for name in files(log))
    found = lines(log)
    assert len(found) > 2000
    assert found == [f"line {number}" for number in range(5000 - len(found), 5000)]


def test_no_line_is_lost_while_there_is_room(keeper: LogKeeper, tmp_path: Path) -> None:
    children = {name: started(keeper, python(tmp_path, COUNT, 2000), name) for name in "ab"}
    assert [child.wait() for child in children.values()] == [0, 0]
    keeper.settle()
    for name in children:
        assert lines(tmp_path / f"{name}.log") == [f"line {number}" for number in range(2000)]
        assert len(files(tmp_path / f"{name}.log")) > 1


def test_the_last_words_of_a_killed_child_are_there_and_its_successors_after_them(
    keeper: LogKeeper, tmp_path: Path
) -> None:
    words = (
        "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(2):
        assert started(keeper, python(tmp_path, words)).wait() == -signal.SIGKILL
    keeper.settle()
    assert lines(tmp_path / "child.log") == ["last words", "last words"]


def test_a_killed_writer_is_replaced_and_what_was_written_meanwhile_is_there(
    keeper: LogKeeper, tmp_path: Path
) -> None:
    (writer,) = (
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and str(tmp_path) in child.cmdline()
    )
    assert started(keeper, python(tmp_path, COUNT, 100)).wait() == 0
    keeper.settle()
    writer.kill()
    writer.wait()
    assert started(keeper, python(tmp_path, COUNT, 100), "next").wait() == 0
    eventually(keeper.tend, what="another writer")
    keeper.settle()
    for name in ("child", "next"):
        assert lines(tmp_path / f"{name}.log") == [f"line {number}" for number in range(100)]


def test_the_writer_outlives_a_killed_supervisor_until_all_have_ended(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    child, writer = (psutil.Process(int(supervisor.stdout.readline())) for _ in range(2))
    supervisor.kill()
    supervisor.communicate()
    (tmp_path / "go").touch()
    wait_gone([child, writer], 60)
    assert lines(tmp_path / "child.log") == [f"line {number}" for number in range(300)]


def test_a_full_disk_holds_up_no_child(keeper: LogKeeper, tmp_path: Path) -> None:
    (tmp_path / "child.log").symlink_to("/dev/full")
    child = started(keeper, python(tmp_path, "print('x' * 5_000_000)"))
    assert child.wait(60) == 0


def test_a_line_longer_than_a_file_is_split(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "x.log", 100)
    log.write(b"short\n")
    log.write(b"y" * 250 + b"\nend\n")
    log.close()
    assert [name.stat().st_size for name in files(log.path)] == [6, 100, 100, 55]
    assert lines(log.path) == ["short", "y" * 250, "end"]


def test_a_log_that_is_long_already_is_set_aside(tmp_path: Path) -> None:
    for name in ("before.log", "now.log"):
        with (tmp_path / name).open("wb") as old:
            old.truncate(FILE_BYTES + 1)
    assert rotate_long(tmp_path / "before.log")
    log = RotatedLog(tmp_path / "now.log")
    log.write(b"new\n")
    log.close()
    assert (tmp_path / "before.log.1").stat().st_size == FILE_BYTES + 1
    assert [name.stat().st_size for name in files(log.path)] == [FILE_BYTES + 1, 4]
    assert not rotate_long(log.path)


def test_a_process_sets_its_own_log_aside_and_loses_no_line(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    with log.open("ab") as output:
        argv = [sys.executable, "-c", OWN, str(log), "500"]
        assert subprocess.run(argv, stderr=output, stdout=output, check=False).returncode == 0
    assert len(files(log)) > 1
    found = lines(log)
    assert found == [f"line {number}" for number in range(500 - len(found), 500)]
    assert all(name.stat().st_size < 3_000 for name in files(log))


def test_a_process_leaves_a_log_alone_that_is_not_its_own(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    log.write_bytes(b"x" * 5_000)
    ended = subprocess.run(
        [sys.executable, "-c", OWN, str(log), "5"], check=False, capture_output=True
    )
    assert ended.stderr.splitlines()[-1] == b"line 4"
    assert files(log) == [log]
