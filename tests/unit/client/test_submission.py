import dataclasses
import inspect
import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pandas
import pytest

from gridbot import reliable
from gridbot.api.botfile import read_bot_file
from gridbot.api.errors import BadInput, PolicyError
from gridbot.api.program import platforms_of
from gridbot.api.programs import PlatformProgram
from gridbot.api.session import Session
from gridbot.api.submission import Submission, prepare
from gridbot.commands.submit import submission_fields

ZEROS = "0" * 64


def prepared(tmp_path: Path, command: str | list[str], **fields: Any) -> Any:
    return prepare(Submission(command=command, base=tmp_path, **fields))


def names(found: Any) -> list[str]:
    return [ref["name"] for ref in found.body["inputs"]]


@pytest.mark.parametrize(
    ("command", "fields", "message"),
    [
        ("p {thta}", {"items": [{"theta": 1}]}, "names {thta}, but the items have only {theta}"),
        ("p {}", {}, "names {i}, but there are no items; add --items"),
        (
            "p {k}",
            {"items": pandas.DataFrame({"x": [1]}, index=pandas.Index([5], name="k"))},
            "the items have only {x}: k is in the frame's index; pass frame.reset_index()",
        ),
        ("p", {"policy": "tail.ad"}, "policy 'tail.ad' is a text, not a file; for the file: Path("),
        ("p", {"attempts": 0}, "attempts: 0 is no whole number of 1 or more"),
        ("p", {"quorum": "2"}, "quorum: '2' is no whole number"),
        ("p", {"env": ["A=1"]}, "env: ['A=1'] is no mapping; write {'NAME': 'value'}"),
        ("p", {"env": {"A": None}}, "env: A is None; pass a text or a number"),
        ("p", {"inputs": ["{x}.dat"], "items": range(2)}, "input {x}.dat names {x}"),
        ("p {", {}, "has a single '{'"),
        ("", {}, "no command given"),
        ("p 'x", {}, "cannot be split: No closing quotation"),
        ("p", {"inputs": ["none.dat"]}, "input none.dat: No such file or directory"),
        ("./none {}", {"items": range(2)}, "./none is no file here, and no input has its name"),
        ("p", {"outputs": ["{j}.dat"], "items": range(2)}, "the outputs names {j}, but"),
        ("p", {"outputs": ["{j}.dat"]}, "the outputs names {j}, but there are no items"),
        ("p", {"outputs": ["a.dat="]}, "output 'a.dat=': write FOUND=NAME, or FOUND alone"),
        ("p", {"outputs": ["*.dat=a"]}, "'*.dat' is none of the outputs, or is a pattern"),
        ("p", {"outputs": ["stdout=a"]}, "'stdout' is none of the outputs, or is a pattern"),
        ("p", {"policy": Path("none.ad")}, "none.ad: No such file or directory"),
        ("p", {"inputs": ["s3://b/k"]}, "input s3://b/k: clients fetch from http:// and https://"),
        ("p", {"inputs": ["http://h/a b"]}, "input b: clients fetch from http:// and https://"),
        ("p", {"inputs": ["http://h/a"]}, "for both: gridbot data hash http://h/a"),
        ("p", {"inputs": [f"http://h/a#sha256={ZEROS}"]}, "expected #sha256=HASH&size=BYTES"),
        ("p", {"inputs": [f"http://h/a#sha256={ZEROS}&size=-1"]}, "and a whole number"),
        (
            "p",
            {"inputs": [f"http://h/a#sha256={ZEROS}&size=1&x=y"]},
            "'x=y' behind # is not one of",
        ),
        ("p", {"inputs": ["http://h/a#size=1 http://h/b#size=2"]}, "'size=2' behind # is not one"),
        ("p", {"inputs": [f"http://h/#sha256={ZEROS}&size=1"]}, "to name it: http://h/#name=NAME"),
        ("p", {"inputs": [f"http://u:p@h/a#sha256={ZEROS}&size=1"]}, "is not a usable URL"),
        ("p", {"inputs": [" ".join(["http://h/a"] * 9)]}, "9 sources, at most 8"),
        ("p", {"inputs": [f"http://h/{{x}}#sha256={ZEROS}&size=1"]}, "names {x}, but there are no"),
        ("p", {"requirements": f"http://h/a#sha256={ZEROS}&size=1"}, "must be one file here"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    tmp_path: Path, command: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as error:
        prepared(tmp_path, command, **fields)
    assert message in str(error.value)


def test_a_text_alone_is_one_and_a_number_is_a_variable(tmp_path: Path) -> None:
    (tmp_path / "prog").write_text("#!/bin/sh\n")
    found = prepared(tmp_path, "./prog", inputs="prog", outputs="fit.json", env={"N": 5})
    assert names(found) == ["prog"]
    assert found.manifest.outputs == ("fit.json",)
    assert found.manifest.environment == {"N": "5"}


def test_an_image_is_a_file_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "tool.sif").touch()
    (tmp_path / "BOT.toml").write_text('command = "p"\nimage = "tool.sif"\n')
    found = prepared(tmp_path, **read_bot_file(tmp_path / "BOT.toml"))
    assert (found.body["image"], names(found)) == ("tool.sif", ["tool.sif"])
    assert not found.body["inputs"][0]["executable"]
    found = prepared(tmp_path, "p", image="docker.io/library/python:3.12")
    assert (found.body["image"], names(found)) == ("docker.io/library/python:3.12", [])
    for missing in ("tol.sif", "tol.tar"):
        with pytest.raises(BadInput, match=f"image {missing}: there is no such file"):
            prepared(tmp_path, "p", image=missing)


def test_a_wrong_policy_is_shown_with_a_caret(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="line 1, column 9") as error:
        prepared(tmp_path, "p", policy="Rank = 1 +* 2;".replace("1 ", ""))
    assert error.value.pretty.splitlines()[-1].strip() == "^"


def test_a_local_program_may_also_be_named_as_an_input(tmp_path: Path) -> None:
    (tmp_path / "prog").write_text("#!/bin/sh\n")
    found = prepared(tmp_path, "./prog {}", items=range(3), inputs=["prog"])
    assert names(found) == ["prog"]
    assert found.body["inputs"][0]["executable"]
    assert found.notes == []


def test_a_local_program_is_sent_as_an_executable(tmp_path: Path) -> None:
    (tmp_path / "prog").write_text("#!/bin/sh\n")
    found = prepared(tmp_path, "./prog {}", items=range(3))
    assert found.body["inputs"][0]["executable"]
    assert names(found) == ["prog"]
    assert found.notes == ["./prog is uploaded as an executable input of all jobs"]


def test_a_file_that_is_named_but_not_sent_is_noted(tmp_path: Path) -> None:
    (tmp_path / "point.py").write_text("")
    assert "add --input point.py" in prepared(tmp_path, "python3 point.py").notes[0]
    assert prepared(tmp_path, "python3 point.py", inputs=["point.py"]).notes == []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", "Rank = 7;\n"),
        ("Concurrency = 3;", "Rank = 7;\nConcurrency = 3;"),
        (" [ Concurrency = 3; ]", " [Rank = 7;\n Concurrency = 3; ]"),
        ("Rank = -2;\nConcurrency = 3;", "Rank = 7;\nConcurrency = 3;"),
    ],
)
def test_a_priority_is_a_rank_at_the_head_of_the_policy(
    tmp_path: Path, policy: str, expected: str
) -> None:
    assert prepared(tmp_path, "p", policy=policy, priority=7).body["policy"] == expected


@pytest.mark.parametrize("policy", ["rank = Host.Memory;", "/* mine */ [ Concurrency = 3; ]"])
def test_a_priority_beside_a_policy_that_has_no_place_for_it_is_refused(
    tmp_path: Path, policy: str
) -> None:
    with pytest.raises(BadInput, match="Rank"):
        prepared(tmp_path, "p", policy=policy, priority=7)


def test_a_script_that_nobody_has_is_noted(tmp_path: Path) -> None:
    (note,) = prepared(tmp_path, "python3 absent.py {}", items=range(3)).notes
    assert note == "absent.py is neither a file here nor an input: jobs will not find it"
    for known in ("python3 /opt/there.py", "python3 -m module", "sort absent.csv", "p {}.py"):
        assert prepared(tmp_path, known, items=range(3)).notes == []


def test_inputs_keep_their_relative_path_and_their_executable_bit(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "a.dat").write_text("a")
    (tmp_path / "data" / "deep" / "run").write_text("b")
    os.chmod(tmp_path / "data" / "deep" / "run", 0o755)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("c")
    files = ["./data/deep/run", str(outside), "data/a.dat=copy.dat"]
    found = prepared(tmp_path, "p", inputs=files)
    assert names(found) == ["data/deep/run", outside.name, "copy.dat"]
    assert [ref["executable"] for ref in found.body["inputs"]] == [True, False, False]


def test_a_limit_of_time_holds_while_inputs_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    def late() -> None:
        while reliable.remaining() > 0:
            pass
        prepared(tmp_path, "true", inputs=["a"])

    with pytest.raises(reliable.OutOfTime):
        reliable.trying(0.01, times=1)(late)()


def test_two_inputs_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("")
    with pytest.raises(BadInput, match="two inputs are named x; rename one: --input FILE=NAME"):
        prepared(tmp_path, "p", inputs=["a/x=x", "b/x=x"])


def test_each_row_may_have_its_own_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.dat").write_text(name)
    (tmp_path / "runs.csv").write_text("name,n\na,1\nb,2\na,3\n")
    found = prepared(
        tmp_path, "p in.dat {n}", inputs=["{name}.dat=in.dat"], items=tmp_path / "runs.csv"
    )
    jobs = list(found.jobs())
    jobs = [json.loads(text) for text in jobs]
    assert [job["args"]["n"] for job in jobs] == [1, 2, 3]
    assert {ref["name"] for job in jobs for ref in job["inputs"]} == {"in.dat"}
    assert jobs[0]["inputs"] == jobs[2]["inputs"] != jobs[1]["inputs"]
    assert len(found.files) == 2


def test_a_rows_missing_file_is_said_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("name\na\n")
    with pytest.raises(BadInput, match=r"runs.csv, line 2: input a.dat: No such file"):
        prepared(tmp_path, "p", inputs=["{name}.dat"], items=tmp_path / "runs.csv")


def test_a_bot_file_means_the_same_as_options(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("x\n1\n")
    (tmp_path / "BOT.toml").write_text(
        'command = ["p", "{x}"]\nitems = "p.csv"\ntime = "10m"\nmemory = 100\noutput = ["*.o"]\n'
    )
    fields = submission_fields([str(tmp_path / "BOT.toml")], {"memory": 200})
    submission = Submission(**fields)
    assert submission.memory == 200
    assert submission.outputs == ["*.o"]
    found = prepare(submission)
    assert found.survey.count == 1
    assert found.manifest.resources.seconds == 600


@pytest.mark.parametrize(
    ("given", "megabytes"),
    [(500, 500), ("500", 500), ("500MB", 500), ("2GB", 2048), ("1.5g", 1536), ("1 TiB", 1 << 20),
     ("100kB", 1)],
)  # fmt: skip
def test_sizes_have_units(tmp_path: Path, given: int | str, megabytes: int) -> None:
    (tmp_path / "BOT.toml").write_text(f'command = ["p"]\nmemory = {json.dumps(given)}\n')
    for fields in (
        {"command": "p", "memory": given},
        submission_fields([str(tmp_path / "BOT.toml")], {}),
        submission_fields(["p"], {"memory": str(given)}),
    ):
        assert prepare(Submission(**fields)).manifest.resources.memory_mb == megabytes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": "2 apples"}, "memory: '2 apples' is not a size; write 500MB or 2GB"),
        ({"disk": 0}, "disk: 0 is not a size"),
        ({"max_output": -5}, "max_output: -5 is not a size"),
        ({"time": "soon"}, "time: 'soon' is not a duration; write 90s, 10m, 2h or 1d"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        prepared(tmp_path, "p", **fields)


@pytest.mark.parametrize("argument", ["x" * 300, "/".join(["x"] * 4000)])
def test_an_argument_may_be_longer_than_a_name_of_a_file(tmp_path: Path, argument: str) -> None:
    assert prepared(tmp_path, ["echo", argument]).manifest.command == ("echo", argument)


def test_submit_takes_every_field_of_a_submission() -> None:
    told = set(inspect.signature(Session.submit).parameters) - {"self", "progress", "told"}
    assert told == {field.name for field in dataclasses.fields(Submission)}


def test_the_deprecated_key_is_the_idempotency_key(tmp_path: Path) -> None:
    path = tmp_path / "BOT.toml"
    path.write_text('command = ["p"]\nkey = "old"\n')
    from_file = Submission(**submission_fields([str(path)], {}))
    from_options = Submission(**submission_fields(["p"], {"key": "mine"}))
    assert (from_file.idempotency_key, from_options.idempotency_key) == ("old", "mine")


def test_an_option_overrides_the_deprecated_key_of_a_bot_file(tmp_path: Path) -> None:
    path = tmp_path / "BOT.toml"
    path.write_text('command = ["p"]\nkey = "old"\n')
    fields = submission_fields([str(path)], {"idempotency_key": "new"})
    assert Submission(**fields).idempotency_key == "new"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('command = ["p"]\nmemmory = 1', "unknown key 'memmory'; did you mean memory?"),
        ('command = ["p"]\nzzz = 1', "unknown key 'zzz'; known keys: command, name"),
        ('command = ["p"]\ncpus = "2"', "cpus must be a whole number, not '2'"),
        ('command = ["p", 1]', "command must be a list of strings or a string"),
        ("cpus = 1", "command is missing"),
        ("= 1", "(at line 1, column 1)"),
    ],
)
def test_a_wrong_bot_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "BOT.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        read_bot_file(path)
    assert message in str(error.value)


def test_jobs_come_from_one_source_only() -> None:
    with pytest.raises(BadInput, match="items and range exclude each other"):
        submission_fields(["p"], {"range": "0:3", "items": "x.csv"})


def header(kind: str, machine: int) -> bytes:
    """The first bytes of a program, up to the machine that it is for."""
    if kind == "ELF":
        return b"\x7fELF\x02\x01" + bytes(12) + struct.pack("<H", machine)
    if kind == "PE":
        return (
            b"MZ"
            + bytes(0x3A)
            + struct.pack("<I", 0x80)
            + bytes(0x40)
            + b"PE\0\0"
            + struct.pack("<H", machine)
        )
    if kind == "fat":
        cpus = b"".join(struct.pack(">5I", cpu, 0, 0, 0, 0) for cpu in (0x01000007, machine))
        return b"\xca\xfe\xba\xbe" + struct.pack(">I", 2) + cpus
    return b"\xcf\xfa\xed\xfe" + struct.pack("<I", machine)


@pytest.mark.parametrize(
    ("kind", "machine", "platforms"),
    [
        ("ELF", 62, ("linux-x86_64",)),
        ("ELF", 183, ("linux-aarch64",)),
        ("ELF", 3, ("linux-i686", "linux-x86_64")),
        ("ELF", 9999, ()),
        ("PE", 0x8664, ("windows-amd64",)),
        ("Mach-O", 0x0100000C, ("darwin-arm64",)),
        ("fat", 0x0100000C, ("darwin-x86_64", "darwin-arm64")),
    ],
)
def test_jobs_go_where_their_program_was_compiled_for(
    tmp_path: Path, kind: str, machine: int, platforms: tuple[str, ...]
) -> None:
    (tmp_path / "prog").write_bytes(header(kind, machine))
    found = prepared(tmp_path, "./prog")
    assert found.manifest.platforms == platforms
    told = [note for note in found.notes if "only such hosts get jobs" in note]
    assert (
        told
        == [f"./prog is a program for {' and '.join(platforms)}: only such hosts get jobs"][
            : len(platforms)
        ]
    )


@pytest.mark.parametrize(
    "content", [b"#!/bin/sh\n", b"", b"\x7fELF", b"MZ", b"\xca\xfe\xba\xbe\0\0\0\x34"]
)
def test_what_is_no_compiled_program_runs_anywhere(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prog").write_bytes(content)
    assert prepared(tmp_path, "./prog").manifest.platforms == ()


def test_a_platform_that_was_asked_for_stays_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "prog").write_bytes(header("ELF", 62))
    found = prepared(tmp_path, "./prog", platforms=["linux-aarch64"])
    assert found.manifest.platforms == ("linux-aarch64",)
    assert "./prog is a program for linux-x86_64, not for linux-aarch64" in found.notes


def test_outputs_must_fit_on_the_disk(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="max_output of 2048 MB is more than disk, 1024 MB"):
        prepared(tmp_path, "p", max_output="2GB")
    assert prepared(tmp_path, "p", max_output="2GB", disk="2GB").manifest.resources.disk_mb == 2048
    # The default is nobody's wish.
    assert prepared(tmp_path, "p", disk="10MB").manifest.resources.disk_mb == 10


# ---------------------------------------------------------------------------------- programs


def test_each_program_brings_its_own_files_and_all_share_the_rest(tmp_path: Path) -> None:
    for name, content in {"linux": header("ELF", 62), "mac": header("fat", 0x0100000C)}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "prog").write_bytes(content)
    (tmp_path / "kernels").write_bytes(b"k")
    (tmp_path / "data").write_bytes(b"d")
    table = {
        "linux-x86_64": PlatformProgram("linux/prog {}"),
        "linux-x86_64 gpu=nvidia": PlatformProgram("linux/prog --gpu {}", ["kernels"]),
        "darwin-arm64": PlatformProgram(["mac/prog", "{}"]),
    }
    found = prepared(tmp_path, "", programs=table, inputs=["data"], items=range(2))
    assert names(found) == ["data", "kernels", "linux/prog", "mac/prog"]
    assert [(p.where, p.command, p.inputs) for p in found.manifest.programs] == [
        ("linux-x86_64", ("linux/prog", "{}"), ("linux/prog",)),
        ("linux-x86_64 gpu=nvidia", ("linux/prog", "--gpu", "{}"), ("kernels", "linux/prog")),
        ("darwin-arm64", ("mac/prog", "{}"), ("mac/prog",)),
    ]
    assert found.manifest.command == ("linux/prog", "{}")
    assert found.manifest.platforms == ("linux-x86_64", "darwin-arm64")
    executable = {ref["name"] for ref in found.body["inputs"] if ref["executable"]}
    assert executable == {"linux/prog", "mac/prog"}


def test_a_row_without_a_command_has_that_of_the_submission(tmp_path: Path) -> None:
    table = {"linux-x86_64": PlatformProgram(), "darwin-arm64": PlatformProgram("other {}")}
    found = prepared(tmp_path, "prog {}", programs=table, items=range(2))
    assert [program.command[0] for program in found.manifest.programs] == ["prog", "other"]


@pytest.mark.parametrize(
    ("where", "kind", "machine", "told"),
    [
        ("windows-x86_64", "ELF", 62, "linux-x86_64"),
        ("linux-x86_64", "PE", 0x8664, "windows-amd64"),
        ("linux-x86_64 gpu=nvidia", "ELF", 183, "linux-aarch64"),
        ("linux-x86_64", "fat", 0x0100000C, "darwin-x86_64 and darwin-arm64"),
    ],
)
def test_a_program_that_was_compiled_for_another_platform_is_refused(
    tmp_path: Path, where: str, kind: str, machine: int, told: str
) -> None:
    (tmp_path / "prog").write_bytes(header(kind, machine))
    with pytest.raises(BadInput, match=f"programs: '{where}': prog is a program for {told}"):
        prepared(tmp_path, "", programs={where: PlatformProgram("./prog")})


@pytest.mark.parametrize(
    ("where", "kind", "machine"),
    [
        ("windows-x86_64", "PE", 0x8664),
        ("darwin-arm64", "fat", 0x0100000C),
        ("linux-i686", "ELF", 3),
        ("linux-x86_64", "ELF", 3),
        ("android-aarch64", "ELF", 183),
        ("freebsd-amd64", "ELF", 9999),
    ],
)
def test_a_program_that_was_compiled_for_its_platform_is_taken(
    tmp_path: Path, where: str, kind: str, machine: int
) -> None:
    (tmp_path / "prog").write_bytes(header(kind, machine))
    found = prepared(tmp_path, "", programs={where: PlatformProgram("./prog")})
    assert [program.where for program in found.manifest.programs] == [where]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"programs": {"linux": PlatformProgram("p")}}, "'linux' is no platform such as"),
        ({"programs": {"linux-x86_64 fast": PlatformProgram("p")}}, "'fast' is no condition"),
        ({"programs": {"linux-x86_64": PlatformProgram()}}, "'linux-x86_64': no command given"),
        ({"programs": {"linux-x86_64": PlatformProgram("p {x}")}}, "names {x}, but there are no"),
        ({"programs": {"linux-x86_64": PlatformProgram("p", ["{}.dat"])}}, "files of single jobs"),
        ({"programs": {"linux-x86_64": PlatformProgram("p", ["none"])}}, "input none: No such"),
        ({"programs": {"linux-x86_64": "p"}}, "pass a PlatformProgram"),
        ({"programs": ["linux-x86_64"]}, "is no mapping"),
        (
            {"programs": {"linux-x86_64": PlatformProgram("p")}, "platforms": ["linux-x86_64"]},
            "a table of programs names the platforms",
        ),
        ({"programs": {"linux-x86_64": PlatformProgram("p")}, "resident": 1}, "resident"),
    ],
)
def test_a_wrong_table_of_programs_is_told_before_anything_is_sent(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        prepared(tmp_path, "", **fields)


@pytest.mark.parametrize("kind", ["ELF", "PE", "Mach-O", "fat"])
def test_a_header_that_is_cut_off_or_hostile_names_no_platform_and_breaks_nothing(
    tmp_path: Path, kind: str
) -> None:
    whole = header(kind, {"ELF": 62, "PE": 0x8664}.get(kind, 0x0100000C))
    path = tmp_path / "prog"
    for size in range(len(whole.rstrip(b"\0"))):
        path.write_bytes(whole[:size])
        assert platforms_of(path) == (), size
    for number in range(len(whole)):
        path.write_bytes(whole[:number] + b"\xff" * 8 + whole[number + 8 :])
        platforms_of(path)


def test_of_a_program_only_the_head_is_read(tmp_path: Path) -> None:
    path = tmp_path / "prog"
    with path.open("wb") as file:
        file.write(b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 1 << 30))
        file.truncate(1 << 40)  # a file with a hole
    assert platforms_of(path) == ()


def test_a_bot_file_has_a_table_for_each_program(tmp_path: Path) -> None:
    path = tmp_path / "BOT.toml"
    path.write_text(
        'range = "0:3"\n[programs.linux-x86_64]\ncommand = ["echo", "{}"]\n'
        '[programs."linux-x86_64 gpu=nvidia cuda>=11"]\ncommand = ["true"]\ninput = ["BOT.toml"]\n'
    )
    fields = submission_fields([str(path)], {})
    found = prepare(Submission(**fields))
    assert [p.where for p in found.manifest.programs] == [
        "linux-x86_64", "linux-x86_64 gpu=nvidia cuda>=11",
    ]  # fmt: skip
    assert found.manifest.programs[1].inputs == ("BOT.toml",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("programs = 3\n", "programs must be tables such as [programs.linux-x86_64]"),
        ("[programs]\nlinux-x86_64 = 3\n", 'write [programs."linux-x86_64"]'),
        ("[programs.linux-x86_64]\ncpus = 3\n", "unknown key 'cpus'; there are command, input"),
        ("[programs.linux-x86_64]\ninput = 'x'\n", "input must be a list of strings"),
    ],
)
def test_a_wrong_table_in_a_bot_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "BOT.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=re.escape(message)):
        submission_fields([str(path)], {})


def test_a_url_is_an_input_that_is_not_sent(tmp_path: Path) -> None:
    given = f"http://h/dir/a%2Bb.dat?x=1#sha256={ZEROS}&size=7 https://m/a"
    found = prepared(tmp_path, "cat a+b.dat", inputs=[given])
    assert [*found.body["inputs"]] == [
        {"name": "a+b.dat", "sha256": ZEROS, "size": 7, "executable": False}
    ]
    assert found.body["sources"] == {"a+b.dat": ("http://h/dir/a%2Bb.dat?x=1", "https://m/a")}
    assert found.files == []


def test_a_program_may_come_from_a_url(tmp_path: Path) -> None:
    given = f"http://h/prog#sha256={ZEROS}&size=7"
    found = prepared(tmp_path, "./prog", inputs=[given])
    assert found.body["inputs"][0]["executable"]


def test_rows_have_hashes_and_sizes_of_inputs_from_urls(tmp_path: Path) -> None:
    given = "http://h/{run}?p={part}#sha256={hash}&size={bytes}&name={run}.dat"
    rows = [{"run": f"r{n}", "part": n, "hash": str(n) * 64, "bytes": n} for n in (1, 2)]
    found = prepared(tmp_path, "cat {run}.dat", inputs=[given], items=rows)
    assert found.body["sources"] == {"{run}.dat": ("http://h/{run}?p={part}",)}
    assert [*found.body["job_inputs"]] == [{"name": "*.dat", "executable": False}]
    jobs = [json.loads(text) for text in found.jobs()]
    assert [job["inputs"][0]["name"] for job in jobs] == ["r1.dat", "r2.dat"]
    assert [job["inputs"][0]["size"] for job in jobs] == [1, 2]
    with pytest.raises(BadInput, match=r"^items\[0\]: input http://h/r\?p=1: expected #sha256"):
        prepared(tmp_path, "cat", inputs=[given], items=[{**rows[0], "run": "r", "hash": "1"}])
