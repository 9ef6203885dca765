"""What batch systems answer by HTTP: read up to a bound, and XML without entities."""

from __future__ import annotations

from urllib.parse import urlsplit
from xml.etree import ElementTree

import requests

from gridbot_client.net.discovery import is_loopback
from gridbot_overlay.submitters.commands import OUTPUT_BYTES


class _Plain(ElementTree.TreeBuilder):
    def doctype(self, *_: object) -> None:
        raise ValueError("it has a document type, which may define entities")


def keeps_secrets(url: str) -> bool:
    """Whether keys may be sent there: by HTTPS, or on this machine; the URL names no more."""
    try:
        parts = urlsplit(url)
        is_plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
        is_hidden = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))
        return is_plain and is_hidden and bool(parts.hostname)
    except ValueError:
        return False


def content(answer: requests.Response) -> bytes:
    """Return the body of an answer to a request with `stream`.  Raises OSError for a long one."""
    found = bytearray()
    for piece in answer.iter_content(1 << 16):
        found += piece
        if len(found) > OUTPUT_BYTES:
            raise OSError(f"the answer is longer than {OUTPUT_BYTES >> 20} MiB")
    return bytes(found)


def xml(text: bytes) -> ElementTree.Element:
    """Read a document; no entity of its own is expanded.  Raises ValueError."""
    parser = ElementTree.XMLParser(target=_Plain())  # noqa: S314  # the target refuses entities
    try:
        parser.feed(text)
        found: ElementTree.Element = parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    return found
