"""A bucket of an object store that speaks S3: the few requests of the protocol that are needed.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree import ElementTree

from gridbot_client.aws import UNSIGNED, RequestSigner, encoded
from gridbot_server.errors import StoreAway, StoreFull

if TYPE_CHECKING:
    import requests  # loaded by the first call: most servers have no object store

_TIMEOUT = (5.0, 60.0)  # seconds: to connect, and between two bytes
_MOST_XML_BYTES = 16 << 20
_CHECKSUM = "x-amz-checksum-sha256"
_OPTIONS = frozenset({"endpoint", "public", "region"})
_NO_ROOM = frozenset({"QuotaExceeded", "InsufficientStorage", "StorageFull", "XMinioStorageFull"})


class S3Error(ValueError):
    """The place or the credentials of a bucket cannot be right; the message says what to do."""


class StoredObject(NamedTuple):
    """An object, as listings and HEAD show it."""

    key: str
    size: int
    stored_at: datetime
    etag: str
    sha256: str = ""  # in hex, as the store checked it; "": it does not say


class Part(NamedTuple):
    """A part of a multipart upload that has arrived."""

    number: int
    size: int
    etag: str


class Begun(NamedTuple):
    """A multipart upload that is not complete."""

    key: str
    id: str
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Where a bucket is: `s3://BUCKET/PREFIX?endpoint=URL&public=URL&region=NAME`."""

    bucket: str
    prefix: str  # ends with / unless it is empty
    endpoint: str  # as this server reaches it
    public: str  # as clients reach it
    region: str

    @classmethod
    def parse(cls, text: str) -> BucketPlace:
        """Read a place.  Raises S3Error."""
        parts = urlsplit(text)
        if parts.scheme != "s3" or not parts.hostname:
            raise S3Error(
                f"{_shown(text)} is no place for files; write s3://BUCKET/PREFIX?endpoint=https://…"
            )
        if parts.username or parts.password:
            raise S3Error(
                "credentials do not belong into the URL, where others can read them: set"
                " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write s3.credentials"
            )
        given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if unknown := sorted(given.keys() - _OPTIONS):
            known = ", ".join(sorted(_OPTIONS))
            raise S3Error(f"{_shown(text)}: there is no option {unknown[0]!r}; there are: {known}")
        region = given.get("region", "us-east-1")
        endpoint = given.get("endpoint", f"https://s3.{region}.amazonaws.com").rstrip("/")
        for url in (endpoint, given.get("public", endpoint)):
            if not url.startswith(("http://", "https://")) or urlsplit(url).path:
                raise S3Error(f"{_shown(url)} is no address of an object store; write https://HOST")
        prefix = parts.path.strip("/")
        return cls(
            parts.hostname, f"{prefix}/" if prefix else "", endpoint,
            given.get("public", endpoint).rstrip("/"), region,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, below a prefix.  Raises StoreAway and StoreFull."""

    place: BucketPlace
    signer: RequestSigner
    given: requests.Session | None = field(default=None, repr=False)  # None: one of each thread's
    _own: threading.local = field(default_factory=threading.local, repr=False)

    def is_there(self) -> bool:
        """Whether the bucket itself is there."""
        with self._call("HEAD", None, missing=True) as answer:
            return answer is not None

    def head(self, key: str, *, with_checksum: bool = False) -> StoredObject | None:
        """Look at an object, and ask for its checksum."""
        headers = {"x-amz-checksum-mode": "ENABLED"} if with_checksum else {}
        with self._call("HEAD", key, headers=headers, missing=True) as answer:
            if answer is None:
                return None
            try:
                stored_at = parsedate_to_datetime(answer.headers["Last-Modified"])
                size = int(answer.headers["Content-Length"])
            except (KeyError, ValueError, TypeError):
                raise StoreAway(
                    f"the object store {self.place} says nothing of an object"
                ) from None
            etag, said = answer.headers.get("ETag", ""), answer.headers.get(_CHECKSUM, "")
            return StoredObject(key, size, stored_at, etag, _in_hex(said))

    def piece(self, found: StoredObject, first: int, most: int) -> bytes:
        """Return up to so many bytes of an object from `first` on, if it is still this one."""
        last = min(first + most, found.size) - 1
        headers = {"range": f"bytes={first}-{last}", "if-match": found.etag}
        with self._call("GET", found.key, headers=headers) as answer:
            content: bytes = answer.content
        if len(content) != last - first + 1:
            raise StoreAway(
                f"the object store {self.place} does not send the range it is asked for"
            )
        return content

    def read(self, key: str) -> bytes | None:
        """Return a short object."""
        with self._call("GET", key, missing=True) as answer:
            return None if answer is None else answer.content

    def beginning(self, key: str, most: int) -> bytes | None:
        """Return the first bytes of an object, at most `most`; the store sends no more."""
        found = self.head(key)
        if found is None or not found.size or not most:  # of nothing there is no range
            return found and b""
        with self._call("GET", key, headers={"range": f"bytes=0-{most - 1}"}, missing=True) as part:
            if part is None:
                return None
            part.raw.decode_content = False
            read: bytes = part.raw.read(most)  # no more, whatever a store makes of the range
            return read

    @contextmanager
    def stream(self, key: str) -> Iterator[tuple[str, Iterator[bytes]] | None]:
        """The ETag and the bytes of an object."""
        with self._call("GET", key, missing=True) as answer:
            if answer is None:
                yield None
            else:
                yield answer.headers.get("ETag", ""), answer.iter_content(256 << 10)

    def write(self, key: str, body: bytes | BinaryIO, sha256: str) -> None:
        """Store an object whose hash is known (hex)."""
        with self._call("PUT", key, body=body, payload=sha256):
            pass

    def takes_lies(self, key: str) -> bool:
        """Whether an object is stored here that is not what its checksum says; it is deleted."""
        wrong = checksum(hashlib.sha256(b"").hexdigest())
        with suppress(StoreAway), self._call("PUT", key, headers=wrong, body=b"a lie"):
            pass
        is_there = self.head(key) is not None
        if is_there:
            self.delete(key)
        return is_there

    def copy(self, source: str, target: str, etag: str) -> None:
        """Copy an object within the bucket, if it is still the one with this ETag."""
        headers = {
            "x-amz-copy-source": quote(f"/{self.place.bucket}/{self.place.prefix}{source}"),
            "x-amz-copy-source-if-match": etag,
        }
        with self._call("PUT", target, headers=headers) as answer:
            # A copy that fails half way is told in an answer that began as a success.
            if answer is None or _name(_xml(answer)) == "Error":
                raise StoreAway("the object store could not copy an object, try again")

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        with self._call("DELETE", key, missing=True):
            pass

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose keys begin so, in order."""
        query = {"list-type": "2", "prefix": self.place.prefix + prefix}
        while query:
            with self._call("GET", None, query=query) as answer:
                found = _xml(answer)
            for item in _all(found, "Contents"):
                yield StoredObject(
                    _text(item, "Key").removeprefix(self.place.prefix), int(_text(item, "Size")),
                    _time(_text(item, "LastModified")), _text(item, "ETag"),
                )  # fmt: skip
            token = _text(found, "NextContinuationToken")
            is_cut = _text(found, "IsTruncated") == "true" and token
            query = {**query, "continuation-token": token} if is_cut else {}

    def begin(self, key: str) -> str:
        """Begin a multipart upload; return its id."""
        with self._call("POST", key, query={"uploads": ""}) as answer:
            return _text(_xml(answer), "UploadId")

    def begun(self, prefix: str) -> list[Begun]:
        """Multipart uploads that are not complete, the first 1,000."""
        query = {"uploads": "", "prefix": self.place.prefix + prefix}
        with self._call("GET", None, query=query) as answer:
            found = _xml(answer)
        return [
            Begun(
                _text(item, "Key").removeprefix(self.place.prefix), _text(item, "UploadId"),
                _time(_text(item, "Initiated")),
            )
            for item in _all(found, "Upload")
        ]  # fmt: skip

    def parts(self, key: str, id: str) -> list[Part]:
        """Return the parts that have arrived, in order."""
        parts, query = list[Part](), {"uploadId": id}
        while query:
            with self._call("GET", key, query=query, missing=True) as answer:
                if answer is None:
                    return []
                found = _xml(answer)
            parts += [
                Part(int(_text(item, "PartNumber")), int(_text(item, "Size")), _text(item, "ETag"))
                for item in _all(found, "Part")
            ]
            marker = _text(found, "NextPartNumberMarker")
            is_cut = _text(found, "IsTruncated") == "true" and marker
            query = {"uploadId": id, "part-number-marker": marker} if is_cut else {}
        return sorted(parts)

    def complete(self, key: str, id: str, parts: list[Part]) -> None:
        """Make an object of the parts of a multipart upload."""
        root = ElementTree.Element("CompleteMultipartUpload")
        for part in parts:
            item = ElementTree.SubElement(root, "Part")
            ElementTree.SubElement(item, "PartNumber").text = str(part.number)
            ElementTree.SubElement(item, "ETag").text = part.etag
        body = ElementTree.tostring(root)
        with self._call("POST", key, query={"uploadId": id}, body=body) as answer:
            if _name(_xml(answer)) == "Error":
                raise StoreAway("the object store could not put an upload together, try again")

    def abort(self, key: str, id: str) -> None:
        """Forget a multipart upload and its parts."""
        with self._call("DELETE", key, query={"uploadId": id}, missing=True):
            pass

    def presigned(
        self, method: str, key: str, now: datetime, seconds: int,
        query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Return a URL for clients, good for so many seconds."""
        url = self._url(self.place.public, key)
        return self.signer.presigned(method, url, query or {}, headers or {}, now, seconds)

    def _url(self, address: str, key: str | None) -> str:
        path = f"/{self.place.bucket}"
        return f"{address}{path}" + (
            f"/{quote(self.place.prefix + key)}" if key is not None else ""
        )

    @contextmanager
    def _call(
        self, method: str, key: str | None, *, query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None, body: bytes | BinaryIO = b"",
        payload: str = "", missing: bool = False,
    ) -> Iterator[Any]:  # fmt: skip
        """Send a request; yield its answer, or None where what is `missing` is no error."""
        from requests import RequestException

        url, query = self._url(self.place.endpoint, key), query or {}
        if not payload:
            payload = hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else UNSIGNED
        now = datetime.now(UTC)
        signed = self.signer.headers(method, url, query, headers or {}, payload, now)
        address = f"{url}?{encoded(query)}" if query else url
        try:
            with self._session.request(
                method, address, headers=signed, data=body, timeout=_TIMEOUT, stream=True,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                if answer.status_code == HTTPStatus.NOT_FOUND and missing:
                    yield None
                    return
                _refuse(answer, method, self.place)
                yield answer
        except RequestException as error:
            # Without the URL, which the error's own text holds.
            raise StoreAway(
                f"the object store {self.place} does not answer ({type(error).__name__})"
            ) from None

    @property
    def _session(self) -> requests.Session:
        """This thread's connections: sessions are not for several, nor for a forked process."""
        if self.given is not None:
            return self.given
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = new_session()
        return session


def new_session() -> requests.Session:
    """Connections of one thread to object stores."""
    from requests import Session

    session = Session()
    session.auth = _unchanged  # no netrc file
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "gridbot-server"})
    return session


def checksum(sha256: str) -> dict[str, str]:
    """The header by which a store itself checks what is sent."""
    return {_CHECKSUM: base64.b64encode(bytes.fromhex(sha256)).decode()}


def _in_hex(checksum: str) -> str:
    """A checksum of S3 in hex; "" for what is none of a whole object."""
    try:
        found = base64.b64decode(checksum, validate=True)
    except ValueError:
        return ""
    return found.hex() if len(found) == hashlib.sha256().digest_size else ""


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _refuse(answer: requests.Response, method: str, place: BucketPlace) -> None:
    if answer.ok:
        return
    code = ""
    if method != "HEAD":
        try:
            code = _text(_xml(answer), "Code")
        except StoreAway:
            code = answer.reason
    if answer.status_code == HTTPStatus.INSUFFICIENT_STORAGE or code in _NO_ROOM:
        raise StoreFull(f"the object store {place} is full, try again later")
    raise StoreAway(f"the object store {place} refuses {method}: {answer.status_code} {code[:100]}")


def _xml(answer: requests.Response) -> ElementTree.Element:
    text = b""
    for chunk in answer.iter_content(1 << 16):
        text += chunk
        if len(text) > _MOST_XML_BYTES:
            raise StoreAway("the object store's answer is too long")
    try:
        return ElementTree.fromstring(text)  # noqa: S314 (from a store that the operator names)
    except ElementTree.ParseError:
        raise StoreAway("the object store's answer is no XML document") from None


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _all(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _name(child) == name)


def _text(element: ElementTree.Element, name: str) -> str:
    return next((child.text or "" for child in _all(element, name)), "")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _shown(text: str) -> str:
    """A text that may hold a password, without what comes before an @."""
    head, at, rest = text.rpartition("@")
    scheme = head.partition("//")[0]
    return repr(f"{scheme}//…@{rest}" if at else text)[:200]
