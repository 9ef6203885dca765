"""Requests to S3, EC2 and their like: credentials, and AWS Signature Version 4.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
A signature is pure: the time is an argument.
"""

from __future__ import annotations

import configparser
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

UNSIGNED = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """Who signs; only the access key may be shown."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


class NoCredentials(Exception):
    """There are none, or they are damaged; the message says what to do and shows no secret."""


def find_credentials(
    environment: Mapping[str, str], file: Path, profile: str = "", *, must_be_private: bool = False
) -> AwsCredentials:
    """Those of the environment, else of a file in the format of AWS's tools.

    A `profile` that is named is read from the file in any case.  With `must_be_private`, a file
    that others than its owner may read is refused.  Raises NoCredentials.
    """
    found: Mapping[str, str] = {name.lower(): value for name, value in environment.items()}
    if profile or not found.get("aws_access_key_id"):
        path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or file)
        name = profile or environment.get("AWS_PROFILE") or "default"
        found = _section(path, name, must_be_private=must_be_private)
    access, secret = found.get("aws_access_key_id", ""), found.get("aws_secret_access_key", "")
    if not access or not secret:
        raise NoCredentials("the credentials lack aws_access_key_id or its secret")
    return AwsCredentials(access, secret, found.get("aws_session_token", ""))


def _section(path: Path, profile: str, *, must_be_private: bool) -> Mapping[str, str]:
    parser = configparser.RawConfigParser()
    try:
        with path.open() as file:
            if must_be_private and os.fstat(file.fileno()).st_mode & 0o077:
                raise NoCredentials(f"{path} may be read by others: chmod 600 {path}")
            parser.read_string(file.read())
        return parser[profile]
    except FileNotFoundError:
        raise NoCredentials(
            f"no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write {path}"
        ) from None
    except OSError as error:
        raise NoCredentials(f"{path}: {error.strerror}") from None
    except (configparser.Error, KeyError, UnicodeDecodeError):
        # The message of a parser holds the line, which may be a secret.
        raise NoCredentials(f"{path}: expected a section [{profile}] of NAME = VALUE") from None


@dataclass(frozen=True, slots=True)
class RequestSigner:
    """Signs for one service in one region."""

    credentials: AwsCredentials
    region: str
    service: str = "s3"

    def headers(
        self, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str],
        payload: str, now: datetime,
    ) -> dict[str, str]:  # fmt: skip
        """Return all headers of a request; `payload` is the SHA-256 of its body, in hex."""
        stamp = _stamp(now)
        signed = {
            **{name.lower(): value for name, value in headers.items()},
            "x-amz-date": stamp,
        }
        if self.service == "s3":  # which alone wants it
            signed["x-amz-content-sha256"] = payload
        if token := self.credentials.session_token:
            signed["x-amz-security-token"] = token
        everything = {**signed, "host": urlsplit(url).netloc}
        signature = self._signature(method, url, query, everything, payload, stamp)
        names = ";".join(sorted(everything))
        signed["authorization"] = (
            f"{_ALGORITHM} Credential={self._credential(stamp)},"
            f"SignedHeaders={names},Signature={signature}"
        )
        return signed

    def presigned(
        self, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str],
        now: datetime, seconds: int,
    ) -> str:  # fmt: skip
        """Return a URL that anybody may use with these headers, for so many seconds."""
        stamp = _stamp(now)
        everything = {
            **{name.lower(): value for name, value in headers.items()},
            "host": urlsplit(url).netloc,
        }
        parameters = {
            **query,
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": self._credential(stamp),
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": ";".join(sorted(everything)),
        }
        if token := self.credentials.session_token:
            parameters["X-Amz-Security-Token"] = token
        signature = self._signature(method, url, parameters, everything, UNSIGNED, stamp)
        return f"{url}?{encoded(parameters)}&X-Amz-Signature={signature}"

    def _signature(
        self, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str],
        payload: str, stamp: str,
    ) -> str:  # fmt: skip
        names = sorted(headers)
        request = "\n".join(
            [
                method,
                urlsplit(url).path or "/",
                encoded(query),
                *(f"{name}:{' '.join(headers[name].split())}" for name in names),
                "",
                ";".join(names),
                payload,
            ]
        )
        text = "\n".join(
            [_ALGORITHM, stamp, self._scope(stamp), hashlib.sha256(request.encode()).hexdigest()]
        )
        key = f"AWS4{self.credentials.secret_key}".encode()
        for part in (*self._scope(stamp).split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        return key.hex()

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"

    def _credential(self, stamp: str) -> str:
        return f"{self.credentials.access_key}/{self._scope(stamp)}"


def encoded(query: Mapping[str, str]) -> str:
    """A query in the one form that signatures are made of."""
    pairs = sorted((quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in query)
    return "&".join(f"{name}={value}" for name, value in pairs)


def _stamp(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}"
