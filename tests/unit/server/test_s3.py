"""Claims about where a bucket is, and its credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridbot_server.settings import Settings, SettingsError
from gridbot_server.storage.files import S3Error, open_bucket
from gridbot_server.storage.files.s3 import BucketPlace


def test_a_bucket_is_named_with_what_is_needed_to_reach_it() -> None:
    place = BucketPlace.parse("s3://data/grid/bot?endpoint=http://10.0.0.5:8333&region=eu-1")
    assert place == BucketPlace(
        "data", "grid/bot/", "http://10.0.0.5:8333", "http://10.0.0.5:8333", "eu-1"
    )
    assert BucketPlace.parse("s3://data").endpoint == "https://s3.us-east-1.amazonaws.com"
    assert str(place) == "s3://data/grid/bot"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/srv/files", "is no place for files; write s3://"),
        ("https://example.org/bucket", "is no place for files"),
        ("s3://", "is no place for files"),
        ("s3://AKIA:secret@bucket/x", "credentials do not belong into the URL"),
        ("s3://bucket?endpiont=https://x", "no option 'endpiont'; there are: endpoint"),
        ("s3://bucket?endpoint=example.org", "no address of an object store"),
        ("s3://bucket?endpoint=https://example.org/path", "no address of an object store"),
    ],
)
def test_a_place_that_cannot_be_right_is_refused_at_the_start(
    text: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="--files: ") as caught:
        Settings(data=tmp_path, files_url=text)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_bucket_without_credentials_is_refused_with_what_to_do(tmp_path: Path) -> None:
    missing = tmp_path / "s3.credentials"
    with pytest.raises(S3Error, match="object store: no credentials: set AWS_ACCESS_KEY_ID"):
        open_bucket("s3://data", tmp_path, {}, missing)
