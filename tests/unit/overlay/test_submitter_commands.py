"""How programs are run: bounded in time and output, with their own words when they fail."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.orders import make_order
from tests.system.batch_systems import lives
from tests.system.deployment import eventually

from gridbot_overlay.decide.model import Grid
from gridbot_overlay.submitters import KINDS, GridError, commands, rendering
from gridbot_overlay.submitters.commands import Commands
from gridbot_overlay.submitters.logs import Logs


def test_what_a_program_prints_is_returned_and_its_stdin_is_given() -> None:
    assert Commands().run("cat", stdin="a\nü\n") == "a\nü\n"


def test_a_failure_tells_the_program_its_code_and_its_words() -> None:
    with pytest.raises(GridError, match=r"^sh ended with code 3: no such queue$") as caught:
        Commands().run("sh", "-c", "echo no such queue >&2; exit 3")
    assert caught.value.is_lasting


def test_what_a_program_says_in_several_lines_is_told_in_one() -> None:
    with pytest.raises(GridError, match=r"code 1: error: no queue; error: submission failed$"):
        Commands().run(
            "sh", "-c", "printf 'error: no queue\\n\\nerror: submission failed\\n'; exit 1"
        )


def test_words_that_say_the_system_is_away_are_no_refusal() -> None:
    away = Commands(away=re.compile("cannot connect"))
    with pytest.raises(GridError) as caught:
        away.run("sh", "-c", "echo cannot connect to server; exit 1")
    assert not caught.value.is_lasting


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(GridError, match="no-such-program cannot be started") as caught:
        Commands().run("no-such-program")
    assert caught.value.is_lasting


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(GridError, match="gave no answer within 3 s") as caught:
        Commands(timeout_seconds=3).run("sh", "-c", script)
    assert not caught.value.is_lasting
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not lives(child), what="the child's end")


def test_what_a_program_leaves_running_does_not_hold_up_its_answer() -> None:
    # As ssh's master connection does, which keeps its first client's stderr.
    left = int(Commands(timeout_seconds=20).run("sh", "-c", "sleep 600 & echo $!"))
    os.kill(left, signal.SIGKILL)  # it runs


def test_a_program_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "OUTPUT_BYTES", 1 << 20)
    with pytest.raises(GridError, match="printed more than 1 MiB"):
        Commands().run("yes")


def test_programs_see_no_secrets_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDBOT_KEY", "secret")
    seen = Commands(environment={"SLURM_CONF": "/x"}).run("env").splitlines()
    assert {"LC_ALL=C", "SLURM_CONF=/x", f"PATH={os.environ['PATH']}"} <= set(seen)
    assert not any("secret" in line for line in seen)


def test_a_command_on_a_login_node_is_one_quoted_line() -> None:
    there = Commands(through=("sh", "-c"), environment={"A": "b c"})
    hostile = 'it\'s $(false); "x"\n*'
    assert there.run("printf", "%s", hostile) == hostile
    assert "A=b c" in there.run("env").splitlines()


def test_a_login_node_that_is_not_reached_is_no_refusal() -> None:
    with pytest.raises(GridError) as caught:
        Commands(through=("sh", "-c", "exit 255")).run("true")
    assert not caught.value.is_lasting


def test_many_pilots_are_cancelled_with_few_commands(tmp_path: Path) -> None:
    program = tmp_path / "cancel"
    program.write_text(f'#!/bin/sh\necho $# >> {tmp_path}/calls\necho "job $1 is gone" >&2\nexit 1')
    program.chmod(0o755)
    ids = [str(number) for number in range(250)]
    Commands().cancel(str(program), ids, re.compile("is gone"))
    assert (tmp_path / "calls").read_text().split() == ["100", "100", "50"]
    with pytest.raises(GridError, match="job 0 is gone"):
        Commands().cancel(str(program), ids, re.compile("has vanished"))


def test_the_tail_of_a_log_has_four_kilobytes(tmp_path: Path) -> None:
    (tmp_path / "t.1.err").write_text("x" * 9000 + "end")
    logs = Logs(Commands(), str(tmp_path))
    assert len(logs.tail("t", "1")) == 4096
    assert logs.tail("t", "1").endswith("xend")
    assert logs.tail("t", "2") == ""


@pytest.mark.parametrize(
    ("count", "largest", "parts"),
    [(3, 10, [(0, 3)]), (5, 2, [(0, 2), (2, 2), (4, 1)]), (2, 0, [(0, 1), (1, 1)])],
)
def test_long_submissions_are_split(count: int, largest: int, parts: list[tuple[int, int]]) -> None:
    assert list(rendering.parts(count, largest)) == parts


@pytest.mark.parametrize("first", [0, 7, 1000])
def test_a_job_is_found_again_by_its_name(first: int) -> None:
    name = rendering.job_name("gb-site.A_1", first)
    assert rendering.read_name(name, "gb-") == ("gb-site.A_1", first)
    assert rendering.read_name(name, "xx-") is None


def test_a_script_cannot_be_broken_by_what_it_is_told() -> None:
    text = rendering.script(make_order("gb-x", "echo $GRIDBOT_PILOT_TAG"), "$((1 + 2))", "$$")
    assert Commands().run("sh", stdin=text) == "gb-x\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"thruogh": []}, "there are environment, logs, through"), ({"logs": 3}, "logs is no str")],
)
def test_an_option_that_does_not_exist_or_fit_is_refused(
    options: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(GridError, match=said):
        KINDS["slurm"](Grid(name="g", kind="slurm", options=options), tmp_path)


def test_a_kind_is_imported_only_when_it_is_used() -> None:
    asks = "import sys, gridbot_overlay.submitters; print([m for m in sys.modules if 'slurm' in m])"
    path = os.pathsep.join(sys.path)
    printed = Commands(environment={"PYTHONPATH": path}).run(sys.executable, "-c", asks)
    assert printed == "[]\n"
