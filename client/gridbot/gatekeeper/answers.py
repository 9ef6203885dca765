"""What is asked and answered over HTTP, and documents in XML and JSON.  Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from gridbot.api.errors import BadInput
from gridbot.gatekeeper import adl
from gridbot.gatekeeper.reading import MOST_AT_ONCE

_JSON, _XML, _TEXT = "application/json", "application/xml", "text/plain"


class RequestFault(Exception):
    """A request that is answered with an error; its text is for the client."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ArcRequest:
    """A request of a known client."""

    method: str
    path: Sequence[str]  # its parts behind /arex/rest
    query: Mapping[str, str]
    base: str  # URL of the service, as the client knows it
    subject: str
    accept: str
    kind: str  # type of its content
    length: int
    depth: str  # how deep a listing goes
    read: Callable[[int], bytes]

    def content(self, most: int) -> str:
        """The whole content.  Raises RequestFault if it is longer, or no text."""
        if self.length > most:
            raise RequestFault(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{self.length} bytes, at most {most}"
            )
        try:
            return self.read(self.length).decode()
        except UnicodeDecodeError as error:
            raise RequestFault(HTTPStatus.BAD_REQUEST, f"not UTF-8: {error}") from None


@dataclass(frozen=True, slots=True)
class ArcAnswer:
    """An answer: a content, or a file."""

    status: HTTPStatus
    content: bytes = b""
    kind: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None


def text(status: HTTPStatus, content: str, **headers: str) -> ArcAnswer:
    """An answer in plain text."""
    return ArcAnswer(status, content.encode(), headers=headers)


def document(
    request: ArcRequest, status: HTTPStatus, root: str, value: Mapping[str, Any]
) -> ArcAnswer:
    """An answer as the client wants it; lists are repeated elements in XML."""
    if _JSON in request.accept:
        return ArcAnswer(status, json.dumps(value).encode(), _JSON)
    return xml(status, _element(root, value))


def xml(status: HTTPStatus, root: Element) -> ArcAnswer:
    """An answer in XML."""
    content = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return ArcAnswer(status, content, _XML)


def _element(name: str, value: Any) -> Element:
    element = Element(name)
    if not isinstance(value, Mapping):
        element.text = _clean(str(value))
        return element
    for key, item in value.items():
        if key.startswith("@"):
            element.set(key[1:], str(item))
            continue
        items = item if isinstance(item, list) else [item]
        element.extend([_element(key, each) for each in items])
    return element


def _clean(text: str) -> str:
    """A text without the control characters that XML cannot hold."""
    return "".join(char if char >= " " or char in "\t\n" else "?" for char in text)


def job_ids(request: ArcRequest, most: int) -> list[str]:
    """The jobs that a request is about, each once.  Raises RequestFault."""
    found = dict.fromkeys(_ids(request, request.content(most)))
    if len(found) > MOST_AT_ONCE:
        raise RequestFault(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{len(found)} jobs in one request, at most {MOST_AT_ONCE}",
        )
    return list(found)


def _ids(request: ArcRequest, content: str) -> list[str]:
    try:
        if request.kind == _JSON:
            jobs = json.loads(content)["job"]
            items = jobs if isinstance(jobs, list) else [jobs]
            ids = [str(item["id"]) for item in items]
            "".join(ids).encode()  # raises ValueError for half of a surrogate pair
            return ids
        root = adl.parsed(content)
        return [adl.text_at(job, "id") for job in adl.children(root, "job")]
    except (ValueError, TypeError, KeyError, RecursionError, BadInput) as error:
        raise RequestFault(
            HTTPStatus.BAD_REQUEST, f'expected {{"job": [{{"id": …}}]}}, or that as XML: {error}'
        ) from None
