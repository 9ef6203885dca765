"""The program that runs a BOT's command under a stock client on Windows, under Debian's Wine."""

from __future__ import annotations

import io
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.windows_slot import (
    DEADLINE,
    WindowsSlot,
    Wine,
    manifest,
    needs_compiler,
    needs_wine,
    running,
    until,
    wine,
)

from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.messages import FileRef, Manifest, Resources, Scalar
from gridbot_server.boinc.application.shim import windows
from gridbot_server.boinc.application.shim.bundle import members
from gridbot_server.signing.stock_clients import Unsuitable


@pytest.fixture(scope="module")
def installed() -> Iterator[Wine]:
    with wine() as made:
        yield made


@pytest.fixture
def slot(installed: Wine, tmp_path: Path) -> WindowsSlot:
    return WindowsSlot(tmp_path / "slot", installed)


# ----------------------------------------------------------------------------------- its end


@needs_wine
def test_a_good_end_leaves_output_logs_and_the_finish_file(slot: WindowsSlot) -> None:
    assert slot.run(manifest("say")) == 0
    assert (slot.path / "boinc_finish_called").read_text() == "0\n"
    assert slot.output == b"out\r\n"
    ending = slot.ending
    assert (ending.reason, ending.exit_code) == ("", 0)
    assert (ending.stdout.split(), ending.stderr.split()) == (["out"], ["err"])


@needs_wine
@pytest.mark.parametrize(
    ("words", "exited", "code"),
    [
        (("exit", "1"), 1, 1),
        (("exit", "255"), 255, 255),
        (("exit", "256"), 195, 256),
        # With this one a client would start the job again.
        (("exit", str(0x40010004)), 195, 0x40010004),
        (("crash",), 195, 0xC0000005 - 2**32),
    ],
)
def test_an_exit_code_is_told_as_windows_has_it(
    slot: WindowsSlot, words: tuple[str, ...], exited: int, code: int
) -> None:
    assert slot.run(manifest(*words)) == exited
    assert (slot.ending.reason, slot.ending.exit_code) == ("exit_nonzero", code)
    assert (slot.path / "boinc_finish_called").read_text() == f"{exited}\n"
    assert slot.output is None


NASTY = [
    "", " ", "a b", "'", '"', "\\", "\\\\", 'a\\"b', '\\\\"', "x\\", "x y\\\\", "\\n", "%PATH%",
    "^", "&", "| dir", "> gotcha", "a\nb\n\n", "\t", "*", "?", "-n", "é\u20ac\U0001f600", ".", ":",
    "\x02\x7f",
]  # fmt: skip


def shown(slot: WindowsSlot) -> list[str]:
    assert slot.output is not None
    return [bytes.fromhex(line).decode() for line in slot.output.decode().split("\r\n")[:-1]]


@needs_wine
def test_values_and_literals_arrive_as_they_are(slot: WindowsSlot) -> None:
    types = {f"v{number}": "text" for number in range(len(NASTY))}
    args: dict[str, Scalar] = dict(zip(types, NASTY, strict=True))
    literal = manifest("arguments", *NASTY)
    command = (*literal.command, *(f"<{{{name}}}>" for name in types))
    job = Manifest("lab", command, types, literal.inputs)
    assert slot.run(job, args) == 0
    assert shown(slot) == [*NASTY, *(f"<{value}>" for value in NASTY)]
    assert not list(slot.path.rglob("gotcha"))


@needs_wine
@pytest.mark.parametrize(
    "words",
    [
        ["."], [":7", ":3", ":1", "."], [":7", ":3", ":1", ":", ":5"],
        [":7", ":3", ":1", ":", ":5", ":6", "."], [":7", ":x", ":1", ":", ":5", "."],
        [":7", ":3", ":1", ":", ":1.5", "."], [":7", ":3", ":1", ":", ":1\\0012", "."],
        [":7", ":3", ":1", ":", "5", "."], [":7", ":3", ":1", ":", ":5\\c", "."],
        [":7", ":3", ":1", ":", ":5", ".", "--device", "x"],
        [":7", ":3", ":1", ":a,a", ":5", "."],
    ],
)  # fmt: skip
def test_what_the_server_should_not_have_sent_is_refused(
    slot: WindowsSlot, words: list[str]
) -> None:
    for number in range(2):
        (slot.path / f"gb_own_{number}").write_text("own")
    job = manifest("say")
    job = Manifest("lab", (*job.command, "{i}"), {"i": "int"}, job.inputs)
    assert slot.run(job, words=words) == 195
    assert slot.ending.reason == "bad_arguments"
    assert slot.output is None


@needs_wine
def test_the_command_runs_in_a_clean_environment(slot: WindowsSlot) -> None:
    slot.wine.environment["GRIDBOT_TEST_SECRET"] = "not for jobs"
    words = [":7", ":3", ":1", ":", ".", "--device", "0", "--device", "2"]
    try:
        assert slot.run(manifest("environment"), words=words) == 0, "its input is empty"
    finally:
        del slot.wine.environment["GRIDBOT_TEST_SECRET"]
    folder, *lines = slot.ending.stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    assert folder == found["HOME"] == found["USERPROFILE"] == f"{found['GRIDBOT_SLOT']}\\work"
    assert found["TEMP"] == found["TMP"] == f"{folder}\\tmp"
    assert [found[f"GRIDBOT_{name}"] for name in ("BOT", "SEQ", "REPLICA")] == ["7", "3", "1"]
    assert found["GRIDBOT_GPUS"] == found["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert "GRIDBOT_TEST_SECRET" not in found
    assert found["SystemRoot"]


@needs_wine
@pytest.mark.parametrize("command", ["no-such-program", "note.txt", "run.bat", "./prog2"])
def test_what_is_no_program_is_told_so(slot: WindowsSlot, command: str) -> None:
    (slot.path / "gb_1").write_bytes(b"text")
    (slot.path / "gb_2").write_bytes(b"MZ")
    inputs = (FileRef("note.txt", "1" * 64, 1), FileRef("run.bat", "2" * 64, 1))
    job = manifest(inputs=inputs)
    assert slot.run(Manifest("lab", (command,), inputs=job.inputs)) == 195
    assert slot.ending.reason == "not_executable"
    assert f"cannot execute '{command}'" in slot.ending.stderr


@needs_wine
@pytest.mark.parametrize("command", ["prog", "prog.exe", "./prog.exe", "PROG.EXE"])
def test_a_program_is_found_with_and_without_its_ending(slot: WindowsSlot, command: str) -> None:
    assert slot.run(Manifest("lab", (command, "say"), inputs=manifest().inputs)) == 0
    assert slot.output == b"out\r\n"


@needs_wine
def test_a_program_of_windows_is_found_on_its_path(slot: WindowsSlot) -> None:
    job = Manifest("lab", ("cmd", "/c", "echo", "{i}"), {"i": "int"}, manifest().inputs)
    assert slot.run(job, {"i": 5}) == 0
    assert slot.output == b"5\r\n"


# -------------------------------------------------------------------------------------- files


@needs_wine
def test_inputs_are_where_the_command_opens_them_also_what_reads_like_a_soft_link(
    slot: WindowsSlot,
) -> None:
    link = "<soft_link>../../projects/p/gb_0</soft_link>\n"
    (slot.path / "gb_1").write_text(link)
    (slot.path / "gb_own_0").write_text("mine\n")
    job = manifest("show", "Data/in.txt", inputs=(FileRef("Data/in.txt", "1" * 64, 1),))
    assert slot.run(job, own=("own/x.txt",)) == 0
    assert slot.output == link.encode()
    assert (slot.path / "work/own/x.txt").read_text() == "mine\n"


@needs_wine
@pytest.mark.parametrize(
    "name", ["prog.exe", "PROG.exe", "../main", ".hidden", "a/../b", "a//b", "nul", "a/Com1.txt",
             "a.", "c:x"],
)  # fmt: skip
def test_a_jobs_own_file_cannot_replace_a_signed_one_or_leave(slot: WindowsSlot, name: str) -> None:
    (slot.path / "gb_own_0").write_text("other")
    assert slot.run(manifest("say"), own=(name,)) == 195
    assert slot.ending.reason == "bad_arguments"


@needs_wine
def test_an_input_that_the_client_did_not_copy_puts_the_job_off(slot: WindowsSlot) -> None:
    assert slot.run(manifest("say", inputs=(FileRef("in", "1" * 64, 1),))) == 0
    text = (slot.path / "boinc_temporary_exit").read_text()
    assert text == "3600\nthe client did not copy input in\n"
    assert not (slot.path / "boinc_finish_called").exists()


def unbundle(slot: WindowsSlot, job: Manifest) -> dict[str, bytes]:
    assert slot.output is not None
    found = members(io.BytesIO(slot.output), len(slot.output), job)
    return {one.name: slot.output[one.offset : one.offset + one.size] for one in found}


@needs_wine
def test_several_outputs_travel_as_one_file(slot: WindowsSlot) -> None:
    (slot.path / "gb_own_0").write_text("input")
    texts = ("out/b.csv", "1", "out/a.csv", "2", ".hidden.csv", "3", "z", "4", "nab", "5")
    job = manifest(
        "texts", *texts, outputs=("stdout", "stderr", "out/*.csv", "*.csv", "z", "[a-n]a?", "[!z]")
    )
    assert slot.run(job, own=("in.csv",)) == 0
    assert unbundle(slot, job) == {
        "nab": b"5", "out/a.csv": b"2", "out/b.csv": b"1", "stderr": b"", "stdout": b"", "z": b"4",
    }  # fmt: skip


@needs_wine
@pytest.mark.parametrize(
    ("words", "fields", "reason"),
    [
        (("say",), {"outputs": ("result.txt",)}, "missing_output"),
        (("texts", "d/x", "1"), {"outputs": ("d",)}, "missing_output"),
        (("texts", "a b.csv", "1"), {"outputs": ("*.csv",)}, "bad_output_name"),
        (("fill", "f", "2"), {"outputs": ("f",), "max_output_bytes": 2047}, "output_too_big"),
    ],
)
def test_outputs_that_cannot_be_are_a_failure(
    slot: WindowsSlot, words: tuple[str, ...], fields: dict[str, object], reason: str
) -> None:
    assert slot.run(manifest(*words, **fields)) == 195
    assert (slot.ending.reason, slot.ending.exit_code) == (reason, 0)


@needs_wine
def test_a_restart_finds_a_clean_directory(slot: WindowsSlot) -> None:
    for _ in range(2):
        job = manifest("texts", "d/x", "1", outputs=("*", "d/*"))
        assert slot.run(job) == 0
        assert unbundle(slot, job) == {"d/x": b"1"}


# ------------------------------------------------------------------------------------- limits


@needs_wine
@pytest.mark.parametrize(
    ("words", "limits", "code", "reason"),
    [
        (("sleep",), Resources(seconds=1), 197, "time_limit"),
        (("hold", "300", "600"), Resources(memory_mb=100), 198, "memory_limit"),
        (("fill", "f", "3000"), Resources(disk_mb=1), 196, "disk_limit"),
    ],
)
def test_a_limit_ends_the_command(
    slot: WindowsSlot, words: tuple[str, ...], limits: Resources, code: int, reason: str
) -> None:
    assert slot.run(manifest(*words, resources=limits)) == code
    assert slot.ending.reason == reason


@needs_wine
def test_memory_is_that_of_all_processes_that_the_command_started(slot: WindowsSlot) -> None:
    mark = f"600s-{uuid.uuid4().hex}"  # for so long
    job = manifest("wait", "hold", "300", mark, resources=Resources(memory_mb=100))
    assert slot.run(job) == 198
    assert slot.ending.reason == "memory_limit"
    assert running(mark) == []


@needs_wine
def test_what_a_command_leaves_running_ends_with_it(slot: WindowsSlot) -> None:
    mark = uuid.uuid4().hex
    assert slot.run(manifest("leave", "sleep", mark, mark)) == 0
    assert running(mark) == []


# ------------------------------------------------------------------------------------- client


class Client:
    """BOINC's side of the shared memory, in a process of its own."""

    def __init__(self, slot: WindowsSlot) -> None:
        name = f"boinc_{uuid.uuid4().hex[:8]}"
        path = slot.path.parent / "client.exe"
        path.write_bytes(slot.wine.program)
        self.process = slot.wine.start(
            path, "client", f"shm_{name}", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        facts = f"<comm_obj_name>{name}</comm_obj_name>\n<client_pid>{self._line()}</client_pid>\n"
        (slot.path / "init_data.xml").write_text(f"<app_init_data>\n{facts}</app_init_data>\n")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def ask(self, line: str) -> str:
        """Say a line and return the answer; a message of the protocol is put into the memory."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def client(slot: WindowsSlot) -> Iterator[Client]:
    made = Client(slot)
    yield made
    made.end()


def count(slot: WindowsSlot) -> str:
    path = slot.path / "count"
    return path.read_text() if path.exists() else ""


@needs_wine
def test_suspend_and_resume_reach_the_command(slot: WindowsSlot, client: Client) -> None:
    with slot.started(manifest("count")) as process:
        until(lambda: count(slot) != "")
        client.ask("<suspend/>")
        until(lambda: client.ask("heard") == "1")
        before = settled(slot)
        client.ask("<resume/>")
        until(lambda: count(slot) not in ("", before))
        client.ask("<quit/>")
        assert process.wait(DEADLINE) == 0
    assert not (slot.path / "boinc_finish_called").exists()


def settled(slot: WindowsSlot) -> str:
    """The count when it stands still."""
    seen = [count(slot)]

    def is_still() -> bool:
        seen.append(count(slot))
        return len(seen) > 20 and len(set(seen[-20:])) == 1 and seen[-1] != ""

    until(is_still)
    return seen[-1]


@needs_wine
@pytest.mark.parametrize("message", ["<quit/>", "<abort/>"])
def test_quit_and_abort_end_the_command_without_a_finish_file(
    slot: WindowsSlot, client: Client, message: str
) -> None:
    mark = uuid.uuid4().hex
    with slot.started(manifest("sleep", mark)) as process:
        until(lambda: running(mark) != [])
        client.ask(message)
        assert process.wait(DEADLINE) == 0
    assert running(mark) == []
    assert not (slot.path / "boinc_finish_called").exists()
    assert slot.log == ""


@needs_wine
def test_the_client_is_told_how_far_the_command_is(slot: WindowsSlot, client: Client) -> None:
    with slot.started(manifest("progress", "25%")) as process:
        until(lambda: client.ask("status") == "1 <fraction_done>0.250000</fraction_done>")
        client.ask("<quit/>")
        assert process.wait(DEADLINE) == 0


@needs_wine
def test_a_command_outlives_neither_its_client_nor_the_shim(
    slot: WindowsSlot, client: Client
) -> None:
    mark = uuid.uuid4().hex
    with slot.started(manifest("sleep", mark)) as process:
        until(lambda: running(mark) != [])
        client.end()
        assert process.wait(DEADLINE) == 0
        assert running(mark) == []
    with slot.started(manifest("sleep", mark)) as process:
        until(lambda: running(mark) != [])
        process.kill()
    until(lambda: running(mark) == [])
    assert not (slot.path / "boinc_finish_called").exists()


@needs_wine
def test_a_second_start_in_a_slot_waits_for_the_first_to_end(slot: WindowsSlot) -> None:
    mark = uuid.uuid4().hex
    with slot.started(manifest("sleep", mark)) as first:
        until(lambda: running(mark) != [])
        with slot.started(manifest("say")) as second:
            assert first.wait(DEADLINE) == 0
            assert second.wait(DEADLINE) == 0
    assert running(mark) == []
    assert slot.output == b"out\r\n"
    assert not (slot.path / "gb_next").exists()


# ------------------------------------------------------------------------------------ building


@needs_compiler
def test_the_same_sources_build_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert windows.build.__wrapped__() == windows.build()
    assert windows.render(manifest("say")) == windows.render(manifest("say"))


@needs_compiler
def test_what_may_run_is_appended_to_the_program() -> None:
    job = manifest("say", outputs=("a.txt", "*.csv"))
    text = windows.render(job).removeprefix(windows.build()).decode()
    assert text.endswith(f"\nsize {len(text):010}\n")
    assert {"input prog.exe", "word 'prog", "word 'say", "pick a.txt", "match *.csv"} <= {
        *text.splitlines()
    }


def test_without_a_compiler_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unsuitable, match="install Debian's package gcc-mingw-w64-x86-64"):
        windows.build.__wrapped__()


@needs_compiler
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inputs": (FileRef("aux.c", "1" * 64, 1),)}, "file aux.c would be another one on"),
        ({"inputs": (FileRef("d/x.", "1" * 64, 1),)}, "file d/x. would be another one on"),
        ({"inputs": (FileRef("Prog.exe", "1" * 64, 1),)}, "files prog.exe and Prog.exe would be"),
        ({"inputs": (FileRef("PROG.exe/x", "1" * 64, 1),)}, "files prog.exe and PROG.exe would be"),
        ({"outputs": ("nul",)}, "file nul would be another one on"),
        ({"outputs": ("A.txt", "a.txt")}, "files A.txt and a.txt would be one on"),
        ({"outputs": ("Prog.exe",)}, "files prog.exe and Prog.exe would be one on"),
        ({"outputs": ("x;y*",)}, "is no pattern of plain characters"),
        ({"checkpoint": CheckpointRule(("state",))}, "checkpoints, which are not kept on Windows"),
        ({"image": "docker.io/library/python:3.12"}, "it asks for a container, which"),
    ],
)
def test_what_it_cannot_do_is_told_before_it_is_signed(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(Unsuitable, match=message):
        windows.render(manifest("say", **fields))


@needs_compiler
def test_a_command_that_is_too_long_for_windows_is_told_before_it_is_signed() -> None:
    with pytest.raises(Unsuitable, match="the command has 40014 characters, at most 32000"):
        windows.render(manifest(*["x" * 8000] * 5, "say"))
