"""What the worker on a pilot's node says to its client, in lines of JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace

from gridbot_client.protocol import fields
from gridbot_client.walls.cells import CGROUP, NONE
from gridbot_client.work.runner import ProcessEnd

LONGEST_LINE = 64 << 10  # bytes
_MOST_DETAIL = 4000  # characters, each of which takes a dozen bytes at most
_MOST_NUMBER = 1 << 62


@dataclass(frozen=True, slots=True)
class NodeBeginning:
    """The first line: how a node has begun."""

    trouble: str  # why it cannot work, or ""
    level: int = NONE  # of its walls
    obstacle: str = ""  # why that is no higher


def write_beginning(beginning: NodeBeginning) -> str:
    """Encode the first line."""
    return json.dumps(asdict(beginning)) + "\n"


def read_beginning(line: bytes) -> NodeBeginning:
    """Decode the first line.  Raises ProtocolError."""
    raw = fields.mapping(fields.parse(line), "beginning")
    return NodeBeginning(
        fields.string(raw, "trouble", LONGEST_LINE),
        fields.integer(raw, "level", NONE, CGROUP),
        fields.string(raw, "obstacle", LONGEST_LINE),
    )


def write_end(number: int, end: ProcessEnd) -> str:
    """Encode how a replica ended, by the client's number."""
    detail = end.detail[:_MOST_DETAIL].replace("\0", "").encode(errors="replace").decode()
    return json.dumps({"number": number, **asdict(replace(end, detail=detail))}) + "\n"


def read_end(line: bytes) -> tuple[int, ProcessEnd]:
    """Decode a replica's number and its end.  Raises ProtocolError."""
    raw = fields.mapping(fields.parse(line), "end")
    number, code = fields.integer(raw, "number", 0, _MOST_NUMBER), raw.get("exit_code")
    return number, ProcessEnd(
        reason=fields.string(raw, "reason", LONGEST_LINE),
        exit_code=None if code is None else fields.integer(raw, "exit_code", -255, 255),
        cpu_seconds=fields.number(raw, "cpu_seconds", 0.0, math.inf),
        wall_seconds=fields.number(raw, "wall_seconds", 0.0, math.inf),
        detail=fields.string(raw, "detail", LONGEST_LINE),
    )
