"""URLs of files, and which protocols the n-th attempt uses; pure.

Sources: Stork's user manual and job manager (HTCondor 7.0): only the scheme changes with the
protocol, and each failure moves to the next pair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gridbot.api.errors import BadInput

_SCHEME = re.compile(r"[a-z][a-z0-9+.]*", re.ASCII)
_HASH = re.compile(r"#sha256=([0-9a-f]{64})$")
FILE = "file"


@dataclass(frozen=True)
class DataPlace:
    """Where a file is or goes: its scheme, and the rest of the URL."""

    scheme: str
    rest: str  # behind the colon

    @property
    def url(self) -> str:
        """The URL."""
        return f"{self.scheme}:{self.rest}"

    @property
    def shown(self) -> str:
        """The URL for people: without a password."""
        parts = urlsplit(self.url)
        if parts.password is None:
            return self.url
        return self.url.replace(f":{parts.password}@", ":…@", 1)

    @property
    def endpoint(self) -> str:
        """What bears the load: scheme and host; for files, this machine."""
        return f"{self.scheme}://{urlsplit(self.url).netloc.rpartition('@')[2]}"

    def by(self, scheme: str) -> DataPlace:
        """The same host and path by another protocol."""
        return DataPlace(scheme, self.rest)


@dataclass(frozen=True)
class ProtocolPair:
    """Protocols of the source and of the destination."""

    source: str
    destination: str


def place_of(url: str) -> tuple[DataPlace, str]:
    """The place that a URL or a path names, and the SHA-256 that it demands or "".

    Raises BadInput.
    """
    found = _HASH.search(url)
    plain = url[: found.start()] if found else url
    scheme, colon, rest = plain.partition(":")
    if not colon:
        scheme, rest = FILE, plain
    if not _SCHEME.fullmatch(scheme) or not rest.strip("/") or "\0" in rest:
        raise BadInput(f"{url!r} is no path and no URL of a file")
    if "#sha256=" in plain:
        raise BadInput(f"{url!r}: a SHA-256 has 64 digits from 0 to f")
    return DataPlace(scheme, rest), found[1] if found else ""


def pairs_of(alternates: str) -> tuple[ProtocolPair, ...]:
    """Pairs of protocols such as `ftp-file, http-file`.  Raises BadInput."""
    found = []
    for text in alternates.split(","):
        source, dash, destination = text.strip().partition("-")
        if not text.strip():
            continue
        if not dash or not _SCHEME.fullmatch(source) or not _SCHEME.fullmatch(destination):
            raise BadInput(f"{text.strip()!r} is no pair of protocols; write ftp-file")
        found.append(ProtocolPair(source, destination))
    return tuple(found)


def pair_for(attempt: int, given: ProtocolPair, alternates: Sequence[ProtocolPair]) -> ProtocolPair:
    """Protocols of an attempt, from 1 on: those given, each alternate in turn, and again."""
    return (given, *alternates)[(attempt - 1) % (len(alternates) + 1)]
