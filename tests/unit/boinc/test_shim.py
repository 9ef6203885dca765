"""The shell script that runs a BOT's command under a stock client, in every shell that is here."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.boinc_slot import (
    DEADLINE,
    ID,
    SHELLS,
    Slot,
    is_alive,
    manifest,
    shell_job,
    state_of,
    until,
)

from gridbot.api.packing import pack
from gridbot_client.protocol.messages import FileRef, Manifest, Resources, Scalar
from gridbot_client.work.processes import Census
from gridbot_server.boinc.application import shim
from gridbot_server.boinc.application.shim.ending import read_ending
from gridbot_server.signing.stock_clients import Unsuitable


@pytest.fixture(params=SHELLS)
def slot(request: pytest.FixtureRequest, tmp_path: Path) -> Slot:
    return Slot(tmp_path / "slot", request.param)


def test_point_12_a_good_end_leaves_the_finish_file_and_exits_0(slot: Slot) -> None:
    assert slot.run(shell_job("echo out; echo err >&2")) == 0
    assert (slot.path / "boinc_finish_called").read_text() == "0\n"
    assert slot.output == b"out\n"
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("", 0)
    assert (slot.ending.stdout, slot.ending.stderr) == ("out\n", "err\n")


@pytest.mark.parametrize("code", [1, 3, 127, 128, 195, 255])
def test_an_exit_code_is_passed_on(slot: Slot, code: int) -> None:
    assert slot.run(shell_job(f"exit {code}")) == code
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("exit_nonzero", code)
    assert slot.output is None
    # Read by a client that was away when the command ended.
    assert (slot.path / "boinc_finish_called").read_text() == f"{code}\n"


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "USR1"])
def test_a_signal_is_told_apart_from_an_exit_code(slot: Slot, name: str) -> None:
    number = signal.Signals[f"SIG{name}"].value
    assert slot.run(shell_job(f"kill -s {name} $$")) == 128 + number
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("signal", -number)


def test_a_command_that_kills_itself_as_a_shutdown_would_has_failed(slot: Slot) -> None:
    assert slot.run(shell_job("kill -s TERM $$")) == 128 + signal.SIGTERM
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("signal", -signal.SIGTERM)


def test_point_13_the_cpu_time_is_reported(slot: Slot) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    assert slot.run(manifest(sys.executable, "-c", busy)) == 0
    assert slot.ending is not None
    assert 0.25 < slot.ending.cpu_seconds < 5


def test_the_command_runs_as_under_a_native_client(slot: Slot) -> None:
    script = (
        "import os, sys, json\n"
        "json.dump([os.getcwd(), dict(os.environ), sys.stdin.read(),"
        " open('/proc/self/status').read()], sys.stdout)"
    )
    os.environ["GRIDBOT_TEST_SECRET"] = "not for jobs"
    try:
        assert slot.run(manifest(sys.executable, "-c", script)) == 0
    finally:
        del os.environ["GRIDBOT_TEST_SECRET"]
    assert slot.output is not None
    cwd, env, stdin, status = eval(slot.output)
    assert cwd == env["HOME"] == str(slot.path / "work")
    assert env["TMPDIR"] == str(slot.path / "work/tmp")
    assert [env[f"GRIDBOT_{name}"] for name in ("BOT", "SEQ", "REPLICA")] == ["7", "3", "1"]
    assert env.keys() <= {
        *("PATH", "LANG", "TZ", "HOME", "TMPDIR", "GRIDBOT_BOT", "GRIDBOT_SEQ", "GRIDBOT_REPLICA"),
        *("GRIDBOT_SLOT", "GRIDBOT_PROGRESS"),
        *("PWD", "SHLVL", "OLDPWD", "_", "LC_CTYPE"),  # of the shell and of Python themselves
    }
    assert stdin == ""
    assert "SigIgn:\t0000000001001000" in status  # Python's own: PIPE and XFSZ, not INT or QUIT


NASTY = [
    "", " ", "a b", "'", '"', "\\", "\\n", "\\c", "\\0101", "%s%d%", "$(touch gotcha)", "`id`",
    "; touch gotcha", "a\nb\n\n", "\n", "\t", "*", "~", "-n", "--", "é\u20ac\U0001f600",
    "<x>&amp;]]>", "$HOME", "${PATH}", "&& touch gotcha", "| touch gotcha", "> gotcha",
    "\x01\x02\x7f", ".", ":",
]  # fmt: skip


def test_values_arrive_as_they_are_and_nothing_is_evaluated(slot: Slot) -> None:
    types = {f"v{number}": "text" for number in range(len(NASTY))}
    args: dict[str, Scalar] = dict(zip(types, NASTY, strict=True))
    job = manifest(
        *(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))"),
        *(f"<{{{name}}}>" for name in types),
        placeholders=types,
    )
    assert slot.run(job, args) == 0
    assert slot.output is not None
    assert eval(slot.output) == [f"<{value}>" for value in NASTY]
    assert not list(slot.path.rglob("gotcha"))


def test_literals_of_the_command_arrive_as_they_are(slot: Slot) -> None:
    literals = [text for text in NASTY if "\x01" not in text]
    escaped = [text.replace("{", "{{").replace("}", "}}") for text in literals]
    job = manifest(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *escaped)
    assert slot.run(job) == 0
    assert slot.output is not None
    assert eval(slot.output) == literals
    assert not list(slot.path.rglob("gotcha"))


def test_a_directory_is_unpacked_under_its_name(slot: Slot, tmp_path: Path) -> None:
    (tmp_path / "deps" / ".hidden").mkdir(parents=True)
    (tmp_path / "deps" / ".hidden" / "x").write_text("dots\n")
    packed = pack(tmp_path / "deps", "lib/deps")
    job = manifest(
        *("sh", "-c", "cat lib/deps/.hidden/x conf/.dot"),
        inputs=(packed.ref, FileRef("conf/.dot", "a" * 64, 4)),
        archives={"lib/deps": packed.unpacked},
    )
    (slot.path / shim.SIGNED_INPUT.format(0)).write_bytes(packed.part(0, packed.ref.size))
    (slot.path / shim.SIGNED_INPUT.format(1)).write_text("dot\n")
    assert slot.run(job) == 0
    assert slot.output == b"dots\ndot\n"


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    before=st.text(st.characters(exclude_characters="\0\1", exclude_categories=["Cs"])),
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
)
def test_any_text_arrives_as_it_is(tmp_path: Path, before: str, value: str) -> None:
    literal = before.replace("{", "{{").replace("}", "}}")
    job = manifest(*("printf", "%s", "x" + literal + "{t}"), placeholders={"t": "text"})
    for shell in SHELLS:
        path = tmp_path / "slot"
        shutil.rmtree(path, ignore_errors=True)
        slot = Slot(path, shell)
        assert slot.run(job, {"t": value}) == 0
        assert slot.output == ("x" + before + value).encode()


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("int", ":1.5"), ("int", ":"), ("int", ":+"), ("int", ":1\\0012"), ("int", ":--1"),
        ("real", ":nan"), ("real", ":1e"), ("real", ":."), ("real", ":1.2.3"), ("real", ":1;ls"),
        ("real", ":e5"), ("real", ":1e5e5"), ("real", ":1e1.5"), ("text", "plain"),
        ("text", ":a\\cb"), ("text", "-"),
    ],
)  # fmt: skip
def test_a_value_that_the_server_should_not_have_sent_is_refused(
    slot: Slot, kind: str, word: str
) -> None:
    job = manifest("echo", "{x}", placeholders={"x": kind})
    assert slot.run(job, words=[":7", ":3", ":1", ":", word, "."]) == 195
    assert slot.ending is not None
    assert slot.ending.reason == "bad_arguments"
    assert slot.output is None


@pytest.mark.parametrize("value", ["0", "-1", "+2", "1.", ".5", "-1.5e-3", "2E+7", "00012"])
def test_numbers_are_taken_as_the_native_client_takes_them(slot: Slot, value: str) -> None:
    job = manifest("echo", "{x}", placeholders={"x": "real"})
    assert slot.run(job, {"x": value}) == 0
    assert slot.output == f"{value}\n".encode()


@pytest.mark.parametrize(
    "words",
    [[], ["."], [":7", ":3", ":1", "."], [":7", ":3", ":1", ":", ":5"],
     [":7", ":3", ":1", ":", ":5", ":6", "."], [":7", ":x", ":1", ":", ":5", "."]],
)  # fmt: skip
def test_another_number_of_words_is_refused(slot: Slot, words: list[str]) -> None:
    job = manifest("echo", "{x}", placeholders={"x": "int"})
    assert slot.run(job, words=words) == 195
    assert slot.ending is not None
    assert slot.ending.reason == "bad_arguments"


def test_devices_that_the_client_assigns_reach_the_command(slot: Slot) -> None:
    words = [":7", ":3", ":1", ":", ".", "--device", "0", "--device", "2"]
    job = shell_job('echo "$GRIDBOT_GPUS $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES"')
    assert slot.run(job, words=words) == 0
    assert slot.output == b"0,2 0,2 0,2\n"


def test_a_command_that_is_not_there_is_told_so(slot: Slot) -> None:
    for command in ("no-such-program", "./here", "cd"):
        assert slot.run(manifest(command)) == 195
        assert slot.ending is not None
        assert slot.ending.reason == "not_executable"
        assert f"cannot execute '{command}'" in slot.ending.stderr
        slot = slot.again()


def test_long_logs_are_cut_to_their_ends(slot: Slot) -> None:
    job = manifest(sys.executable, "-c", "import sys\nfor i in range(9000): print(i)", outputs=())
    assert slot.run(job) == 0
    assert slot.ending is not None
    assert slot.ending.stdout.endswith("8998\n8999\n")
    assert 23_000 < len(slot.ending.stdout) <= 24_000


def test_what_a_command_prints_cannot_pass_for_its_end(slot: Slot) -> None:
    fake = "[gridbot end reason= exit=0 cpu=0m0.0s+0m0.0s]"
    job = shell_job(f"echo; echo '{fake}'; echo '{fake}' >&2; printf 'a\\0b'; exit 4")
    assert slot.run(job) == 4
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("exit_nonzero", 4)
    assert slot.ending.stdout.endswith("a?b")


def test_a_time_limit_ends_the_command(slot: Slot) -> None:
    job = shell_job("trap '' TERM; sleep 60 & sleep 60", resources=Resources(seconds=1))
    began = time.monotonic()
    assert slot.run(job) == 197
    assert time.monotonic() - began < 50
    assert slot.ending is not None
    assert slot.ending.reason == "time_limit"


def test_memory_beyond_the_limit_ends_the_command_also_in_a_child_that_left(slot: Slot) -> None:
    hungry = "x = bytearray(300 << 20); import time; time.sleep(60)"
    script = f'setsid {sys.executable} -S -c "{hungry}" & sleep 60'
    assert slot.run(shell_job(script, resources=Resources(memory_mb=100))) == 198
    assert slot.ending is not None
    assert slot.ending.reason == "memory_limit"
    assert left_by(slot) == []


def test_memory_that_processes_share_counts_once(slot: Slot) -> None:
    script = (
        "import os, time\nx = bytearray(120 << 20)\n"
        "if all(os.fork() for _ in range(3)): [os.wait() for _ in range(3)]\n"
        "else: time.sleep(5)"
    )
    job = manifest(sys.executable, "-S", "-c", script, resources=Resources(memory_mb=200))
    assert slot.run(job) == 0


def test_what_a_command_leaves_running_in_a_session_of_its_own_ends_with_it(slot: Slot) -> None:
    assert slot.run(shell_job("(setsid sleep 4321 &) ; (setsid nohup sleep 4321 &)")) == 0
    assert left_by(slot) == []


def left_by(slot: Slot) -> list[psutil.Process]:
    return Census().of_slot(str(slot.path))


def test_a_file_that_grows_beyond_the_disk_limit_ends_the_command(slot: Slot) -> None:
    script = "import signal; signal.signal(25, 0); open('f', 'wb').write(b'0' * (3 << 20))"
    job = manifest(sys.executable, "-c", script, resources=Resources(disk_mb=1))
    assert slot.run(job) == 196
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("disk_limit", -signal.SIGXFSZ)


def test_what_a_command_leaves_running_is_ended(slot: Slot) -> None:
    assert slot.run(shell_job("sleep 60 & echo $!")) == 0
    assert slot.output is not None
    until(lambda: not is_alive(int(slot.output or b"0")))


@pytest.fixture
def running(slot: Slot) -> Iterator[tuple[Slot, "subprocess.Popen[bytes]", int]]:
    """A script under a client that writes messages, and the pid of its command."""
    (slot.path / "boinc_mmap_file").write_bytes(bytes(8192))
    with slot.start(shell_job("echo run >> ../runs; exec sleep 60")) as process:
        path = slot.path / "gb_job"
        until(lambda: path.exists() and path.read_text().endswith("\n"))
        try:
            yield slot, process, int(path.read_text())
        finally:
            process.kill()
            if is_alive(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)


def test_suspend_and_resume_reach_the_command(
    running: tuple[Slot, "subprocess.Popen[bytes]", int],
) -> None:
    slot, _, job = running
    slot.tell(b"<suspend/>")
    until(lambda: state_of(job) == "T")
    assert (slot.path / "boinc_mmap_file").read_bytes()[0] == 0
    slot.tell(b"<resume/>")
    until(lambda: state_of(job) == "S")


@pytest.mark.parametrize("message", [b"<quit/>", b"<abort/>"])
def test_quit_and_abort_end_the_command_without_a_finish_file(
    running: tuple[Slot, "subprocess.Popen[bytes]", int], message: bytes
) -> None:
    slot, process, job = running
    slot.tell(b"<suspend/>")
    until(lambda: state_of(job) == "T")
    slot.tell(message)
    assert process.wait(DEADLINE) == 0
    assert not is_alive(job)
    assert not (slot.path / "boinc_finish_called").exists()
    assert slot.ending is None


def test_a_command_does_not_outlive_its_script(
    running: tuple[Slot, "subprocess.Popen[bytes]", int],
) -> None:
    slot, process, job = running
    process.kill()
    process.wait(DEADLINE)
    until(lambda: not is_alive(job))
    assert not (slot.path / "boinc_finish_called").exists()


def test_a_command_does_not_outlive_its_client(slot: Slot) -> None:
    slot.render(shell_job("exec sleep 60"))
    line = " ".join(shlex.quote(part) for part in [*slot.shell, "main", ":7", ":3", ":1", ":", "."])
    client = subprocess.Popen(["sh", "-c", f"{line} & wait"], cwd=slot.path)
    path = slot.path / "gb_job"
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    client.kill()
    client.wait(DEADLINE)
    until(lambda: not is_alive(int(path.read_text())))


def test_a_second_start_in_a_slot_waits_for_the_first_to_end(
    running: tuple[Slot, "subprocess.Popen[bytes]", int],
) -> None:
    slot, first, job = running
    with slot.start(shell_job("echo again >> ../runs")) as second:
        assert first.wait(DEADLINE) == 0
        assert not is_alive(job)
        assert second.wait(DEADLINE) == 0
    assert (slot.path / "runs").read_text() == "run\nagain\n"
    assert (slot.path / "boinc_finish_called").read_text() == "0\n"


def test_a_full_disk_puts_the_job_off(slot: Slot) -> None:
    # A limit on file sizes is what a full disk looks like to those who write.
    limited = f"ulimit -f 100; exec {' '.join(slot.shell)} main :7 :3 :1 : ."
    slot.render(shell_job("exit 1"))
    with (slot.path / "stderr.txt").open("wb") as stderr:
        code = subprocess.call(
            ["dash", "-c", f"trap '' XFSZ; {limited}"], cwd=slot.path, stderr=stderr
        )
    assert code == 0
    assert (slot.path / "boinc_temporary_exit").read_text() == "3600\nthe disk is full\n"
    assert not (slot.path / "boinc_finish_called").exists()
    assert not (slot.path / "work").exists()


def test_equal_manifests_have_one_script() -> None:
    job = manifest("prog", "{a}", placeholders={"a": "int"}, outputs=("x", "*.y"))
    assert shim.render(job) == shim.render(Manifest.from_text(job.text()))


MANY = [f"v{number}" for number in range(65)]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (manifest("a\x01b"), r"holds the character \\x01"),
        (manifest(*(f"{{{v}}}" for v in MANY), placeholders=dict.fromkeys(MANY, "int")),
         "the command has 65 placeholders, at most 64"),
        (manifest("a", outputs=("$(id)*",)), "is no pattern of plain characters"),
        (manifest("a", outputs=("*;id",)), "is no pattern of plain characters"),
        (manifest("a", outputs=("x y",)), "is not a usable file name"),
        (manifest("a", inputs=(FileRef("../x", "0" * 64, 1),)), "is not a usable file name"),
        (manifest("a", image="docker.io/library/python:3.12"), "it asks for a container, which"),
        (manifest("a", inputs=(FileRef("r", "0" * 64, 1),), requirements="r"),
         "it asks for an environment of Python, which stock clients do not know"),
    ],
)  # fmt: skip
def test_what_a_stock_client_cannot_run_is_told_before_it_is_signed(
    job: Manifest, message: str
) -> None:
    with pytest.raises(Unsuitable, match=message):
        shim.render(job)


def test_arguments_beyond_a_clients_buffers_are_refused() -> None:
    job = manifest("echo", "{t}", placeholders={"t": "text"})
    assert len(shim.command_line(job, ID, {"t": "x" * 7000}, ())) < 7900
    with pytest.raises(Unsuitable, match=r"the arguments take .* put them into an input file"):
        shim.command_line(job, ID, {"t": "x" * 8000}, ())


def test_a_command_line_survives_how_clients_split_it() -> None:
    job = manifest("echo", *(f"{{v{n}}}" for n in range(len(NASTY))))
    job = replace(job, placeholders={f"v{n}": "text" for n in range(len(NASTY))})
    args: dict[str, Scalar] = {f"v{n}": value for n, value in enumerate(NASTY)}
    line = shim.command_line(job, ID, args, ("a", "b/c"))
    assert len(line.split()) == 4 + len(NASTY) + 1
    assert not set(line) & set("\"'<>&;$`*?[](){}|~#\n\t")
    assert line.isascii()


def test_the_end_of_a_report_that_was_cut_off_is_not_known() -> None:
    for text in ("", "[gridbot end reason= exit=0 cpu=0m0s+0m0s", "Segmentation fault\n"):
        assert read_ending(text) is None


def test_an_end_is_read_from_every_shells_times() -> None:
    for times, seconds in (
        ("0m0.110000s+0m0.020000s", 0.13), ("1m2.5s+0m00.00s", 62.5), ("none+none", 0.0),
    ):  # fmt: skip
        ending = read_ending(f"x\n[gridbot end reason=signal exit=-11 cpu={times}]\n\n")
        assert ending is not None
        assert ending.exit_code == -11
        assert ending.cpu_seconds == pytest.approx(seconds)


def test_an_exit_code_has_32_bits_and_a_sign() -> None:
    for said, code in (("-1073741819", -1073741819), ("3221225477", -1073741819), ("256", 256)):
        ending = read_ending(f"[gridbot end reason=exit_nonzero exit={said} cpu=0m0s+0m0s]\n")
        assert ending is not None
        assert ending.exit_code == code
