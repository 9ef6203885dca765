"""HTTP with one server: requests, resumable downloads and resumable uploads."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urljoin

import requests
from requests.auth import AuthBase

from gridbot_client.net.allowance import (
    UNLIMITED,
    Direction,
    TransferAllowance,
    TransferWaits,
)
from gridbot_client.net.discovery import proxies_for
from gridbot_client.net.elsewhere import (
    BadRedirection,
    PacedPart,
    Redirection,
    session_without_token,
)
from gridbot_client.net.faults import cannot_reach, is_of_network, strange_answer
from gridbot_client.net.surroundings import ForbiddenAddress, LookingAdapter, Surroundings
from gridbot_client.protocol.messages import Output, ReplicaId

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 30.0  # after a transfer that its owner's limits do not allow now
MOST_REPLY_BYTES = 64 << 20
# Servers know by it that this client follows redirections; before 0.2 it was `gridbot`.
USER_AGENT = "gridbot-client"
PIECE_BYTES = 4 << 20  # of one request of an upload
_PROBE = "/health"  # answers to anybody
_MOST_REDIRECTIONS = 5
_CHUNK_BYTES = 16 << 10  # lost at most when a download is interrupted


class TransportError(Exception):
    """Base class of the errors below."""


class ServerUnavailable(TransportError):
    """The server is unreachable or overloaded; retry after at least `retry_after` seconds."""

    def __init__(self, detail: str, retry_after: float = 0.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class NotOurServer(TransportError):
    """The response is not a GridBot server's, but for example a captive portal's."""


class RequestRefused(TransportError):
    """The server refused the request; `code` is the HTTP status."""

    def __init__(self, code: int, detail: str, error: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.error = error  # name of the error in the response, "" without one

    @property
    def shuts_out(self) -> bool:
        """True if the client is revoked or its host is banned."""
        # A response to HEAD has no body, so no name; a known client gets 403 there only if banned.
        return self.code == 401 or (self.code == 403 and self.error in ("", "Banned"))


class CorruptDownload(TransportError):
    """A download is complete but does not match its hash."""


class BearerAuth(AuthBase):
    """Sets the Authorization header; requests would let a netrc file replace a plain header."""

    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with the header."""
        request.headers["Authorization"] = self._value
        return request


class Transport:
    """Connection to one server with one token or key.  Not thread-safe."""

    def __init__(
        self, url: str, token: str, read_seconds: float = READ_SECONDS,
        allowance: TransferAllowance = UNLIMITED,
    ) -> None:  # fmt: skip
        self.url = url.rstrip("/")
        self._allowance = allowance
        self._timeout = (CONNECT_SECONDS, read_seconds)
        self._proxies = proxies_for(url)
        self._session = requests.Session()
        self._session.auth = BearerAuth(token)
        self._session.headers.update({"Accept-Encoding": "identity", "User-Agent": USER_AGENT})
        surroundings = Surroundings()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, LookingAdapter(surroundings.note_server))
        self._without_token = session_without_token(surroundings)

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()
        self._without_token.close()

    def rpc(self, body: bytes) -> bytes:
        """Send one request for work; return the body of the response."""
        with self._call("POST", "/rpc", data=body, headers=_JSON) as response:
            return _body(response)

    def clock(self) -> float | None:
        """Return the server's time, in seconds since 1970, to a second; None if it does not say."""
        with self._call("GET", _PROBE) as response:
            _document(_body(response))
            try:
                return parsedate_to_datetime(response.headers["Date"]).timestamp()
            except (KeyError, ValueError, TypeError):
                return None

    def moved_to(self) -> str:
        """Return where the server's address leads by one redirection; "" if it stays.

        What does not look like this server's address elsewhere is an error, and so is a
        redirection that gives up TLS.
        """
        with self._request("GET", _PROBE) as response:
            if not response.is_redirect:
                return ""
            place = urljoin(response.url, response.headers["Location"])
        was_safe, is_safe = self.url.startswith("https://"), place.startswith("https://")
        if not place.endswith(_PROBE) or (was_safe and not is_safe):
            raise NotOurServer(f"{self.url} leads to {place}; give the server's own URL")
        return place.removesuffix(_PROBE)

    def get_json(self, path: str) -> Any:
        """Return the JSON document at `path`."""
        with self._call("GET", path) as response:
            return _document(_body(response))

    def post_json(self, path: str, document: Mapping[str, Any], method: str = "POST") -> Any:
        """Send a JSON document; return the document of the response."""
        body = json.dumps(document).encode()
        with self._call(method, path, data=body, headers=_JSON) as response:
            return _document(_body(response))

    def download(self, sha256: str, size: int, part: Path, path: str = "") -> None:
        """Download a file into `part`, continuing what it holds; `path`: where else it is.

        An interrupted download leaves `part` for the next call.  Raises CorruptDownload and
        removes `part` if the hash is wrong.
        """
        part.touch()
        while (done := part.stat().st_size) < size:
            self._fetch(path or f"/files/{sha256}", size, part, done)
        if part.stat().st_size != size or hash_of(part) != sha256:
            part.unlink()
            raise CorruptDownload(f"the download of {sha256} does not match this hash")

    def _fetch(self, path: str, size: int, part: Path, done: int) -> None:
        """Add to `part` as much as may be transferred at once."""
        granted = self._granted("down", size - done)
        end = "" if done + granted == size else str(done + granted - 1)
        headers = {"Range": f"bytes={done}-{end}"} if done or end else {}
        with self._content(path, headers) as response:
            resumed = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            mode = "ab" if response.status_code == 206 and resumed else "wb"
            with part.open(mode) as file:
                _copy(response, file, size)
                file.flush()
                os.fsync(file.fileno())
        if part.stat().st_size < done + granted:
            raise ServerUnavailable(f"the download of {path} was interrupted")

    def upload(self, id: ReplicaId, output: Output, source: BinaryIO) -> None:
        """Upload an output, from the first byte that the server lacks.  Idempotent."""
        address = f"/uploads/{id.bot}/{id.seq}/{id.replica}/{quote(output.name)}"
        self._upload(address, {"sha256": output.sha256}, output.size, source)

    def upload_checkpoint(
        self, id: ReplicaId, number: int, sha256: str, size: int, source: BinaryIO
    ) -> None:
        """Upload a packed checkpoint, as an output.  Idempotent; a number must not fall."""
        address = f"/checkpoints/{id.bot}/{id.seq}/{id.replica}"
        self._upload(address, {"sha256": sha256, "number": str(number)}, size, source)

    def _upload(self, address: str, query: dict[str, str], size: int, source: BinaryIO) -> None:
        query = {**query, "size": str(size)}
        with self._call("HEAD", address, params=query) as response:
            offset, complete = _upload_state(response.headers)
            goes_elsewhere = response.headers.get("Upload-Redirect") == "?1"
        while not complete:
            source.seek(offset)
            if goes_elsewhere:
                more = {**query, "offset": str(offset)}
                offset, complete = self._send_part(address, more, offset, source)
                continue
            piece = source.read(self._granted("up", min(PIECE_BYTES, size - offset)))
            more = {**query, "offset": str(offset)}
            with self._call("PUT", address, params=more, data=piece) as response:
                answer = _document(_body(response))
            before, (offset, complete) = offset, _progress(answer)
            if not complete and offset <= before:
                raise ServerUnavailable(f"the upload to {address} makes no progress")

    def _send_part(
        self, address: str, query: dict[str, str], offset: int, source: BinaryIO
    ) -> tuple[int, bool]:
        """Send a part to where the server says; return how much is there, and whether all is."""
        with self._request("PUT", address, params=query, data=b"") as response:
            there = self._redirection(response)
            if there is None:
                if not response.ok:
                    raise _failure(response, self.url)
                now, complete = _progress(_document(_body(response)))
                if not complete and now == offset:
                    raise ServerUnavailable("the upload makes no progress")
                return now, complete
        if not 0 < there.size <= int(query["size"]) - offset:
            raise ServerUnavailable(
                f"{self.url} asks for a part of {there.size} bytes from {offset} on,"
                f" of a file of {query['size']}"
            )
        body = PacedPart(source, there.size, lambda wanted: self._granted("up", wanted))
        with self._elsewhere("PUT", there, data=body, headers=there.headers):
            return offset + there.size, False

    @contextmanager
    def _content(self, path: str, headers: dict[str, str]) -> Iterator[requests.Response]:
        """Content of a file, from the server or from where it says."""
        with self._request("GET", path, headers=headers) as response:
            there = self._redirection(response)
            if there is None:
                if not response.ok or response.is_redirect:
                    raise _failure(response, self.url)
                yield response
                return
        with self._elsewhere("GET", there, headers=headers) as response:
            yield response

    def _redirection(self, response: requests.Response) -> Redirection | None:
        try:
            return Redirection.read(response)
        except BadRedirection as error:
            raise NotOurServer(f"{self.url}: {error}") from None

    @contextmanager
    def _elsewhere(
        self, method: str, there: Redirection, **options: Any
    ) -> Iterator[requests.Response]:
        """Send a request to a place without our token.  Its refusals may pass."""
        try:
            with self._without_token.request(
                method, there.url, timeout=self._timeout, allow_redirects=False, stream=True,
                proxies=proxies_for(there.url), **options,
            ) as response:  # fmt: skip
                if response.status_code == requests.codes.bad_request and method == "PUT":
                    raise RequestRefused(
                        422, f"{there.host} refuses a part of the file: it was changed meanwhile"
                    )
                if not response.ok or response.is_redirect:
                    raise ServerUnavailable(
                        f"{there.host}, to which {self.url} leads: HTTP {response.status_code}",
                        asked_seconds(response),
                    )
                yield response
        except ForbiddenAddress as error:
            raise NotOurServer(f"{self.url}: {error}") from None
        except requests.RequestException as error:
            raise ServerUnavailable(cannot_reach(f"//{there.host}", error)) from None

    def _granted(self, direction: Direction, wanted: int) -> int:
        try:
            return self._allowance.take(direction, wanted)
        except TransferWaits as error:
            raise ServerUnavailable(str(error), LOOK_AGAIN_SECONDS) from None

    @contextmanager
    def _call(self, method: str, path: str, **options: Any) -> Iterator[requests.Response]:
        """Send a request; a status other than 2xx, redirects included, raises an error."""
        with self._request(method, path, **options) as response:
            if not response.ok or response.is_redirect:
                raise _failure(response, self.url)
            yield response

    @contextmanager
    def _request(self, method: str, path: str, **options: Any) -> Iterator[requests.Response]:
        try:
            with self._session.request(
                method,
                self.url + path,
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
                proxies=self._proxies,
                **options,
            ) as response:
                yield response
        except _BAD_URLS:
            raise RequestRefused(
                400, f"{self.url!r} is not a URL such as https://host:port"
            ) from None
        except OSError as error:  # those of requests are, too
            if not is_of_network(error):
                raise
            raise ServerUnavailable(cannot_reach(self.url, error)) from None


def final_url(url: str) -> str:
    """Return where a server's address leads, by redirections.  Raises TransportError."""
    for _ in range(_MOST_REDIRECTIONS):
        with Transport(url, "") as transport:
            if not (place := transport.moved_to()):
                return url
        url = place
    raise NotOurServer(f"{url}: more than {_MOST_REDIRECTIONS} redirections")


_BAD_URLS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
)
_JSON = {"Content-Type": "application/json"}


def _failure(response: requests.Response, url: str) -> TransportError:
    """Error for a response with a status other than 2xx."""
    code = response.status_code
    if code >= 500 or code == 429:
        return ServerUnavailable(f"{url}: HTTP {code} {response.reason}", asked_seconds(response))
    if response.request.method == "HEAD":
        return RequestRefused(code, f"HTTP {code} {response.reason}")
    try:
        body = _body(response)
        document = _document(body)
    except requests.RequestException:
        return NotOurServer(strange_answer(url, response, b""))
    except NotOurServer:
        return NotOurServer(strange_answer(url, response, body))
    error, detail = str(document.get("error") or ""), str(document.get("detail") or document)
    return RequestRefused(code, detail[:1000], error[:100])


def _body(response: requests.Response) -> bytes:
    """Body of a response, cut beyond MOST_REPLY_BYTES."""
    found = io.BytesIO()
    _copy(response, found, MOST_REPLY_BYTES)
    return found.getvalue()


def _copy(response: requests.Response, file: Any, most: int) -> None:
    """Write a body to a file; stop once the file holds more than `most` bytes."""
    for chunk in response.iter_content(_CHUNK_BYTES):
        file.write(chunk)
        if file.tell() > most:
            return


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise NotOurServer(f"not a GridBot server: unexpected response {body[:60]!r}")
    return document


def _upload_state(headers: Mapping[str, str]) -> tuple[int, bool]:
    offset = headers.get("Upload-Offset", "")
    if not offset.isdigit():
        raise NotOurServer("not a GridBot server: the response to an upload has no offset")
    return int(offset), headers.get("Upload-Complete") == "?1"


def _progress(answer: Mapping[str, Any]) -> tuple[int, bool]:
    offset = answer.get("offset")
    if not isinstance(offset, int):
        raise NotOurServer("not a GridBot server: the response to an upload has no offset")
    return offset, answer.get("complete") is True


def asked_seconds(response: requests.Response) -> float:
    """Seconds in the Retry-After header, which holds a number or an HTTP date; 0 without one."""
    text = response.headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
