"""Claims about signatures of requests to S3 and EC2, and where credentials are found."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gridbot_client.aws import AwsCredentials, NoCredentials, RequestSigner, find_credentials

# The key pair and the requests of the protocol's own examples.
EXAMPLE = RequestSigner(
    AwsCredentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), "us-east-1"
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


# Of AWS's Signature Version 4 test suite, the cases get-vanilla, get-vanilla-query-order-key-case,
# post-x-www-form-urlencoded and post-sts-header-before.
SUITE = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SUITE_NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxf"
    "pSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPk"
    "yQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBA"
    "z+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)


@pytest.mark.parametrize(
    ("method", "query", "headers", "body", "token", "signature"),
    [
        ("GET", {}, {}, b"", "",
         "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("GET", {"Param1": "value1", "Param2": "value2"}, {}, b"", "",
         "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
        ("POST", {}, {"Content-Type": "application/x-www-form-urlencoded"}, b"Param1=value1", "",
         "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
        ("POST", {}, {}, b"", TOKEN,
         "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"),
    ],
)  # fmt: skip
def test_another_services_requests_are_signed_as_in_the_protocols_test_suite(
    method: str,
    query: dict[str, str],
    headers: dict[str, str],
    body: bytes,
    token: str,
    signature: str,
) -> None:
    credentials = AwsCredentials(SUITE.access_key, SUITE.secret_key, token)
    signer = RequestSigner(credentials, "us-east-1", "service")
    payload = hashlib.sha256(body).hexdigest()
    url = "https://example.amazonaws.com/"
    signed = signer.headers(method, url, query, headers, payload, SUITE_NOW)
    assert signed["authorization"].endswith(f"Signature={signature}")


def test_credentials_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    with pytest.raises(NoCredentials, match="no credentials: set AWS_ACCESS_KEY_ID"):
        find_credentials({}, file)
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
    assert find_credentials({}, file) == AwsCredentials("A", "B")
    given = {"AWS_ACCESS_KEY_ID": "C", "AWS_SECRET_ACCESS_KEY": "D", "AWS_SESSION_TOKEN": "E"}
    assert find_credentials(given, file) == AwsCredentials("C", "D", "E")


def test_a_profile_that_is_named_goes_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    text = "[other]\naws_access_key_id = A\naws_secret_access_key = B\naws_session_token = C\n"
    file.write_text(text)
    given = {"AWS_ACCESS_KEY_ID": "D", "AWS_SECRET_ACCESS_KEY": "E"}
    assert find_credentials(given, file, "other") == AwsCredentials("A", "B", "C")
    assert find_credentials({"AWS_PROFILE": "other"}, file) == AwsCredentials("A", "B", "C")


@pytest.mark.parametrize("text", ["hunter2", "[default]\nhunter2", "[other]\nx = hunter2"])
def test_a_damaged_file_of_credentials_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    with pytest.raises(NoCredentials, match=r"expected a section \[default\]") as caught:
        find_credentials({}, file)
    assert "hunter2" not in str(caught.value)
