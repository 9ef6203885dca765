"""Input and output files under a stock client: where the shim puts them and what it returns."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.boinc_slot import SHELLS, Slot, manifest, shell_job

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_server.boinc.application.shim.bundle import BadBundle, members


@pytest.fixture(params=SHELLS)
def slot(request: pytest.FixtureRequest, tmp_path: Path) -> Slot:
    return Slot(tmp_path / "slot", request.param)


def inputs_of(slot: Slot, job: Manifest, contents: dict[str, str], own: dict[str, str]) -> None:
    """Copy files into the slot as the client does."""
    for number, ref in enumerate(job.inputs):
        (slot.path / f"gb_{number}").write_text(contents[ref.name])
    for number, content in enumerate(own.values()):
        (slot.path / f"gb_own_{number}").write_text(content)


def test_point_11_input_files_are_where_the_command_opens_them(slot: Slot) -> None:
    contents = {"prog": "#!/bin/sh\ncat data/in.txt own/x.txt y\n", "data/in.txt": "signed\n"}
    job = manifest(
        "prog",
        inputs=tuple(FileRef(name, "0" * 64, 1, name == "prog") for name in contents),
    )
    own = {"own/x.txt": "mine\n", "y": "too\n"}
    inputs_of(slot, job, contents, own)
    assert slot.run(job, {}, tuple(own)) == 0
    assert slot.output == b"signed\nmine\ntoo\n"


@pytest.mark.parametrize("name", ["prog", "../main", ".hidden", "a/../b", "-x", "a//b", "a/", "/a"])
def test_a_jobs_own_file_cannot_replace_a_signed_one_or_leave(slot: Slot, name: str) -> None:
    job = manifest("prog", inputs=(FileRef("prog", "0" * 64, 1, True),))
    inputs_of(slot, job, {"prog": "#!/bin/sh\necho signed\n"}, {name: "#!/bin/sh\necho other\n"})
    assert slot.run(job, {}, (name,)) == 195
    assert slot.ending is not None
    assert slot.ending.reason == "bad_arguments"


def test_point_14_a_missing_output_is_a_failure(slot: Slot) -> None:
    assert slot.run(manifest("true", outputs=("result.txt",))) == 195
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("missing_output", 0)
    assert "output 'result.txt' is not there as a file" in slot.ending.stderr


@pytest.mark.parametrize(
    "make",
    ["ln -s /etc/passwd result.txt", "mkdir result.txt", "ln -s /etc d; ln -s . result.txt"],
)
def test_only_a_regular_file_is_an_output(slot: Slot, make: str) -> None:
    assert slot.run(shell_job(make, outputs=("result.txt",))) == 195
    assert slot.ending is not None
    assert slot.ending.reason == "missing_output"


def test_no_link_on_the_way_to_an_output_is_followed(slot: Slot, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.txt").write_text("secret")
    job = shell_job(f"ln -s {elsewhere} d", outputs=("d/secret.txt",))
    assert slot.run(job) == 195
    slot = slot.again()
    assert slot.run(replace(job, outputs=("*/*.txt",))) == 0
    assert slot.output is None


def test_outputs_together_stay_below_their_limit(slot: Slot) -> None:
    job = shell_job("printf 12345 > a; printf 67890 > b", outputs=("a", "b"), max_output_bytes=9)
    assert slot.run(job) == 195
    assert slot.ending is not None
    assert (slot.ending.reason, slot.ending.exit_code) == ("output_too_big", 0)
    assert slot.again().run(replace(job, max_output_bytes=10)) == 0


def test_too_many_outputs_are_a_failure(slot: Slot) -> None:
    script = "i=0; while [ $i -lt 257 ]; do : > $i.x; i=$((i+1)); done"
    assert slot.run(shell_job(script, outputs=("*.x",))) == 195
    assert slot.ending is not None
    assert slot.ending.reason == "too_many_outputs"


def unbundle(slot: Slot, job: Manifest) -> dict[str, bytes]:
    assert slot.output is not None
    file = io.BytesIO(slot.output)
    found = members(file, len(slot.output), job)
    return {one.name: slot.output[one.offset : one.offset + one.size] for one in found}


def test_point_19_several_outputs_travel_as_one_file(slot: Slot) -> None:
    job = shell_job(
        "mkdir out; printf 1 > out/b.csv; printf 2 > out/a.csv; : > .hidden.csv; printf z > z;"
        " printf '\\0\\n' > nul; echo log; echo err >&2",
        outputs=("stdout", "stderr", "out/*.csv", "*.csv", "z", "[a-n]u?", "out/a.csv"),
    )
    assert slot.run(job) == 0
    assert unbundle(slot, job) == {
        "nul": b"\0\n", "out/a.csv": b"2", "out/b.csv": b"1",
        "stderr": b"err\n", "stdout": b"log\n", "z": b"z",
    }  # fmt: skip


def test_equal_outputs_make_equal_bundles(slot: Slot, tmp_path: Path) -> None:
    job = shell_job("for i in b a C; do echo $i > $i.x; done", outputs=("*.x", "stdout"))
    assert slot.run(job) == 0
    other = Slot(tmp_path / "other", SHELLS[-1])
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        assert other.run(job) == 0
    finally:
        del os.environ["LC_ALL"]
    assert slot.output == other.output
    assert list(unbundle(slot, job)) == ["C.x", "a.x", "b.x", "stdout"]


def test_a_pattern_may_match_nothing_and_does_not_match_inputs(slot: Slot) -> None:
    job = manifest("true", inputs=(FileRef("in.csv", "0" * 64, 1),), outputs=("*.csv",))
    inputs_of(slot, job, {"in.csv": "1"}, {"own.csv": "2"})
    assert slot.run(job, {}, ("own.csv",)) == 0
    assert slot.output is None


def test_a_matching_file_with_a_name_that_cannot_be_sent_is_a_failure(slot: Slot) -> None:
    assert slot.run(shell_job("touch 'a b.csv'", outputs=("*.csv",))) == 195
    assert slot.ending is not None
    assert slot.ending.reason == "bad_output_name"


def test_without_outputs_nothing_is_left_to_upload(slot: Slot) -> None:
    assert slot.run(shell_job("echo x", outputs=())) == 0
    assert slot.output is None


def test_a_restart_finds_a_clean_directory(slot: Slot) -> None:
    job = shell_job(
        "ls; cat in; echo x >> in; mkdir -m 0 sealed", inputs=(FileRef("in", "0" * 64, 1),)
    )
    for _ in range(2):
        inputs_of(slot, job, {"in": "fresh\n"}, {})
        assert slot.run(job) == 0
        assert slot.output == b"in\ntmp\nfresh\n"


def test_an_input_that_the_client_did_not_copy_puts_the_job_off(slot: Slot) -> None:
    job = manifest("true", inputs=(FileRef("in", "0" * 64, 1),))
    assert slot.run(job) == 0
    text = (slot.path / "boinc_temporary_exit").read_text()
    assert text == "3600\nthe client did not copy input in\n"
    assert not (slot.path / "boinc_finish_called").exists()


FIRST = b"gridbot-outputs 1\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a bundle"),
        (b"\x1f\x8b", "is not a bundle"),
        (FIRST + b"junk", "there is no output at byte 18"),
        (FIRST + b"1 a", "there is no output at byte 18"),
        (FIRST + b"-1 a\n", "there is no output at byte 18"),
        (FIRST + b"9999999999999999999 a\n", "there is no output at byte 18"),
        (FIRST + b"5 a\n123", "goes on after what may be there"),
        (FIRST + b"101 a\n" + b"x" * 101, "goes on after what may be there"),
        (FIRST + b"1 b\n11 a\n1", "output a is out of order"),
        (FIRST + b"1 a\n11 a\n1", "output a is out of order"),
        (FIRST + b"1 c\n1", "output c was not asked for"),
        (FIRST + b"1 x/c\n1", "output x/c was not asked for"),
        (FIRST + b"1 ../a\n1", "is not a usable file name"),
        (FIRST + b"1 \xff\n1", "is not a usable file name"),
    ],
)
def test_a_bundle_that_no_shim_makes_is_refused(content: bytes, message: str) -> None:
    job = manifest("x", outputs=("a", "b", "*.y"), max_output_bytes=100)
    with pytest.raises(BadBundle, match=message):
        list(members(io.BytesIO(content), len(content), job))
