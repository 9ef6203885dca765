"""Pilots as processes of this machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.orders import make_order
from tests.system.deployment import eventually
from tests.system.sightings import found

from gridbot_overlay.decide.model import Grid, GridLimits, PilotShape, PilotState
from gridbot_overlay.submitters import KINDS, GridError, Submitter, local

WAITS = "echo $$ >&2; exec sleep 600"


def submitter_of(folder: Path, grid: Grid | None = None) -> Submitter:
    return KINDS["local"](grid or Grid(name="here", kind="local"), folder)


@pytest.fixture
def submitter(tmp_path: Path) -> Iterator[Submitter]:
    made = submitter_of(tmp_path)
    yield made
    made.cancel([pilot.native_id for pilot in made.pilots("")])


def process(submitter: Submitter, native_id: str, tag: str) -> psutil.Process:
    """The pilot's own process, by the number that it wrote."""
    return psutil.Process(int(eventually(lambda: submitter.tail(native_id, tag).strip())))


def test_pilots_know_themselves_and_their_end_is_seen(submitter: Submitter) -> None:
    says = 'echo "$GRIDBOT_PILOT_TAG $GRIDBOT_PILOT_INDEX $GRIDBOT_NATIVE_ID" >&2; exit 7'
    native_ids = submitter.submit(make_order("knows", says, count=2))
    pilots = found(submitter, "knows", PilotState.ENDED)
    assert [(pilot.native_id, pilot.index, pilot.exit_code) for pilot in pilots] == [
        (native_ids[0], 0, 7),
        (native_ids[1], 1, 7),
    ]
    said = [submitter.tail(native_id, "knows") for native_id in native_ids]
    assert said == [f"knows {index} {native_ids[index]}\n" for index in range(2)]


def test_a_cancelled_pilot_may_clean_up(submitter: Submitter) -> None:
    cleans = "trap 'echo bye >&2; exit 5' TERM; echo ready >&2; sleep 600 & wait"
    [native_id] = submitter.submit(make_order("polite", cleans))
    eventually(lambda: submitter.tail(native_id, "polite"), what="the pilot's start")
    submitter.cancel([native_id])
    assert submitter.tail(native_id, "polite") == "ready\nbye\n"
    [pilot] = submitter.pilots("polite")
    assert (pilot.state, pilot.exit_code) == (PilotState.ENDED, 5)
    submitter.cancel([native_id, "nobody.3", "x"])  # gone already, which is no error


def test_a_pilot_that_will_not_go_is_killed(
    submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_GRACE_SECONDS", 0.3)
    [native_id] = submitter.submit(
        make_order("stubborn", "trap '' TERM; echo $$ >&2; while :; do sleep 1; done")
    )
    stubborn = process(submitter, native_id, "stubborn")
    submitter.cancel([native_id])
    assert submitter.pilots("stubborn")[0].state is PilotState.ENDED
    assert not stubborn.is_running() or stubborn.status() == psutil.STATUS_ZOMBIE


def test_pilots_outlive_the_constructor_and_are_found_again(tmp_path: Path) -> None:
    starts = (
        "import os, signal, sys; from pathlib import Path; from tests.orders import make_order;"
        "from gridbot_overlay.decide.model import Grid;"
        "from gridbot_overlay.submitters import KINDS;"
        "made = KINDS['local'](Grid(name='here', kind='local'), Path(sys.argv[1]));"
        f"made.submit(make_order('left', {WAITS!r}, count=2));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", starts, str(tmp_path)], env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == -signal.SIGKILL
    submitter = submitter_of(tmp_path)
    pilots = found(submitter, "left", PilotState.RUNNING)
    processes = [process(submitter, pilot.native_id, "left") for pilot in pilots]
    assert len(processes) == 2
    submitter.cancel([pilot.native_id for pilot in pilots])
    found(submitter, "left", PilotState.ENDED)
    assert not any(one.is_running() and one.status() != "zombie" for one in processes)


def test_a_process_that_got_an_old_pilots_number_is_not_taken_for_it(
    submitter: Submitter, tmp_path: Path
) -> None:
    [native_id] = submitter.submit(make_order("old", "exit 0"))
    found(submitter, "old", PilotState.ENDED)
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (tmp_path / "pilots" / "old" / "0.pid").write_text(f"{stranger.pid}\n")
        assert submitter.pilots("old")[0].state is PilotState.ENDED
        submitter.cancel([native_id])
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_what_a_pilot_leaves_running_is_not_the_pilot(submitter: Submitter) -> None:
    [native_id] = submitter.submit(make_order("leaves", "setsid sleep 600 & echo $! >&2"))
    [pilot] = found(submitter, "leaves", PilotState.ENDED)
    assert pilot.exit_code == 0
    process(submitter, native_id, "leaves").kill()


def test_the_same_tag_twice_is_refused_and_starts_nothing(submitter: Submitter) -> None:
    submitter.submit(make_order("once", WAITS))
    with pytest.raises(GridError, match="File exists"):
        submitter.submit(make_order("once", WAITS, count=3))
    assert len(submitter.pilots("once")) == 1


def test_only_the_pilots_of_the_prefix_are_listed(submitter: Submitter) -> None:
    for tag in ("a-1", "a-2", "b-1"):
        submitter.submit(make_order(tag, WAITS))
    assert {pilot.tag for pilot in submitter.pilots("a-")} == {"a-1", "a-2"}


def test_what_is_left_of_old_submissions_is_dropped(submitter: Submitter, tmp_path: Path) -> None:
    submitter.submit(make_order("ended", "exit 0"))
    submitter.submit(make_order("lives", WAITS))
    found(submitter, "ended", PilotState.ENDED)
    for tag in ("ended", "lives"):
        os.utime(tmp_path / "pilots" / tag, (0, 0))
    submitter.submit(make_order("next", "exit 0"))
    assert {pilot.tag for pilot in submitter.pilots("")} == {"lives", "next"}


def test_check_compares_with_the_cpus_and_tries_the_interpreter(tmp_path: Path) -> None:
    small = Grid(name="here", kind="local", limits=GridLimits(max_running=1), python=sys.executable)
    assert all(finding.is_good for finding in submitter_of(tmp_path, small).check())
    large = Grid(
        name="here",
        kind="local",
        shape=PilotShape(cpus=1000),
        setup=("echo loaded", "alias nothing=:"),
        python="no-such-python",
    )
    cpus, python = submitter_of(tmp_path, large).check()
    assert (cpus.is_good, python.is_good) == (False, False)
    assert "100000 for pilots" in cpus.text
    assert "no-such-python" in python.text
