"""Claims about the table of programs: what a row may say, and which of them a host runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.manifest import CHOOSING, FileRef, Manifest, Resources
from gridbot_client.protocol.messages import ProtocolError
from gridbot_client.protocol.programs import HostProgram, Selector, choose, selector
from gridbot_client.protocol.software import Unpacked

LINUX = {"Platform": "linux-x86_64", "NumCpus": 8}
NVIDIA = {
    **LINUX,
    "NumGpus": 2,
    "NumNvidiaGpus": 2,
    "GpuVendor": "NVIDIA",
    "GpuDriver": "535.104.05",
    "GpuMemory": 8000,
    "CudaVersion": 12.2,
}


def table(*places: str) -> list[HostProgram]:
    return [HostProgram(where, (f"./{number}",)) for number, where in enumerate(places)]


def chosen(host: dict[str, Any], *places: str, may_use_gpus: bool = True) -> str | None:
    found = choose(table(*places), host, may_use_gpus=may_use_gpus)
    return found.where if found else None


def ref(name: str, *, executable: bool = False) -> FileRef:
    return FileRef(name, "a" * 64, 1, executable)


def manifest(**changes: Any) -> Manifest:
    programs = (
        HostProgram("linux-x86_64", ("linux/prog", "{i}"), ("linux/prog",)),
        HostProgram("windows-x86_64", ("windows/prog.exe", "{i}"), ("windows/prog.exe", "dlls")),
    )
    return Manifest(
        "ann",
        programs[0].command,
        {"i": "int"},
        (ref("linux/prog"), ref("windows/prog.exe"), ref("dlls"), ref("data")),
        archives={"dlls": Unpacked(1, 1)},
        platforms=("linux-x86_64", "windows-amd64"),
        programs=programs,
        **changes,
    )


def test_a_row_names_a_platform_and_conditions() -> None:
    where = "linux-x86_64 gpu=nvidia cuda>=11.4 driver>=470.57 gpu_memory>=4000 cpus=2"
    assert selector(where) == Selector("linux-x86_64", "nvidia", 11.4, (470, 57), 4000, 2)
    assert selector("windows-x86_64").platform == "windows-amd64", "as its hosts name it"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "no platform"),
        ("Linux", "no platform"),
        ("linux-x86_64 cuda>=11", "need its maker"),
        ("linux-x86_64 gpu=amd cuda>=11", "cuda is for gpu=nvidia"),
        ("linux-x86_64 gpu=voodoo", "the makers are nvidia"),
        ("linux-x86_64 gpu=nvidia cuda>=..", "no version"),
        ("linux-x86_64 gpu=nvidia cuda>11", "is no condition"),
        ("linux-x86_64 gpu=nvidia driver>=1..2", "no version"),
        ("linux-x86_64 cpus=0", "no whole number"),
        ("linux-x86_64 cpus=9999", "no whole number"),
        ("linux-x86_64 cpus=2 cpus=4", "there twice"),
        ("linux-x86_64 gpu=nvidia gpu_memory>=1.5", "no whole number"),
        ("linux-x86_64 " + "x" * 300, "no platform"),
        ("linux-x86_64 $(reboot)", "is no condition"),
    ],
)
def test_a_wrong_row_is_told_with_its_wrong_word(where: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=f"programs: .*{why}"):
        selector(where)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (LINUX, "linux-x86_64"),
        (NVIDIA, "linux-x86_64 gpu=nvidia cuda>=11"),
        ({**NVIDIA, "CudaVersion": 10.2}, "linux-x86_64 gpu=nvidia"),
        ({**NVIDIA, "GpuVendor": "INTEL"}, "linux-x86_64 gpu=nvidia"),
        ({"Platform": "windows-amd64"}, "windows-x86_64"),
        ({"Platform": "darwin-arm64"}, None),
        ({}, None),
    ],
)
def test_a_host_runs_the_program_with_the_most_conditions_that_it_meets(
    host: dict[str, Any], expected: str | None
) -> None:
    rows = (
        "linux-x86_64",
        "windows-x86_64",
        "linux-x86_64 gpu=nvidia",
        "linux-x86_64 gpu=nvidia cuda>=11",
    )
    assert chosen(host, *rows) == expected


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        ("driver>=535.104", True),
        ("driver>=535.104.05", True),
        ("driver>=535.104.06", False),
        ("driver>=99", True),
        ("driver>=1000", False),
        ("gpu_memory>=8000", True),
        ("gpu_memory>=8001", False),
        ("cuda>=12.2", True),
        ("cuda>=12.3", False),
        ("cpus=8", True),
        ("cpus=9", False),
    ],
)
def test_versions_are_compared_part_by_part_and_sizes_as_numbers(
    condition: str, is_met: bool
) -> None:
    assert bool(chosen(NVIDIA, f"linux-x86_64 gpu=nvidia {condition}")) == is_met


def test_of_equally_narrow_programs_the_first_of_the_table_runs() -> None:
    assert chosen(LINUX, "linux-x86_64 cpus=8", "linux-x86_64 cpus=4") == "linux-x86_64 cpus=8"
    assert chosen(LINUX, "linux-x86_64 cpus=16", "linux-x86_64 cpus=4") == "linux-x86_64 cpus=4"


def test_a_stock_clients_own_platform_comes_before_others_that_it_runs() -> None:
    host = {"Platforms": "linux-x86_64 linux-i686", "NumCpus": 8}
    assert chosen(host, "linux-i686 cpus=2", "linux-x86_64") == "linux-x86_64"
    assert chosen(host, "linux-i686 cpus=2") == "linux-i686 cpus=2"


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ("CPU NVIDIA", "linux-x86_64 gpu=nvidia"),
        ("NVIDIA", "linux-x86_64 gpu=nvidia"),
        ("CPU", "linux-x86_64"),
        ("intel_gpu", None),
    ],
)
def test_a_stock_client_runs_a_program_for_the_processors_for_which_it_asks(
    wants: str, expected: str | None
) -> None:
    host = {**NVIDIA, "Wants": wants}
    assert chosen(host, "linux-x86_64", "linux-x86_64 gpu=nvidia") == expected


def test_a_host_that_gives_no_gpus_runs_the_program_without_one() -> None:
    rows = ("linux-x86_64", "linux-x86_64 gpu=nvidia")
    assert chosen(NVIDIA, *rows, may_use_gpus=False) == "linux-x86_64"


@pytest.mark.parametrize("driver", [None, "", "unknown", 535, "9" * 400, "1." * 300])
def test_what_a_host_says_of_its_driver_breaks_nothing(driver: object) -> None:
    chosen({**NVIDIA, "GpuDriver": driver}, "linux-x86_64 gpu=nvidia driver>=1")


def test_a_table_makes_a_manifest_that_older_clients_refuse() -> None:
    text = manifest().text()
    assert json.loads(text)["version"] == CHOOSING
    assert Manifest.from_text(text).text() == text
    old = json.dumps({**json.loads(text), "version": CHOOSING - 1})
    with pytest.raises(ProtocolError, match="programs: only manifests of version"):
        Manifest.from_text(old)


def test_without_a_table_a_manifest_is_as_it_was() -> None:
    plain = Manifest("ann", ("./prog",))
    assert "programs" not in plain.text()
    assert json.loads(plain.text())["version"] == 2


def test_a_host_finds_the_inputs_of_its_program_and_those_for_all() -> None:
    made = manifest()
    run = made.running(made.programs[0])
    assert run.command == ("linux/prog", "{i}")
    assert [item.name for item in run.inputs] == ["linux/prog", "data"]
    assert (run.archives, run.platforms, run.programs) == ({}, ("linux-x86_64",), ())
    other = made.running(made.programs[1])
    assert [item.name for item in other.inputs] == ["windows/prog.exe", "dlls", "data"]
    assert other.archives.keys() == {"dlls"}


@pytest.mark.parametrize(
    ("where", "asked", "expected"),
    [
        ("linux-x86_64", Resources(cpus=2, gpus=2), Resources(cpus=2, gpus=0)),
        ("linux-x86_64 cpus=8", Resources(cpus=2), Resources(cpus=8)),
        ("linux-x86_64 gpu=amd", Resources(), Resources(gpus=1)),
        ("linux-x86_64 gpu=amd", Resources(gpus=2), Resources(gpus=2)),
    ],
)
def test_a_program_says_which_processors_its_replicas_use(
    where: str, asked: Resources, expected: Resources
) -> None:
    (program,) = table(where)
    made = Manifest("ann", program.command, resources=asked, programs=(program,))
    assert made.running(program).resources == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"command": ("other",)}, "command: with programs"),
        ({"platforms": ()}, "platforms: with programs"),
        ({"resident": 1}, "resident"),
        ({"inputs": ()}, "is not the name of an input"),
        ({"requirements": "linux/prog"}, "all hosts need the input"),
        ({"programs": tuple(table("linux-x86_64", "linux-x86_64  "))}, "says the same"),
        ({"programs": tuple(table(*["linux-x86_64"] * 21))}, "programs"),
    ],
)
def test_a_table_that_contradicts_its_manifest_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ProtocolError, match=why):
        Manifest.from_text(replace(manifest(), **changes).text())


def test_no_file_of_a_checkpoint_takes_the_place_of_any_rows_program() -> None:
    rows = (HostProgram("linux-x86_64", ("cpu",)), HostProgram("linux-aarch64", ("./tool",)))
    asked = Manifest(
        "ann",
        ("cpu",),
        platforms=("linux-x86_64", "linux-aarch64"),
        programs=rows,
        checkpoint=CheckpointRule(("tool",)),
    )
    with pytest.raises(ProtocolError, match=r"checkpoint\.files: tool would replace"):
        Manifest.from_text(asked.text())
