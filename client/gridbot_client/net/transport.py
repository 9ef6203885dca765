"""Talks HTTP with one server: requests, downloads that resume, uploads that resume."""

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
from urllib.parse import quote

import requests
from requests.auth import AuthBase

from gridbot_client.protocol.messages import Output, ReplicaId

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
MOST_REPLY_BYTES = 64 << 20
PIECE_BYTES = 4 << 20  # of an upload: what a cut connection costs at most
_CHUNK_BYTES = 16 << 10  # what a cut download loses at most


class TransportError(Exception):
    """Something between here and there failed; base of the errors below."""


class ServerAway(TransportError):
    """Nobody answers, or the server is busy; try again, not before `retry_after` seconds."""

    def __init__(self, detail: str, retry_after: float = 0.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class NotOurServer(TransportError):
    """Something else answers under that address: a login page, a proxy's error page."""


class Refused(TransportError):
    """The server understood and said no."""

    def __init__(self, code: int, detail: str, error: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.error = error  # the server's name for it, where the answer has one

    @property
    def shuts_out(self) -> bool:
        """Whether the server serves this client no more: revoked, or its machine is banned."""
        # What answers HEAD has no name; a client that may ask at all is only refused by a ban.
        return self.code == 401 or (self.code == 403 and self.error in ("", "Banned"))


class CorruptDownload(TransportError):
    """A whole file came, but not the one that was asked for."""


class _Bearer(AuthBase):
    """Sends the token; as `auth`, because requests lets a netrc file replace a plain header."""

    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._value
        return request


class Transport:
    """One server as seen by one client or one key.  Not for several threads at once."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        self._session.headers.update({"Accept-Encoding": "identity", "User-Agent": "gridbot"})

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._session.close()

    def rpc(self, body: bytes) -> bytes:
        """Send one request for work; the body of the answer."""
        with self._call("POST", "/rpc", data=body, headers=_JSON) as response:
            return _body(response)

    def post_json(self, path: str, document: Mapping[str, Any], method: str = "POST") -> Any:
        """Send a JSON document; the document that came back."""
        body = json.dumps(document).encode()
        with self._call(method, path, data=body, headers=_JSON) as response:
            return _document(_body(response))

    def download(self, sha256: str, size: int, part: Path) -> None:
        """Complete `part`, which may hold a beginning, until it is the file of that hash.

        A cut leaves the part for the next try; a wrong hash removes it.
        """
        done = part.stat().st_size if part.exists() else 0
        if done < size or not part.exists():
            self._fetch(sha256, size, part, done)
        if part.stat().st_size != size or hash_of(part) != sha256:
            part.unlink()
            raise CorruptDownload(f"what came as {sha256} is another file")

    def _fetch(self, sha256: str, size: int, part: Path, done: int) -> None:
        headers = {"Range": f"bytes={done}-"} if done else {}
        with self._call("GET", f"/files/{sha256}", headers=headers) as response:
            resumed = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            mode = "ab" if response.status_code == 206 and resumed else "wb"
            with part.open(mode) as file:
                _copy(response, file, size)
                file.flush()
                os.fsync(file.fileno())
        if part.stat().st_size < size:
            raise ServerAway(f"the download of {sha256} ended early")

    def upload(self, id: ReplicaId, output: Output, source: BinaryIO) -> None:
        """Bring an output to the server, from the byte on that it lacks; safe to repeat."""
        address = f"/uploads/{id.bot}/{id.seq}/{id.replica}/{quote(output.name)}"
        query = {"sha256": output.sha256, "size": str(output.size)}
        with self._call("HEAD", address, params=query) as response:
            offset, complete = _upload_state(response.headers)
        while not complete:
            source.seek(offset)
            piece = source.read(PIECE_BYTES)
            more = {**query, "offset": str(offset)}
            with self._call("PUT", address, params=more, data=piece) as response:
                answer = _document(_body(response))
            before, (offset, complete) = offset, _progress(answer)
            if not complete and offset <= before:
                raise ServerAway(f"the upload of {output.name} does not move on")

    @contextmanager
    def _call(self, method: str, path: str, **options: Any) -> Iterator[requests.Response]:
        """Send a request and check the answer's status; redirects are a portal's work."""
        try:
            with self._session.request(
                method,
                self.url + path,
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                allow_redirects=False,
                stream=True,
                **options,
            ) as response:
                if not response.ok or response.is_redirect:
                    raise _failure(response, self.url)
                yield response
        except requests.exceptions.SSLError as error:
            raise ServerAway(f"the certificate of {self.url} is not accepted: {error}") from None
        except _BAD_URLS:
            raise Refused(400, f"{self.url!r} is not a URL such as https://host:port") from None
        except requests.RequestException as error:
            raise ServerAway(f"cannot reach {self.url}: {_plain(error)}") from None


_BAD_URLS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
)
_JSON = {"Content-Type": "application/json"}


def _failure(response: requests.Response, url: str) -> TransportError:
    """The error that a status other than 2xx stands for."""
    code = response.status_code
    if code >= 500 or code == 429:
        return ServerAway(f"{url} answers {code} {response.reason}", _retry_after(response))
    if response.request.method == "HEAD":
        return Refused(code, f"{code} {response.reason}")
    try:
        document = _document(_body(response))
    except (NotOurServer, requests.RequestException):
        return NotOurServer(f"{url} answers {code} without a reason that a GridBot server gives")
    error, detail = str(document.get("error") or ""), str(document.get("detail") or document)
    return Refused(code, detail[:1000], error[:100])


def _body(response: requests.Response) -> bytes:
    """The whole body, unless it is longer than any reply may be."""
    found = io.BytesIO()
    _copy(response, found, MOST_REPLY_BYTES)
    return found.getvalue()


def _copy(response: requests.Response, file: Any, most: int) -> None:
    """Write a body to a file; stops once there is more than `most` bytes in it."""
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
        raise NotOurServer(f"the answer is not a GridBot server's: {body[:60]!r}")
    return document


def _upload_state(headers: Mapping[str, str]) -> tuple[int, bool]:
    offset = headers.get("Upload-Offset", "")
    if not offset.isdigit():
        raise NotOurServer("the answer to an upload names no offset")
    return int(offset), headers.get("Upload-Complete") == "?1"


def _progress(answer: Mapping[str, Any]) -> tuple[int, bool]:
    offset = answer.get("offset")
    if not isinstance(offset, int):
        raise NotOurServer("the answer to an upload names no offset")
    return offset, answer.get("complete") is True


def _retry_after(response: requests.Response) -> float:
    """Seconds that the server asks to wait: a number or an HTTP date."""
    text = response.headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(error: BaseException) -> str:
    """The system's own words for a failed connection, from inside the library's."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror.lower()
        reason = getattr(seen.args[0], "reason", None) if seen.args else None
        seen = reason or seen.__cause__ or seen.__context__
    return f"{type(error).__name__}"
