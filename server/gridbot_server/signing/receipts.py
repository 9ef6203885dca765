"""Receipts: with these, clients join again a server that was restored from a backup.

A client that joined after the backup was made is unknown to the restored server, and many have no
key at hand to join with.  So each client gets a receipt when it joins: who it is, under the MAC of
a secret that backups hold.  A server takes receipts of other epochs than its own only.  To it, such
a receipt is as good as the key with which the client joined, for the same machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import msgspec

_MOST_CHARACTERS = 2000


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """Who joined: in which epoch, on which machine, with whose key of which scope."""

    epoch: int
    client: bytes  # hash of its token
    machine: str  # as the client named it
    owner: int
    owner_name: str
    key: int  # 0: none
    scope: str


def write(receipt: Receipt, secret: str) -> str:
    """A receipt as text."""
    body = msgspec.json.encode(receipt)
    return f"{_text(body)}.{_text(_mac(body, secret))}"


def read(text: str, secret: str) -> Receipt | None:
    """A receipt from text; None unless a server with this secret wrote it."""
    head, _, tail = text[:_MOST_CHARACTERS].partition(".")
    try:
        body = base64.b64decode(head.encode("ascii"), altchars=b"-_", validate=True)
        # As text, so that each receipt has one form only.
        if _text(body) != head or not hmac.compare_digest(tail, _text(_mac(body, secret))):
            return None
        return msgspec.json.decode(body, type=Receipt)
    except (binascii.Error, ValueError, TypeError):
        return None


def _mac(body: bytes, secret: str) -> bytes:
    return hmac.digest(secret.encode(), body, hashlib.sha256)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()
