from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gridbot_client.protocol import boinc_api
from gridbot_client.protocol.checkpoints import CheckpointRule
from gridbot_client.protocol.manifest import FileRef, Manifest
from gridbot_client.protocol.messages import ProtocolError, SignedManifest, manifest_id
from gridbot_client.work.manifests import Manifests
from gridbot_client.work.trust import Pins, Trust

PROGRAM = FileRef("count", "1" * 64, 10, executable=True)
DATA = FileRef("Data.txt", "2" * 64, 10)
PLAIN = Manifest(
    "ann",
    ("./count", "{x}", "--to=5"),
    {"x": "text"},
    inputs=(DATA, PROGRAM),
    outputs=("sum.txt",),
    platforms=("linux-x86_64",),
    boinc_api=True,
)


def refused(**changes: Any) -> str:
    with pytest.raises(ProtocolError, match=r"^boinc_api: ") as found:
        Manifest.from_text(replace(PLAIN, **changes).text())
    return str(found.value)


def test_a_bot_for_boincs_api_is_signed_as_version_8_and_read_again() -> None:
    read = Manifest.from_text(PLAIN.text())
    assert read.boinc_api
    assert read.version == 8
    assert read.text() == PLAIN.text()
    lowered = json.dumps({**json.loads(PLAIN.text()), "version": 7})
    with pytest.raises(ProtocolError, match="boinc_api: only manifests of version 8 have it"):
        Manifest.from_text(lowered)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"platforms": ()}, "name the platforms"),
        ({"sources": {"Data.txt": ("http://host/x",)}}, "do not know inputs from URLs"),
        ({"command": ("count2",)}, "begins with count2, which is no executable input"),
        ({"command": ("./Data.txt",)}, "which is no executable input"),
        ({"command": ("{x}",)}, "which is no executable input"),
        ({"command": ("./count", *["1"] * 64)}, "65 words, at most 64"),
        ({"outputs": ("stdout",)}, "stdout is no output"),
        ({"outputs": ("*.txt",)}, "is no plain name"),
        ({"outputs": ("{x}.txt",)}, "is no plain name"),
        ({"outputs": tuple(f"o{n}" for n in range(33))}, "33 outputs, at most 32"),
        ({"outputs": ("a/b",)}, "a slot has no directories"),
        ({"outputs": ("data.TXT",)}, "Data.txt and data.TXT would be one"),
        ({"outputs": ("COUNT",)}, "would be one where case does not matter"),
        ({"outputs": ("BOINC_finish_called",)}, "BOINC keeps such names"),
        ({"outputs": ("init_data.xml",)}, "BOINC keeps such names"),
        ({"outputs": ("stderr.txt",)}, "BOINC keeps such names"),
        ({"outputs": ("sum.",)}, "BOINC keeps such names"),
        ({"inputs": (PROGRAM, replace(DATA, sha256="1" * 64))}, "is the program once more"),
        ({"exit_codes": (0, 3)}, "do not know exit codes"),
        ({"environment": {"A": "1"}}, "do not know environment variables"),
        ({"stdin": "Data.txt"}, "do not know standard input"),
        ({"resident": 1}, "do not know programs that stay"),
        ({"together": 2}, "do not know jobs that run together"),
        ({"checkpoint": CheckpointRule(("state",))}, "the program's own are kept"),
    ],
)
def test_what_boinc_clients_cannot_do_for_a_program_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    assert why in refused(**changes)


@pytest.mark.parametrize(
    ("word", "line"),
    [("7", "7 --to=5"), ("a b", '"a b" --to=5'), ("/tmp/x_1,2", "/tmp/x_1,2 --to=5")],
)
def test_words_are_passed_as_clients_split_them(word: str, line: str) -> None:
    assert boinc_api.command_line(PLAIN, {"x": word}) == line


@pytest.mark.parametrize(
    "word", ["", 'a"b', "a'b", "a\\b", "a\nb", "a\tb", "a<b", "a&b", "a>b", "é", "x" * 8000]
)
def test_words_that_clients_would_split_otherwise_are_refused(word: str) -> None:
    with pytest.raises(ProtocolError, match=r"boinc_api: .* put it into an input file"):
        boinc_api.check_job(PLAIN, {"x": word}, ())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("data.txt", "would be one where case does not matter"),
        ("Count", "would be one where case does not matter"),
        ("SUM.TXT", "would be one where case does not matter"),
        ("init_data.xml", "BOINC keeps such names"),
        ("libm.so.6", "could be run"),
        ("version.DLL", "could be run"),
        ("a/b", "a slot has no directories"),
    ],
)
def test_a_jobs_own_file_takes_no_signed_ones_place(name: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        boinc_api.check_job(PLAIN, {"x": "1"}, (FileRef(name, "3" * 64, 1),))


def test_a_jobs_own_program_is_refused() -> None:
    with pytest.raises(ProtocolError, match="could be run"):
        boinc_api.check_job(PLAIN, {"x": "1"}, (FileRef("tool", "3" * 64, 1, executable=True),))
    boinc_api.check_job(PLAIN, {"x": "1"}, (FileRef("tool", "3" * 64, 1),))


def test_a_native_client_leaves_a_bot_for_boinc_clients_alone() -> None:
    manifests = Manifests(Trust(Pins("0" * 64, "", frozenset()), lambda: 0.0))
    id = manifest_id(PLAIN.text())
    manifests.take_in({id: SignedManifest(PLAIN.text())})
    judged = manifests.get(id)
    assert judged is not None
    assert judged.rejection is not None
    assert "for BOINC clients alone" in judged.rejection.detail
