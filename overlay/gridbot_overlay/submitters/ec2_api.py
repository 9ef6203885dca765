"""Requests to EC2's Query API: signed, bounded in time and size, with errors that have names.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode
from xml.etree.ElementTree import Element

import requests

from gridbot_client.aws import (
    AwsCredentials,
    NoCredentials,
    RequestSigner,
    find_credentials,
)
from gridbot_client.net.bounded_https import bounded_session
from gridbot_client.net.discovery import proxies_for
from gridbot_overlay.submitters import GridError, answers
from gridbot_overlay.submitters.commands import OUTPUT_BYTES, TIMEOUT_SECONDS

DRY_RUN = "DryRunOperation"  # the error by which EC2 says that it would have done it
_VERSION = "2016-11-15"
_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_TIMEOUT_SECONDS = (10.0, 30.0)  # to connect, and between two pieces of an answer
_TOO_FAST = "RequestLimitExceeded"
_CHARACTERS = 1000  # of an error's message


class Ec2Error(GridError):
    """EC2 refused, and this is its name for why."""

    def __init__(self, code: str, message: str, *, is_lasting: bool) -> None:
        super().__init__(f"{code}: {message}", is_lasting=is_lasting)
        self.code = code

    @property
    def is_too_fast(self) -> bool:
        """Whether nothing was done because too many requests came; a pause helps."""
        return self.code == _TOO_FAST


@dataclass(frozen=True, slots=True)
class Ec2Api:
    """One region of a cloud, and who asks."""

    endpoint: str  # https://ec2.us-east-1.amazonaws.com
    region: str
    credentials: Path | None  # a file; None: of the environment, or in its usual place
    session: requests.Session

    @classmethod
    def of(cls, endpoint: str, region: str, credentials: str) -> Ec2Api:
        """Speak with an endpoint; what is not by HTTPS must be on this machine."""
        file = Path(credentials).expanduser() if credentials else None
        return cls(endpoint, region, file, bounded_session(TIMEOUT_SECONDS, OUTPUT_BYTES))

    def call(self, action: str, parameters: Mapping[str, str]) -> Element:
        """Make one request.  Raises Ec2Error for what was refused, and GridError."""
        query = {**parameters, "Action": action, "Version": _VERSION}
        status, text = self._post(urlencode(query).encode())
        try:
            document = answers.xml(text)
        except ValueError as error:
            words = f"{self.endpoint} answers {status} to {action}, and no XML of EC2's: {error}"
            raise GridError(words) from None  # what was asked for may have been done
        if status != 200:
            raise refusal(status, document)
        return document

    def _post(self, body: bytes) -> tuple[int, bytes]:
        url = f"{self.endpoint}/"
        signer = RequestSigner(self.found_credentials(), self.region, "ec2")
        digest = hashlib.sha256(body).hexdigest()
        headers = signer.headers("POST", url, {}, {"Content-Type": _FORM}, digest, _now())
        try:
            with self.session.post(
                url, data=body, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS,
                allow_redirects=False, proxies=proxies_for(url), auth=_as_signed,
            ) as answer:  # fmt: skip
                return answer.status_code, answers.content(answer)
        except OSError as error:  # which requests' errors are
            raise GridError(f"{self.endpoint}: {error}") from error

    def found_credentials(self) -> AwsCredentials:
        """Look for the credentials, which may have changed.  Raises GridError."""
        home = Path.home() / ".aws" / "credentials"
        environment = {} if self.credentials else os.environ
        try:
            return find_credentials(environment, self.credentials or home, must_be_private=True)
        except NoCredentials as error:
            raise GridError(str(error), is_lasting=True) from None


def refusal(status: int, document: Element) -> Ec2Error:
    """Read why EC2 refused.

    What it has no room for is refused at once, though its status is that of a fault; the other
    faults, and too many requests, may be over soon.
    """
    code = text_of(document, ".//{*}Error/{*}Code") or str(status)
    message = text_of(document, ".//{*}Error/{*}Message") or "no reason given"
    is_fault = status >= 500 and not code.startswith("Insufficient")
    is_lasting = not is_fault and code != _TOO_FAST
    return Ec2Error(code, " ".join(message.split())[:_CHARACTERS], is_lasting=is_lasting)


def text_of(element: Element, path: str) -> str:
    """Text at a path, "" where there is none."""
    return (element.findtext(path) or "").strip()


def _as_signed(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keep requests from putting a password of a .netrc in the signature's place."""
    return request


def _now() -> datetime:
    return datetime.now(UTC)
