"""Signatures of requests to S3: AWS Signature Version 4, as the protocol's reference describes it.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
Pure: the time is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlsplit

UNSIGNED = "UNSIGNED-PAYLOAD"
MOST_SECONDS = 7 * 86_400  # for which a URL may be signed
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Who signs; only the access key may be shown."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class RequestSigner:
    """Signs for one region."""

    credentials: S3Credentials
    region: str

    def headers(
        self, method: str, url: str, query: Mapping[str, str], headers: Mapping[str, str],
        payload: str, now: datetime,
    ) -> dict[str, str]:  # fmt: skip
        """Return all headers of a request; `payload` is the SHA-256 of its body, in hex."""
        stamp = _stamp(now)
        signed = {
            **{name.lower(): value for name, value in headers.items()},
            "x-amz-date": stamp,
            "x-amz-content-sha256": payload,
        }
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
        return f"{stamp[:8]}/{self.region}/s3/aws4_request"

    def _credential(self, stamp: str) -> str:
        return f"{self.credentials.access_key}/{self._scope(stamp)}"


def encoded(query: Mapping[str, str]) -> str:
    """A query in the one form that signatures are made of."""
    pairs = sorted((quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in query)
    return "&".join(f"{name}={value}" for name, value in pairs)


def _stamp(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}"
