"""What is known of a storage, and how it is reached: with its owner's key, for a bounded time."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from gridbot_client.aws import AwsCredentials, RequestSigner
from gridbot_server.errors import RequestError, ServerBusy
from gridbot_server.settings import Settings
from gridbot_server.storage import storage_key
from gridbot_server.storage.files.s3 import Bucket, BucketPlace, S3Error, checksum, new_session
from gridbot_server.storage.storage_key import StorageKeyError

URL_SECONDS = 3600  # for which a URL is good
PIECE_BYTES = 8 << 20  # that are read of an object at once
MOST_BYTES = 1 << 30  # of an object: as many as a client sends at once
_MOST_ANSWER_BYTES = PIECE_BYTES + (64 << 10)
_MOST_PLACE = 500  # characters
_SAVED = {
    "response-content-disposition": "attachment",
    "response-content-type": "application/octet-stream",
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
_PREFIX = re.compile(r"([A-Za-z0-9_=@+-][A-Za-z0-9._=@+-]*/)*")  # no part is . or ..
_REGION = re.compile(r"[a-z0-9-]{1,50}")
_KEY = re.compile(r"[!-~]{1,500}")

log = logging.getLogger(__name__)


class StorageUnreadable(ServerBusy):
    """This server may not reach a storage, or lacks the key with which its secret was sealed."""


@dataclass(frozen=True, slots=True)
class OwnerStorage:
    """A row of `owner_storage`."""

    id: int
    owner: int
    name: str
    tag: str
    place: str
    access_key: str
    secret_key: bytes  # sealed

    @property
    def shown(self) -> str:
        """Where its objects are, for people: s3://BUCKET/PREFIX/TAG."""
        return str(self._below)

    @property
    def _below(self) -> BucketPlace:
        """The part of the bucket that is this storage's alone."""
        place = BucketPlace.parse(self.place)
        return replace(place, prefix=f"{place.prefix}{self.tag}/")

    def bucket(self, settings: Settings) -> Bucket:
        """Return its bucket, to sign URLs.

        Raises StorageUnreadable, also where the operator has taken its endpoint from the list.
        """
        endpoint = self._below.endpoint
        if endpoint not in settings.allowed_endpoints:
            raise StorageUnreadable(
                f"storage {self.name}: this server reaches no {endpoint} any more"
            )
        try:
            key = storage_key.load(settings.storage_key_path)
            secret = storage_key.unseal(key, self.secret_key, self._about)
        except StorageKeyError as error:
            log.error("storage %d cannot be used: %s", self.id, error)
            raise StorageUnreadable(
                f"this server cannot read the key of storage {self.name}: tell its operator"
            ) from None
        return _bucket(self._below, self.access_key, secret)

    @property
    def _about(self) -> str:
        return _about(self.owner, self.tag, self.place)


def incoming(key: str) -> str:
    """Return the name below TAG under which a client sends an output."""
    return f"incoming/{key}"


def final(bot: int, seq: int, name: str) -> str:
    """Return the name below TAG that an output of a job has for good."""
    return f"{bot}/{seq}/{name}"


def new_key() -> str:
    """Return a name that nobody guesses."""
    return secrets.token_hex(16)


def url_to_write(
    bucket: Bucket, key: str, sha256: str, size: int, now: datetime
) -> tuple[str, dict[str, str]]:
    """Return a URL for just this content, and the headers that must go with it."""
    headers = checksum(sha256)
    signed = {"content-length": str(size), **headers}
    return bucket.presigned("PUT", incoming(key), now, URL_SECONDS, {}, signed), headers


def url_to_read(bucket: Bucket, name: str, now: datetime) -> str:
    """Return a URL from which an object may be fetched; it is saved, never shown as a page."""
    return bucket.presigned("GET", name, now, URL_SECONDS, _SAVED)


@contextmanager
def bounded(bucket: Bucket, seconds: float) -> Iterator[Bucket]:
    """The same bucket, for all that is asked of it in so many seconds.

    Raises StoreAway and StoreFull.
    """
    from gridbot_server.overload import asking  # loads a client of HTTP: few servers need one

    with new_session() as session, asking.bounded(session, seconds, _MOST_ANSWER_BYTES):
        yield replace(bucket, given=session)


def checked_place(text: str, settings: Settings) -> BucketPlace:
    """Read where a storage is to be.  Raises RequestError."""
    allowed = settings.allowed_endpoints
    if not allowed:
        raise RequestError("place: this server sends no outputs to storages of owners")
    if len(text) > _MOST_PLACE or not (text.isascii() and text.isprintable()):
        raise RequestError(f"place: expected up to {_MOST_PLACE} printable characters of ASCII")
    try:
        place = BucketPlace.parse(text)
    except (S3Error, ValueError) as error:
        raise RequestError(f"place: {error}") from None
    if place.public != place.endpoint:
        raise RequestError("place: there is no option 'public' of a storage")
    if place.endpoint not in allowed:
        raise RequestError(
            f"place: this server reaches no {place.endpoint!r}, but {', '.join(allowed)}"
        )
    for what, value, form in (
        ("bucket", place.bucket, _BUCKET),
        ("prefix", place.prefix, _PREFIX),
        ("region", place.region, _REGION),
    ):
        if not form.fullmatch(value):
            raise RequestError(f"place: {value!r} is no usable {what}")
    return place


def text_of(place: BucketPlace) -> str:
    """Write a place in the one form in which it is kept."""
    return f"{place}?endpoint={place.endpoint}&region={place.region}"


@dataclass(frozen=True, slots=True)
class NewStorage:
    """A storage before it has a row."""

    owner: int
    name: str
    place: BucketPlace
    access_key: str
    secret_key: str

    def __post_init__(self) -> None:
        for what in ("access_key", "secret_key"):
            if not _KEY.fullmatch(getattr(self, what)):
                raise RequestError(f"{what}: expected up to 500 printable characters of ASCII")

    def check(self, tag: str, seconds: float) -> None:
        """Write and delete objects, below the tag.

        Raises StoreAway and StoreFull; RequestError where a client could store what it likes under
        a URL that is signed for another content.
        """
        below = replace(self.place, prefix=f"{self.place.prefix}{tag}/")
        with bounded(_bucket(below, self.access_key, self.secret_key), seconds) as bucket:
            probe = incoming(new_key())
            bucket.write(probe, b"", "")
            bucket.delete(probe)
            if bucket.takes_lies(probe):
                raise RequestError(
                    "place: its store does not check x-amz-checksum-sha256, so hosts could send"
                    " there what they like"
                )

    def sealed(self, key: bytes, tag: str) -> bytes:
        """Return its secret as the database keeps it."""
        return storage_key.seal(key, self.secret_key, _about(self.owner, tag, text_of(self.place)))


def _bucket(place: BucketPlace, access_key: str, secret_key: str) -> Bucket:
    return Bucket(place, RequestSigner(AwsCredentials(access_key, secret_key), place.region))


def _about(owner: int, tag: str, place: str) -> str:
    """What a secret is sealed for: in the row of another storage, or another place, it is void."""
    return f"{owner} {tag} {place}"
