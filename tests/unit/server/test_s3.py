"""Claims about signatures for S3, where a bucket is, and its credentials."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridbot_server.settings import Settings, SettingsError
from gridbot_server.storage.files.s3 import BucketPlace, S3Error, find_credentials
from gridbot_server.storage.files.sigv4 import RequestSigner, S3Credentials

# The key pair and the requests of the protocol's own examples.
EXAMPLE = RequestSigner(
    S3Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), "us-east-1"
)
NOW = datetime(2013, 5, 24, tzinfo=UTC)
HOST = "https://examplebucket.s3.amazonaws.com"
NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_presigned_url_is_that_of_the_protocols_example() -> None:
    url = EXAMPLE.presigned("GET", f"{HOST}/test.txt", {}, {}, NOW, 86_400)
    assert url.endswith(
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )


@pytest.mark.parametrize(
    ("path", "query", "headers", "signature"),
    [
        ("/test.txt", {}, {"Range": "bytes=0-9"},
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/", {"lifecycle": ""}, {},
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/", {"max-keys": "2", "prefix": "J"}, {},
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)  # fmt: skip
def test_a_signed_request_is_that_of_the_protocols_examples(
    path: str, query: dict[str, str], headers: dict[str, str], signature: str
) -> None:
    signed = EXAMPLE.headers("GET", HOST + path, query, headers, NOTHING, NOW)
    assert signed["authorization"].endswith(f"Signature={signature}")


def test_secrets_are_not_shown() -> None:
    assert "wJalr" not in repr(EXAMPLE)


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


def test_credentials_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "s3.credentials"
    with pytest.raises(S3Error, match="no credentials for the object store: set AWS_ACCESS_KEY_ID"):
        find_credentials({}, file)
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
    assert find_credentials({}, file) == S3Credentials("A", "B")
    given = {"AWS_ACCESS_KEY_ID": "C", "AWS_SECRET_ACCESS_KEY": "D", "AWS_SESSION_TOKEN": "E"}
    assert find_credentials(given, file) == S3Credentials("C", "D", "E")


@pytest.mark.parametrize("text", ["hunter2", "[default]\nhunter2", "[other]\nx = hunter2"])
def test_a_damaged_file_of_credentials_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s3.credentials"
    file.write_text(text)
    with pytest.raises(S3Error, match=r"s3\.credentials: expected a section \[default\]") as caught:
        find_credentials({}, file)
    assert "hunter2" not in str(caught.value)
