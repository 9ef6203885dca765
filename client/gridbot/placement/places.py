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
_WITHOUT_QUERY = ("ftp", "sftp", "webdav", "webdavs")


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
        """The URL for people: without a password, and without what signs a request."""
        if self.scheme == FILE:
            return self.url
        parts = urlsplit(self.url)
        user, at, host = parts.netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        query = "…" if parts.query else ""
        return parts._replace(netloc=f"{name}{colon and ':…'}{at}{host}", query=query).geturl()

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

    A URL begins with `SCHEME://` or `file:`; all else is a path.  Raises BadInput.
    """
    found = _HASH.search(url)
    plain = url[: found.start()] if found else url
    if "#sha256=" in plain:
        raise BadInput(f"{url!r}: a SHA-256 has 64 digits from 0 to f")
    scheme, _, rest = plain.partition(":")
    if not (rest.startswith("//") and _SCHEME.fullmatch(scheme)) and scheme != FILE:
        scheme, rest = FILE, plain
    if rest.endswith("/") or not rest or "\0" in rest:
        raise BadInput(f"{url!r} is no path and no URL of a file; name the file, not its folder")
    if scheme != FILE and ("#" in rest or ("?" in rest and scheme in _WITHOUT_QUERY)):
        raise BadInput(f"{url!r}: names with # or ? cannot be reached by {scheme}")
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
