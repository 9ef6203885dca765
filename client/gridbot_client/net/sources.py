"""Contents from places that a BOT names, which may be anybody's: bounded, resumable, no secrets.

A source gets no token, cookie or password of this machine.  It leads on by redirections, a few
times, under the same rules.  What a stranger's BOT names is reached at public addresses only: a
client stands in its owner's network.  That holds for each connection; where a proxy makes the
connections, for what the name means here.

A source that drips is left.  The timeouts of requests hold between two pieces of an answer, so a
timer cuts the connection when the head of an answer, or the next part of its body, takes too long.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import requote_uri
from urllib3.exceptions import HTTPError

from gridbot_client.net.allowance import UNLIMITED, TransferAllowance, TransferWaits
from gridbot_client.net.discovery import proxies_for
from gridbot_client.net.elsewhere import no_token
from gridbot_client.net.faults import cannot_reach
from gridbot_client.net.surroundings import ForbiddenAddress, Look, connection_pools
from gridbot_client.net.transport import (
    CONNECT_SECONDS,
    LOOK_AGAIN_SECONDS,
    READ_SECONDS,
    USER_AGENT,
    ServerUnavailable,
    TransportError,
    hash_of,
)
from gridbot_client.protocol.fields import ProtocolError
from gridbot_client.protocol.networks import Network, network_of
from gridbot_client.protocol.sources import check_url
from gridbot_client.terminal import printable

PATIENCE_SECONDS = 30.0  # for the head of an answer, redirections included, and for each part
LEAST_BYTES_PER_SECOND = 16 << 10  # of a part, beyond that patience
_PART_BYTES = 1 << 20  # for which a rate is asked at once
_CHUNK_BYTES = 16 << 10  # lost at most when a download is interrupted
_MOST_REDIRECTIONS = 5
_MOST_ADDRESSES = 16  # of one name; each that does not answer costs CONNECT_SECONDS
_MOST_SHOWN, _MOST_DIGITS = 200, 19
# Answers that may be others another time: too many requests, or an error of the place itself.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class SourceFailed(TransportError):
    """A source did not give a content; the message says which and why."""

    def __init__(
        self, url: str, why: str, *, may_pass: bool = True, is_wrong: bool = False
    ) -> None:
        super().__init__(f"{url[:_MOST_SHOWN]}: {why}")
        self.may_pass = may_pass  # a later try may succeed
        self.is_wrong = is_wrong  # it gave something else


@dataclass(frozen=True, slots=True)
class SourceTerms:
    """On what terms a source is asked."""

    may_be_private: bool = False
    is_stopped: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class SourceClient:
    """Fetches from sources, within what the machine's owner lets it transfer."""

    allowance: TransferAllowance = field(default_factory=lambda: UNLIMITED)
    patience_seconds: float = PATIENCE_SECONDS

    def download(self, url: str, digest: str, size: int, part: Path, terms: SourceTerms) -> None:
        """Download a content into `part`, continuing what it holds, wherever that came from.

        An interrupted download leaves `part` for the next source.  Raises SourceFailed, and
        ServerUnavailable while the machine's owner lets nothing be transferred.
        """
        part.touch()
        while True:
            begun = part.stat().st_size
            if begun < size:
                self._add(url, size, part, begun, terms)
            if part.stat().st_size == size and hash_of(part) == digest:
                return
            part.unlink()
            part.touch()
            if not begun:  # else what was there before may have been wrong
                why = f"it gives another content than that of SHA-256 {digest}"
                raise SourceFailed(url, why, may_pass=False, is_wrong=True)

    def measure(self, url: str, terms: SourceTerms) -> tuple[str, int]:
        """Return SHA-256 and size of what a source gives now.  Raises SourceFailed."""
        digest, size = sha256(), 0
        with _opened(url, 0, terms, self.patience_seconds) as answer:
            while part := b"".join(answer.part(self._granted(_PART_BYTES, terms))):
                digest.update(part)
                size += len(part)
        return digest.hexdigest(), size

    def _add(self, url: str, size: int, part: Path, begun: int, terms: SourceTerms) -> None:
        """Add to `part` what it lacks, or all if the source only gives the whole."""
        with _opened(url, begun, terms, self.patience_seconds) as answer, part.open("r+b") as file:
            answer.check_size(size)
            at = file.seek(answer.begin)
            file.truncate()
            try:
                while at < size:
                    before = at
                    for chunk in answer.part(self._granted(min(_PART_BYTES, size - at), terms)):
                        file.write(chunk)
                        at += len(chunk)
                    if at == before:
                        raise SourceFailed(url, f"it ends after {at} bytes of {size}")
            finally:
                file.flush()
                os.fsync(file.fileno())

    def _granted(self, wanted: int, terms: SourceTerms) -> int:
        if terms.is_stopped():
            raise ServerUnavailable("the download is stopped")
        try:
            return self.allowance.take("down", wanted)
        except TransferWaits as error:
            raise ServerUnavailable(str(error), LOOK_AGAIN_SECONDS) from None


class _Deadline:
    """Cuts the connections of a download when one of its steps takes too long."""

    def __init__(self, url: str, patience_seconds: float) -> None:
        self._url, self._patience = url, patience_seconds
        self._watched: list[socket.socket] = []
        self._is_over = False

    def watch(self, connection: socket.socket) -> None:
        """Take in a connection; TLS may take it over later."""
        self._watched.append(connection.dup())
        if self._is_over:
            self._cut()

    @contextmanager
    def step(self, size: int = 0) -> Iterator[None]:
        """Context of a step that moves so many bytes.  Raises SourceFailed if it takes too long."""
        seconds = self._patience + size / LEAST_BYTES_PER_SECOND
        timer = Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if self._is_over:
                raise SourceFailed(self._url, f"too slow; it was left after {seconds:.0f} s")

    def close(self) -> None:
        """Let go of the connections."""
        for connection in self._watched:
            connection.close()

    def _cut(self) -> None:
        self._is_over = True
        for connection in self._watched:
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a source answers: its content from byte `begin` on."""

    url: str
    response: requests.Response
    begin: int
    length: int | None  # of the whole content, if it says so
    deadline: _Deadline

    def check_size(self, size: int) -> None:
        """Raise SourceFailed for a content that cannot be the one of this size."""
        if self.length not in (None, size):
            why = f"it has {self.length} bytes, not {size}"
            raise SourceFailed(self.url, why, may_pass=False, is_wrong=True)

    def part(self, most: int) -> Iterator[bytes]:
        """Yield the next bytes, `most` of them unless the content ends.  Raises SourceFailed."""
        with self.deadline.step(most):
            while most > 0 and (data := self._read(min(_CHUNK_BYTES, most))):
                most -= len(data)
                yield data

    def _read(self, most: int) -> bytes:
        try:
            data: bytes = self.response.raw.read(most, decode_content=False)
        except (HTTPError, OSError) as error:
            raise SourceFailed(self.url, f"it was interrupted: {_shown(error)}") from None
        return data


@contextmanager
def _opened(url: str, begun: int, terms: SourceTerms, patience_seconds: float) -> Iterator[_Answer]:
    """Ask a source for what lies behind the first `begun` bytes."""
    deadline = _Deadline(url, patience_seconds)
    with ExitStack() as stack:
        stack.callback(deadline.close)
        session = stack.enter_context(_session(deadline, terms))
        with deadline.step():
            response = stack.enter_context(_response(session, url, begun, terms))
        begin, length = _extent(url, response, begun)
        yield _Answer(url, response, begin, length, deadline)


def _response(
    session: requests.Session, url: str, begun: int, terms: SourceTerms
) -> requests.Response:
    """The answer to a request, behind all redirections."""
    headers, place = {"Range": f"bytes={begun}-"} if begun else {}, url
    for _ in range(_MOST_REDIRECTIONS + 1):
        if not terms.may_be_private:
            _refuse_private(place)
        try:
            response = session.get(
                place, headers=headers, timeout=(CONNECT_SECONDS, READ_SECONDS),
                allow_redirects=False, stream=True, proxies=proxies_for(place),
            )  # fmt: skip
        except ForbiddenAddress as error:
            raise SourceFailed(place, str(error), may_pass=False) from None
        except (OSError, HTTPError) as error:  # those of requests are OSErrors
            cause = error if isinstance(error, OSError) else OSError(_shown(error))
            raise SourceFailed(place, cannot_reach(f"//{urlsplit(place).netloc}", cause)) from None
        except ValueError as error:  # a name that is none
            raise SourceFailed(place, _shown(error), may_pass=False) from None
        if not response.is_redirect:
            return response
        with response:
            place = _next(place, response.headers["Location"])
    raise SourceFailed(url, f"more than {_MOST_REDIRECTIONS} redirections", may_pass=False)


def _next(place: str, location: str) -> str:
    """Where a redirection leads.  Raises SourceFailed if it is not followed."""
    try:
        there = check_url(requote_uri(urldefrag(urljoin(place, location)).url), "it leads on")
    except (ValueError, ProtocolError) as error:
        raise SourceFailed(place, _shown(error), may_pass=False) from None
    if place.startswith("https://") and not there.startswith("https://"):
        raise SourceFailed(place, f"it leads from TLS to {_shown(there)}", may_pass=False)
    return there


def _extent(url: str, answer: requests.Response, begun: int) -> tuple[int, int | None]:
    """Where an answer's body begins, and the length of the whole, if it says so."""
    code, headers = answer.status_code, answer.headers
    if headers.get("Content-Encoding", "identity") != "identity":
        why = f"it comes compressed ({_shown(headers['Content-Encoding'])}), unasked"
        raise SourceFailed(url, why, may_pass=False)
    if code == requests.codes.ok:
        return 0, _number(headers.get("Content-Length", ""))
    span = headers.get("Content-Range", "")
    if code == requests.codes.partial_content and span.startswith(f"bytes {begun}-"):
        return begun, _number(span.rpartition("/")[2])
    raise SourceFailed(url, f"HTTP {code} {_shown(answer.reason)}", may_pass=code in _PASSING)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None


def _refuse_private(url: str) -> None:
    """Raise SourceFailed for a host that is not on the open internet, as its name is known here."""
    host = urlsplit(url).hostname or ""
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        return  # a proxy may know it
    if len(found) > _MOST_ADDRESSES:
        raise SourceFailed(url, f"{host} has {len(found)} addresses", may_pass=False)
    for address in found:
        try:
            _check_public(address)
        except ForbiddenAddress as error:
            raise SourceFailed(url, str(error), may_pass=False) from None


def _check_public(address: str) -> None:
    if network_of(address) is not Network.PUBLIC:
        raise ForbiddenAddress(
            f"{address} is no public address; machines fetch from such only for work of those whom"
            " their owners trust"
        )


def _session(deadline: _Deadline, terms: SourceTerms) -> requests.Session:
    def look(connection: socket.socket) -> None:
        deadline.watch(connection)
        if not terms.may_be_private:
            _check_public(connection.getpeername()[0])

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(look, deadline.watch))
    session.auth = no_token
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": USER_AGENT})
    return session


class _Adapter(HTTPAdapter):
    """Has connections looked at before they are used: those to sources, and those to proxies."""

    def __init__(self, direct: Look, to_proxy: Look) -> None:
        self._direct, self._to_proxy = connection_pools(direct), connection_pools(to_proxy)
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._direct

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if not proxy.lower().startswith("socks"):  # whose pools speak SOCKS
            manager.pool_classes_by_scheme = self._to_proxy
        return manager


def _shown(text: object) -> str:
    return printable(str(text))[:_MOST_SHOWN]
