"""Follows what running jobs print, in order and without gaps, whatever connection breaks."""

from __future__ import annotations

import base64
import codecs
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from gridbot import reliable
from gridbot.api.connection import patiently
from gridbot.api.documents import LiveReplicas, LogLine
from gridbot.api.errors import ServerAway
from gridbot_client.protocol.fields import STREAMS
from gridbot_client.protocol.messages import LOG_TAIL_BYTES, MAX_LIVE_POSITIONS

_LOOK_SECONDS = 0.7
_OVERLAP_BYTES = 512  # by which the end of a long log is joined to what was read of it
_GAP = b"\n[some output is missing here: the server keeps the last 64 KB of a replica that ended]\n"


class Printed(NamedTuple):
    """What a replica of a job has printed next, to `stdout` or `stderr`."""

    seq: int
    replica: int
    stream: str
    content: bytes


@dataclass(slots=True)
class _Stream:
    """How much of a stream was read, and the end of that as a log has it."""

    at: int = 0
    at_in_log: int = 0  # there a NUL, and what is no UTF-8, is replaced by three bytes
    last: bytes = b""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=partial(codecs.getincrementaldecoder("utf-8"), "replace")
    )

    def take(self, content: bytes) -> bytes:
        logged = self._decoder.decode(content).replace("\0", "\ufffd").encode()
        self.at += len(content)
        self.at_in_log += len(logged)
        self.last = (self.last + logged)[-_OVERLAP_BYTES:]
        return content

    def rest(self, text: str) -> bytes:
        """What of the log of an ended replica was not read yet."""
        content = text.encode()
        begun = len(self._decoder.getstate()[0])  # bytes of the next character that were read
        if len(content) < LOG_TAIL_BYTES - 4:  # all that there was
            return content[self.at_in_log + begun :]
        if not self.at:
            return _GAP.lstrip() + content
        found = content.rfind(self.last)
        return content[found + len(self.last) + begun :] if found >= 0 else _GAP + content


@dataclass(slots=True)
class _Replica:
    streams: Mapping[str, _Stream] = field(
        default_factory=lambda: {name: _Stream() for name in STREAMS}
    )
    has_ended: bool = False


def follow_output(
    look: Callable[[Sequence[Mapping[str, int]]], LiveReplicas],
    logs: Callable[[int | None], Iterable[LogLine]],
    told: Callable[[ServerAway], None],
) -> Iterator[Printed]:
    """Yield what replicas print until all of them have ended.

    `look` asks the server for what comes after some positions, `logs` for the replicas of a job
    that ended, or of all.  While the server is away, it is waited for.
    """
    known = defaultdict[tuple[int, int], _Replica](_Replica)
    while True:
        positions = [_position(id, item) for id, item in known.items() if not item.has_ended]
        found = patiently(partial(look, positions[-MAX_LIVE_POSITIONS:]), told)
        running = set()
        for item in found["replicas"]:
            id = item["seq"], item["replica"]
            running.add(id)
            for name, stream in known[id].streams.items():
                if content := base64.b64decode(item[name]):  # type: ignore[literal-required]
                    yield Printed(*id, name, stream.take(content))
        gone = {id for id, item in known.items() if not item.has_ended} - running
        for seq in sorted({seq for seq, _ in gone}):
            yield from _rest(known, list(patiently(partial(_listed, logs, seq), told)))
        if found["is_over"]:
            yield from _rest(known, logs(None))
            return
        reliable.pause(_LOOK_SECONDS)


def _rest(known: Mapping[tuple[int, int], _Replica], lines: Iterable[LogLine]) -> Iterator[Printed]:
    """What ended replicas have printed that was not read while they ran."""
    for line in lines:
        id = line["seq"], line["replica"]
        replica = known.get(id) or _Replica()
        if not replica.has_ended:
            replica.has_ended = True
            for name, stream in replica.streams.items():
                if content := stream.rest(line[name] or ""):  # type: ignore[literal-required]
                    yield Printed(*id, name, content)


def _listed(logs: Callable[[int | None], Iterable[LogLine]], seq: int | None) -> list[LogLine]:
    return list(logs(seq))


def _position(id: tuple[int, int], replica: _Replica) -> dict[str, Any]:
    places = {name: stream.at for name, stream in replica.streams.items()}
    return {"seq": id[0], "replica": id[1], **places}
