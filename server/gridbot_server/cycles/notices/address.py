"""Which addresses may be told: URLs on the open internet, and mailboxes."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from gridbot_server.errors import RequestError

MOST_CHARACTERS = 500
_MAILBOX = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_PORTS = {"http": 80, "https": 443}
_LEAST_PORT = 1024  # of those that are not the usual one of the scheme
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # IPv4 behind NAT64 (RFC 6052)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where a notice is posted."""

    is_tls: bool
    host: str
    port: int
    path: str  # with its query


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Where a notice is mailed."""

    address: str


class NotAllowed(RequestError):
    """An address to which this server sends nothing."""


def parse(url: str) -> Webhook | Mailbox:
    """Read an address.  Raises NotAllowed."""
    if len(url) > MOST_CHARACTERS or not (url.isascii() and url.isprintable()) or " " in url:
        raise NotAllowed(f"url: expected up to {MOST_CHARACTERS} printable characters of ASCII")
    scheme, _, rest = url.partition(":")
    if scheme == "mailto":
        if len(rest) > 254 or not _MAILBOX.fullmatch(rest):
            raise NotAllowed(f"url: expected mailto:NAME@HOST, got {url!r}")
        return Mailbox(rest)
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise NotAllowed(f"url: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.fragment or "@" in parts.netloc:
        raise NotAllowed(
            "url: expected https://HOST/PATH, http://HOST/PATH or mailto:NAME@HOST, without a user"
            f" and a fragment, got {url!r}"
        )
    if port not in _PORTS.values() and port < _LEAST_PORT:
        raise NotAllowed(f"url: port {port}: expected 80, 443, or one from {_LEAST_PORT} on")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Webhook(parts.scheme == "https", parts.hostname, port, path)


def resolve(host: str, port: int, may_be_private: bool) -> str:
    """Return the IP address of a host; each that its name has must be of the open internet.

    The caller connects to just this one: asked again, the name may have another.  Raises
    NotAllowed, and OSError for a name that has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    if not may_be_private:
        for address in addresses:
            if not is_public(address):
                raise NotAllowed(f"url: {host} is not on the open internet")
    return addresses[0]


def is_public(text: str) -> bool:
    """Whether an IP address is one of the open internet, also that which it carries in itself."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return is_public(str(address.ipv4_mapped))
        if address in _TRANSLATED or address.sixtofour or address.teredo:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
