"""Which addresses may be told: URLs on the open internet, and mailboxes."""

from __future__ import annotations

import queue
import re
import socket
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from gridbot_client.protocol.networks import Network, address_of, network_of
from gridbot_server.errors import RequestError
from gridbot_server.settings import Settings

MOST_CHARACTERS = 500
_MAILBOX = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_PORTS = {"http": 80, "https": 443}
_LEAST_PORT = 1024  # of those that are not the usual one of the scheme


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

    @property
    def person(self) -> str:
        """Whose it is: NAME+ANYTHING@HOST and NAME@HOST are one person's."""
        name, _, host = self.address.lower().rpartition("@")
        return f"{name.partition('+')[0]}@{host}"


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


def check_literal(webhook: Webhook, settings: Settings) -> None:
    """Raise NotAllowed for a host that needs no look-up to be known as none that may be told.

    What others are is found out when they are told, where a slow look-up delays no web thread.
    """
    host = webhook.host
    if f".{host.rstrip('.')}".endswith(".localhost"):  # RFC 6761
        host = "127.0.0.1"
    try:
        found = socket.getaddrinfo(host, webhook.port, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # it is a name
        return
    _judge(webhook.host, str(found[0][4][0]), settings)


def resolve(webhook: Webhook, settings: Settings, seconds: float) -> str:
    """Return the IP address of a host; each that its name has must be one that may be told.

    The caller connects to just this one: asked again, the name may have another.  Raises
    NotAllowed, and OSError for a name that has none, or none within so many seconds.
    """
    addresses = _look_up(webhook.host, webhook.port, seconds)
    for address in addresses:
        _judge(webhook.host, address, settings)
    return addresses[0]


def _judge(host: str, address: str, settings: Settings) -> None:
    """Raise NotAllowed for an IP address to which this server posts nothing."""
    network = network_of(address)
    is_fine = (
        network is Network.PUBLIC
        or (network is Network.PRIVATE and settings.private_webhooks)
        or any(address_of(address) in allowed for allowed in settings.allowed_networks)
    )
    if not is_fine:
        raise NotAllowed(f"url: {host} is not on the open internet, but on {network.value}")


def _look_up(host: str, port: int, seconds: float) -> list[str]:
    """Return the IP addresses of a name.  Raises OSError, and ValueError for what is no name."""
    answer = queue.SimpleQueue[list[str] | OSError | UnicodeError]()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answer.put(error)
        else:
            answer.put([str(item[4][0]) for item in found])

    threading.Thread(target=ask, name="look-up", daemon=True).start()  # it heeds no limit of time
    try:
        told = answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no address of {host} within {seconds:g} s") from None
    if isinstance(told, list):
        return told
    raise told
