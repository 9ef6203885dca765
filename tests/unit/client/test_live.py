"""What is printed while a job runs, and the rest of it from the log of its end."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gridbot.api.documents import LiveReplicas
from gridbot.api.live import follow_output


def followed(read: bytes, printed: bytes) -> bytes:
    """What is yielded of a stream of which so much was read before its replica ended."""

    def look(positions: Sequence[Mapping[str, int]]) -> LiveReplicas:
        if positions:
            return {"is_over": True, "replicas": []}
        content = base64.b64encode(read).decode()
        item: Any = {"seq": 0, "replica": 1, "stdout": content, "stderr": ""}
        return {"is_over": False, "replicas": [item]}

    text = printed[-(64 << 10) :].decode(errors="replace").replace("\0", "\ufffd")
    text = text.encode()[-(64 << 10) :].decode(errors="replace")
    line: Any = {"seq": 0, "replica": 1, "stdout": text, "stderr": ""}
    pieces = follow_output(look, lambda _: [line], lambda _: None)
    return b"".join(piece.content for piece in pieces)


LATIN = "é".encode("latin-1")


@pytest.mark.parametrize(
    ("read", "rest"),
    [
        (b"one\n", b"two\n"),
        (LATIN * 5 + b"one\n", b"two\n"),  # no UTF-8
        (b"a\0b\n", b"two\n"),
        ("eé".encode()[:2], "é".encode()[1:] + b" two\n"),  # in the midst of a character
        (b"x" * 70_000 + b"one\n", b"two\n"),
        (LATIN * 70_000 + b"one\n", b"two\n"),
    ],
)
def test_nothing_is_printed_twice_or_left_out_when_a_job_ends(read: bytes, rest: bytes) -> None:
    assert followed(read, read + rest) == read + rest
