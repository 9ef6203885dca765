"""The packed form of a checkpoint, which comes from other machines, and its rule in a manifest."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gridbot_client.protocol.checkpoints import CheckpointRule, copied, pack, unpack
from gridbot_client.protocol.fields import ProtocolError
from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_client.work import progress

ALLOWED = ("a", "dir/b", "stdout")
MANIFEST = Manifest("x", ("prog",), checkpoint=CheckpointRule(("state", "more/state")))


def packed(*files: tuple[str, bytes]) -> bytes:
    target = io.BytesIO()
    pack("id", [(name, len(data), io.BytesIO(data)) for name, data in files], target)
    return target.getvalue()


def with_header(files: object, rest: bytes = b"") -> bytes:
    return json.dumps({"files": files}).encode() + b"\n" + rest


def test_what_is_packed_is_unpacked() -> None:
    data = packed(("a", b"one"), ("dir/b", b""), ("stdout", b"three\n"))
    source, found = io.BytesIO(data), []
    for file in unpack(source, len(data), ALLOWED):
        copied(source, file, target := io.BytesIO())
        found.append((file.name, target.getvalue()))
    assert found == [("a", b"one"), ("dir/b", b""), ("stdout", b"three\n")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 100_000,
        b"[]\n",
        b"{}",
        with_header([["../a", 0]]),
        with_header([["/etc/passwd", 0]]),
        with_header([["c", 0]]),
        with_header([["a", 0], ["a", 0]]),
        with_header([["a", -1]]),
        with_header([["a", 2**70]]),
        with_header([["a", True]], b"x"),
        with_header([["a", 3]], b"xx"),
        with_header([["a", 1]], b"xx"),
        with_header([["a"]]),
        with_header([["a", 0]] * 100),
        with_header("a"),
    ],
)
def test_what_nobody_packed_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(io.BytesIO(data), len(data), ALLOWED)


def test_a_file_that_is_cut_off_is_refused() -> None:
    data = packed(("a", b"one"))
    source = io.BytesIO(data[:-1])
    (file,) = unpack(source, len(data), ALLOWED)
    with pytest.raises(ProtocolError, match="cut off"):
        copied(source, file, io.BytesIO())


def test_a_manifest_keeps_its_rule_and_older_clients_do_not_take_it() -> None:
    found = Manifest.from_text(MANIFEST.text())
    assert found.checkpoint == MANIFEST.checkpoint
    assert found.version == 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exit_codes": (0, 85)}, "exit_code"),
        ({"resident": 1}, "stays"),
        ({"together": 2}, "together"),
        ({"command": ("./state",)}, "the command"),
        ({"inputs": (FileRef("state", "0" * 64, 1),)}, "replace an input"),
        ({"inputs": (FileRef("more", "0" * 64, 1),)}, "lie in one"),
    ],
)
def test_a_rule_that_does_not_go_with_the_rest_is_refused(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ProtocolError, match=said):
        Manifest.from_text(replace(MANIFEST, **changes).text())


@pytest.mark.parametrize(
    "files",
    [
        (), ("a", "a"), ("../a",), ("/a",), ("*",), ("a b",),
        ("stdout",), ("a", "stderr"), ("stdout/a",), ("a", "a/b"), ("a/b", "a"),
    ],
)  # fmt: skip
def test_a_checkpoint_has_plain_names_of_files(files: Sequence[str]) -> None:
    with pytest.raises(ProtocolError, match="checkpoint"):
        Manifest.from_text(replace(MANIFEST, checkpoint=CheckpointRule(tuple(files))).text())


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (b"0.25\n", 0.25), (b"25%", 0.25), (b" 1 ", 1.0), (b"0", 0.0), (b"1e-1", 0.1),
        (b"", None), (b"nan", None), (b"inf", None), (b"1.5", None), (b"-1", None), (b"x", None),
        (b"\xff\xff", None), (b"101 %", None),
    ],
)  # fmt: skip
def test_progress_is_a_part_or_a_percentage_and_anything_else_is_none(
    said: bytes, part: float | None
) -> None:
    assert progress.read(said) == part
