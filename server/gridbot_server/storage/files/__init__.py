"""The file store: content by its SHA-256, in a folder or in a bucket of an object store (S3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gridbot_client.aws import NoCredentials, RequestSigner, find_credentials
from gridbot_server.storage.files.bucket import BucketStore
from gridbot_server.storage.files.folder import FolderStore
from gridbot_server.storage.files.s3 import Bucket, BucketPlace, S3Error
from gridbot_server.storage.files.store import (
    PARTIAL_LIFETIME,
    Content,
    Destination,
    Store,
    Upload,
    read_chunks,
)

__all__ = [
    "PARTIAL_LIFETIME",
    "BucketPlace",
    "BucketStore",
    "Content",
    "Destination",
    "FolderStore",
    "S3Error",
    "Store",
    "Upload",
    "open_bucket",
    "read_chunks",
]


def open_bucket(
    place: str, uploads: Path, environment: Mapping[str, str], file: Path
) -> BucketStore:
    """The store at `s3://…`, with the credentials of the environment or the file.

    Raises S3Error.
    """
    found = BucketPlace.parse(place)
    try:
        signer = RequestSigner(find_credentials(environment, file), found.region)
    except NoCredentials as error:
        raise S3Error(f"object store: {error}") from None
    return BucketStore(Bucket(found, signer), uploads)
