"""What clients really sent: the requests of the tests, or a folder of recorded ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.boinc_captures import captures, others

SCHEDULER, UPLOAD = "scheduler", "file_upload_handler"

_REQUEST = re.compile(
    rb"### [0-9:]+\r?\n(GET|POST) (\S+) HTTP/1\.1\r?\n(?:[^\r\n]+\r?\n)*\r?\n(.*?)\n\n### REPLY",
    re.S,
)


@dataclass(frozen=True, slots=True)
class Captured:
    """One request; its path is the one below our master URL."""

    name: str
    method: str
    path: str
    body: bytes = b""


def kept() -> list[Captured]:
    """The requests that the tests keep."""
    asked = [Captured(name, "POST", SCHEDULER, body) for name, body in captures().items()]
    return asked + [Captured(*other) for other in others()]


def read(folder: Path) -> list[Captured]:
    """The requests in the files of a folder and those below it, each content once."""
    found = {(item.method, item.path, item.body): item for item in _requests(folder)}
    return list(found.values())


def _requests(folder: Path) -> Iterator[Captured]:
    for path in sorted(folder.rglob("*.txt")):
        if match := _REQUEST.match(path.read_bytes()):
            method, target, body = match.groups()
            name = str(path.relative_to(folder).with_suffix(""))
            sent = body if method == b"POST" else b""
            yield Captured(name, method.decode(), _path(target.decode()), sent)


def _path(target: str) -> str:
    """Where a request goes here: the recording server had a project below each first name."""
    first, _, rest = target.removeprefix("/").partition("/")
    if rest == "cgi":
        return SCHEDULER
    return f"{first}/{rest}" if first == "download" else rest
