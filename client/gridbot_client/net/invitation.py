"""Invitations: one text that carries a server's address, a key, and whom to trust.

`URL#KEY.PROJECT.OWNER...`: the fingerprints, of the project's key and of owners' keys, are 32 bytes
in the alphabet of URLs.  What follows # is never sent to the server.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from gridbot_client.net.discovery import is_url

_KEY = re.compile(r"gb_join_[\w-]{20,100}", re.ASCII)
_FINGERPRINT = re.compile(r"[\w-]{43}", re.ASCII)
_MOST_OWNERS = 100


class InvitationError(ValueError):
    """A text is no invitation; the message says why."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """A server, the key to join it with, and whom its reader trusts by accepting it."""

    url: str
    key: str
    project_key: str  # fingerprints, in hex
    owners: tuple[str, ...]

    @property
    def text(self) -> str:
        """The invitation as it is passed on."""
        prints = map(_short, (self.project_key, *self.owners))
        return f"{self.url}#{'.'.join((self.key, *prints))}"

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Read an invitation.  Raises InvitationError."""
        url, _, rest = text.strip().partition("#")
        key, *prints = rest.split(".")
        if not is_url(url):
            raise InvitationError(f"{url!r} is not a URL; an invitation begins with https://…")
        if not _KEY.fullmatch(key) or not prints or len(prints) > 1 + _MOST_OWNERS:
            raise InvitationError("the invitation is not whole; copy all of its line")
        project_key, *owners = map(_long, prints)
        return cls(url.rstrip("/"), key, project_key, tuple(owners))


def _short(fingerprint: str) -> str:
    return base64.urlsafe_b64encode(bytes.fromhex(fingerprint)).rstrip(b"=").decode()


def _long(text: str) -> str:
    if not _FINGERPRINT.fullmatch(text):
        raise InvitationError("the invitation is not whole; copy all of its line")
    return base64.urlsafe_b64decode(text + "=").hex()
