"""What a glance at the bytes of a scheduler request tells, before anything of it is decoded."""

from __future__ import annotations

import re

# Decoding a longer request, twice what is usual, is work that only an account may ask of us.
UNCHECKED_BYTES = 16 * 1024
# The client and its key are named within this many bytes: all that comes before is short.
_NAMED_BYTES = 2048

_AUTHENTICATOR = re.compile(rb"<authenticator>\s*([^<\s]{1,255})\s*</authenticator>")
_KEY = re.compile(rb"<authenticator>\s*([^<\s]{1,255})")
_HOST = re.compile(rb"<hostid>\s*(\d{1,20})")
# No text in a request can hold it: brackets of texts are escaped.
_RESULT = b"<result>"


def authenticator(body: bytes) -> str:
    """The account key at the beginning of a request; empty when none is there."""
    found = _AUTHENTICATOR.search(body, 0, UNCHECKED_BYTES)
    return found[1].decode("ascii", "replace") if found else ""


def client_of(body: bytes) -> str:
    """What all requests of one client have in common: the key of its account, and its number."""
    key, host = _KEY.search(body, 0, _NAMED_BYTES), _HOST.search(body, 0, _NAMED_BYTES)
    account = key[1].decode("ascii", "replace") if key else ""
    return f"{account}/{int(host[1]) if host else 0}"


def brings_results(body: bytes) -> bool:
    """Whether a request carries reports."""
    return _RESULT in body
