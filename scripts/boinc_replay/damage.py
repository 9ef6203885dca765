"""Damages requests: cut anywhere, or with a few short parts replaced."""

from __future__ import annotations

import random

PIECES = (
    b"", b"<", b">", b"</", b"/>", b"&#", b"&#0;", b"\x00", b"\xff", b"]]>", b"<![CDATA[", b"-1",
    b"1e999", b"nan", b"<result>", b"</result>", b"<stderr_out>", b"</stderr_out>", b"<file_info>",
    b"<other_results>", b"<msg_from_host>", b"</scheduler_request>", b"<stderr_txt>", b"9" * 400,
    b"%00", b"&", b"=", b"../", b"<data>\n", b"<nbytes>", b"99999999999999999999", b"\r\n",
)  # fmt: skip


def cut(body: bytes, rng: random.Random) -> bytes:
    """The beginning of a body, without at least its last byte."""
    return body[: rng.randrange(len(body))] if body else b""


def mutated(body: bytes, rng: random.Random) -> bytes:
    """The body with a few short parts replaced by others."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(body) + 1)
        piece = rng.choice(PIECES) if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 8))
        body = body[:start] + piece + body[start + rng.choice((0, 1, 5, 40)) :]
    return body
