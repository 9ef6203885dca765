"""Where a server sends its clients for contents of files: an object store.

The server has checked the token and answers with a URL that is good for a while.  That place gets
no token of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import requests

from gridbot_client.net.surroundings import LookingAdapter, Surroundings

_MOST_PART_BYTES = 1 << 30
_HEADERS = "x-amz-"  # what the server may have us send along
_BLOCK_BYTES = 1 << 20  # for which a rate is asked at once


class BadRedirection(ValueError):
    """A redirection that is not followed; the message says why."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """Where to fetch a content, or to send the next part of one."""

    url: str
    size: int  # of the part; 0 for a download
    headers: dict[str, str]

    @classmethod
    def read(cls, response: requests.Response) -> Redirection | None:
        """What an answer says, if it is a redirection for contents.  Raises BadRedirection."""
        if response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
            return None
        origin = response.url
        try:
            url = urljoin(origin, response.headers.get("Location", ""))
            place = urlsplit(url)
            size = int(response.headers.get("Upload-Length", "0"))
            given = dict(json.loads(response.headers.get("Upload-Headers", "{}")))
        except (ValueError, TypeError, RecursionError):
            raise BadRedirection("the server's redirection is damaged") from None
        if place.scheme not in ("http", "https"):
            raise BadRedirection(f"the server leads to {url[:100]!r}")
        if origin.startswith("https://") and place.scheme != "https":
            raise BadRedirection(f"the server leads from TLS to {place.scheme}://{place.netloc}")
        headers = {str(name): str(value) for name, value in given.items()}
        if not 0 <= size <= _MOST_PART_BYTES:
            raise BadRedirection(f"the server asks for a part of {size} bytes")
        if any(not name.lower().startswith(_HEADERS) for name in headers):
            raise BadRedirection("the server asks for headers that are none of a store's")
        if not all(
            text.isascii() and text.isprintable() for item in headers.items() for text in item
        ):
            raise BadRedirection("the server asks for headers that are no plain text")
        return cls(url, size, headers)

    @property
    def host(self) -> str:
        """The place, without the signature that its URL holds."""
        return urlsplit(self.url).netloc


class PacedPart:
    """A part of a file as the body of a request; `take` says how many bytes may move now."""

    def __init__(self, file: BinaryIO, size: int, take: Callable[[int], int]) -> None:
        self._file, self._left, self._size = file, size, size
        self._take, self._granted = take, 0

    def __len__(self) -> int:
        return self._size

    def read(self, most: int = -1) -> bytes:
        """Return the next bytes, when they may move."""
        if not self._left:
            return b""
        if not self._granted:
            self._granted = self._take(min(_BLOCK_BYTES, self._left))
        wanted = self._granted if most < 0 else min(most, self._granted)
        data = self._file.read(wanted)
        self._granted -= len(data)
        self._left -= len(data)
        return data

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data


def session_without_token(surroundings: Surroundings) -> requests.Session:
    """A session for such places, if they lie where the server may lead to."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, LookingAdapter(surroundings.check))
    session.auth = no_token  # nor one of a netrc file
    session.headers.update({"Accept-Encoding": "identity"})
    return session


def no_token(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authorization of a request that brings no secret of this machine."""
    return request
