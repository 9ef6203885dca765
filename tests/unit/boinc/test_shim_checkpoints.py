"""Checkpoints and progress of a command under a stock client, in every shell that is here."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.boinc_slot import SHELLS, Slot, manifest, state_of, until

from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.messages import FileRef, Manifest, Resources

RULE = CheckpointRule(("state",), every=30.0)
# Counts to its argument, with a checkpoint after each step; prints each step.
COUNT = """
import os, sys
step = int(open("state").read()) if os.path.exists("state") else 0
print(step, os.environ.get("GRIDBOT_CHECKPOINT", "-"), os.environ["GRIDBOT_CHECKPOINT_EVERY"])
open("state", "w").write(str(step + 1))
sys.exit(85 if step < 3 else 0)
"""
# Waits for its end, and saves when it is asked to end, which takes longer than the watch's tick.
WAIT = """
import os, signal, sys, time
def end(*_):
    time.sleep(3)
    open("state", "w").write("saved")
    sys.exit(85)
signal.signal(signal.SIGTERM, end)
if os.path.exists("state"):
    print(open("state").read())
    sys.exit(0)
print("waits", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(params=SHELLS)
def slot(request: pytest.FixtureRequest, tmp_path: Path) -> Slot:
    return Slot(tmp_path / "slot", request.param)


def python(script: str, **fields: object) -> Manifest:
    return manifest(sys.executable, "-c", script.replace("{", "{{").replace("}", "}}"), **fields)


def test_a_command_that_has_saved_goes_on_and_what_it_printed_is_kept(slot: Slot) -> None:
    assert slot.run(python(COUNT, checkpoint=RULE)) == 0
    assert slot.output == b"0 - 30\n1 1 30\n2 1 30\n3 1 30\n"
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("", 0)


def test_each_part_begins_in_a_clean_folder_with_the_inputs_and_the_checkpoint(slot: Slot) -> None:
    script = (
        "import os, sys; there = os.path.exists('state')\n"
        "print(sorted(os.listdir()), open('data').read())\n"
        "for name in ('state', 'rest', 'data'): open(name, 'w').write('changed')\n"
        "sys.exit(0 if there else 85)\n"
    )
    (slot.path / "gb_0").write_text("data")
    job = python(script, checkpoint=RULE, inputs=(FileRef("data", "0" * 64, 4),))
    assert slot.run(job) == 0
    assert slot.output == b"['data', 'tmp'] data\n['data', 'state', 'tmp'] data\n"


def test_a_client_that_quits_lets_the_command_save_and_a_restart_goes_on(slot: Slot) -> None:
    (slot.path / "boinc_mmap_file").write_bytes(bytes(8192))
    job, out = python(WAIT, checkpoint=RULE), slot.path / "gb_stdout"
    with slot.start(job) as process:
        until(lambda: out.exists() and out.read_bytes() == b"waits\n")
        slot.tell(b"<quit/>")
        assert process.wait(20) == 0
    assert not (slot.path / "boinc_finish_called").exists()
    assert slot.run(job) == 0
    assert slot.output == b"waits\nsaved\n"


def test_a_suspend_that_finds_no_command_waits_for_the_next_part(slot: Slot) -> None:
    (slot.path / "boinc_mmap_file").write_bytes(bytes(8192))
    script = (
        "import os, sys, time\n"
        "if os.path.exists('state'):\n"
        "    open('../second', 'w').close(); time.sleep(60)\n"
        "os.rename('../gb_job', '../first')\n"
        "while not os.path.exists('../go'): time.sleep(0.05)\n"
        "open('state', 'w').write('x'); sys.exit(85)\n"
    )
    with slot.start(python(script, checkpoint=RULE)) as process:
        until((slot.path / "first").exists)
        slot.tell(b"<suspend/>")
        time.sleep(2.5)  # two looks of the watch
        (slot.path / "go").touch()
        until((slot.path / "second").exists)
        job = int((slot.path / "gb_job").read_text())
        until(lambda: state_of(job) == "T")
        slot.tell(b"<quit/>")
        assert process.wait(20) == 0


def test_a_crash_goes_on_from_the_last_checkpoint(slot: Slot) -> None:
    job = python(
        "import os, signal, sys\n"
        "step = int(open('state').read()) if os.path.exists('state') else 0\n"
        "print(step, flush=True)\n"
        "if step == 1 and not os.path.exists('../crashed'):\n"
        "    open('../crashed', 'w').close(); signal.pause()\n"
        "open('state', 'w').write(str(step + 1)); sys.exit(85 if step < 2 else 0)\n",
        checkpoint=RULE,
    )
    with slot.start(job) as process:
        until((slot.path / "crashed").exists)
        process.send_signal(signal.SIGKILL)
    assert slot.run(job) == 0
    assert slot.output == b"0\n1\n2\n"


def test_a_checkpoint_that_was_cut_off_is_left_and_the_job_begins_anew(slot: Slot) -> None:
    (slot.path / "gb_saved").write_bytes(b"no archive")
    assert slot.run(python(COUNT, checkpoint=RULE)) == 0
    assert slot.output == b"0 - 30\n1 1 30\n2 1 30\n3 1 30\n"


def test_a_checkpoint_outlives_a_disk_that_is_full_when_it_is_restored(slot: Slot) -> None:
    state, saved = slot.path / "state", slot.path / "gb_saved"
    state.write_bytes(b"x" * 300_000)
    subprocess.run(["tar", "-cf", saved, "-C", slot.path, "state"], check=True)
    slot.render(python(COUNT, checkpoint=RULE))
    # A limit on file sizes is what a full disk looks like to those who write.
    limited = f"ulimit -f 100; exec {' '.join(slot.shell)} main :7 :3 :1 : ."
    with (slot.path / "stderr.txt").open("wb") as stderr:
        subprocess.run(
            ["dash", "-c", f"trap '' XFSZ; {limited}"], cwd=slot.path, stderr=stderr, check=True
        )
    assert (slot.path / "boinc_temporary_exit").read_text() == "3600\nthe disk is full\n"
    assert saved.stat().st_size > 300_000


@pytest.mark.parametrize(
    ("script", "fields", "reason"),
    [
        ("exit(85)", {}, "bad_checkpoint"),
        ("import os; os.symlink('/etc/hostname', 'state'); exit(85)", {}, "bad_checkpoint"),
        ("open('state', 'w').write('same'); exit(85)", {}, "no_progress"),
        ("open('state', 'w').write('x' * 1001); exit(85)", {"max_output_bytes": 1000},
         "checkpoint_too_big"),
        ("import time; open('state', 'w').write(str(time.time())); exit(85)",
         {"resources": Resources(seconds=1)}, "time_limit"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_none_or_without_end_is_a_failure(
    slot: Slot, script: str, fields: dict[str, object], reason: str
) -> None:
    assert slot.run(python(script, checkpoint=RULE, **fields)) != 0
    assert slot.ending is not None
    assert slot.ending.reason == reason
    assert slot.output is None


def test_what_finds_no_room_does_not_count_as_a_checkpoint(slot: Slot) -> None:
    script = (
        "import os, sys\n"
        "if os.path.exists('state'): sys.exit(0)\n"
        "if not os.path.exists('../room'): os.mkdir('../gb_saving')\n"
        "open('state', 'w').write('same'); sys.exit(85)\n"
    )
    for _ in range(4):
        assert slot.run(python(script, checkpoint=RULE)) == 0
        assert (slot.path / "boinc_temporary_exit").exists()
    (slot.path / "room").touch()
    assert slot.run(python(script, checkpoint=RULE)) == 0
    assert slot.ending is not None
    assert slot.ending.reason == ""


def test_without_a_rule_the_exit_code_is_like_any_other(slot: Slot) -> None:
    assert slot.run(python("exit(85)")) == 85
    assert slot.ending is not None
    assert slot.ending.reason == "exit_nonzero"


# ------------------------------------------------------------------------------------ progress


def told(slot: Slot) -> str:
    """What the client would read next."""
    kilobyte = (slot.path / "boinc_mmap_file").read_bytes()[5120:6144]
    return kilobyte[1:].split(b"\0")[0].decode() if kilobyte[0] == 1 else ""


@pytest.mark.parametrize(("word", "part"), [("0.25", "0.250000"), ("42%", "0.420000")])
def test_the_client_is_told_how_far_the_command_is(slot: Slot, word: str, part: str) -> None:
    (slot.path / "boinc_mmap_file").write_bytes(bytes(8192))
    script = (
        "import os, time\n"
        f"open(os.environ['GRIDBOT_PROGRESS'], 'w').write('{word}\\n')\n"
        "while not os.path.exists('../go'): time.sleep(0.05)\n"
    )
    with slot.start(python(script)) as process:
        until(lambda: told(slot) == f"<fraction_done>{part}</fraction_done>")
        (slot.path / "go").touch()
        assert process.wait(20) == 0


@pytest.mark.parametrize("word", ["", "nan", "1.5", "-1", "0x1", "1e", "1 2", "</x>", "9" * 100])
def test_anything_else_says_nothing(slot: Slot, word: str) -> None:
    (slot.path / "boinc_mmap_file").write_bytes(bytes(8192))
    script = (
        "import os, time\n"
        f"open(os.environ['GRIDBOT_PROGRESS'], 'w').write('{word}')\n"
        "while not os.path.exists('../gb_ticks'): time.sleep(0.05)\n"
    )
    assert slot.run(python(script)) == 0
    assert told(slot) == ""


def test_a_command_without_progress_says_nothing(slot: Slot) -> None:
    (slot.path / "boinc_mmap_file").write_bytes(bytes(8192))
    script = "import os, time\nwhile not os.path.exists('../gb_ticks'): time.sleep(0.05)\n"
    assert slot.run(python(script)) == 0
    assert told(slot) == ""


def test_what_the_client_has_not_read_is_not_overwritten(slot: Slot) -> None:
    (slot.path / "boinc_mmap_file").write_bytes(bytes(5120) + b"\1unread" + bytes(3000))
    script = (
        "import os, time\n"
        "open(os.environ['GRIDBOT_PROGRESS'], 'w').write('0.5')\n"
        "while not os.path.exists('../gb_ticks'): time.sleep(0.05)\n"
    )
    assert slot.run(python(script)) == 0
    assert re.fullmatch("unread", told(slot))
