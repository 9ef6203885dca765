"""Pieces of JSON that are rendered once, in the feeder, and only joined at a host's request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import orjson

from gridbot_client.protocol.messages import VERSION, ReplicaId


def body(name: ReplicaId, manifest: str, args: str, inputs: str) -> bytes:
    """An assignment without its deadline and closing brace; `args` and `inputs` are JSON texts."""
    head = f'{{"id":[{name.bot},{name.seq},{name.replica}],"manifest":"{manifest}"'
    return f'{head},"args":{args},"inputs":{inputs}'.encode()


def assignment(prepared: bytes, deadline_seconds: float) -> bytes:
    """A whole assignment: see `body`."""
    return b'%b,"deadline_seconds":%.3f}' % (prepared, deadline_seconds)


@dataclass(slots=True)
class ReplyParts:
    """A reply in the making."""

    mimetype: ClassVar[str] = "application/json"

    acks: Sequence[ReplicaId] = ()
    reupload: Sequence[ReplicaId] = ()
    abort: Sequence[ReplicaId] = ()
    assignments: list[bytes] = field(default_factory=list)
    manifests: dict[str, bytes] = field(default_factory=dict)  # id -> rendered member
    next_request_seconds: float = 1.0
    message: str = ""
    epoch: int = 0

    def render(self) -> bytes:
        """The bytes of the reply, equal in meaning to `protocol.encode_reply`."""
        head = orjson.dumps(
            {
                "protocol": VERSION,
                "epoch": self.epoch,
                "next_request_seconds": self.next_request_seconds,
                "acks": _plain(self.acks),
                "reupload": _plain(self.reupload),
                "abort": _plain(self.abort),
                "message": self.message,
            }
        )
        return b'%b,"assignments":[%b],"manifests":{%b}}' % (
            head[:-1],
            b",".join(self.assignments),
            b",".join(self.manifests.values()),
        )


def _plain(names: Iterable[ReplicaId]) -> list[list[int]]:
    return [list(name) for name in names]
