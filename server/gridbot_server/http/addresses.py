"""Who sends a request, as far as network addresses tell."""

from __future__ import annotations

import ipaddress
import logging

from flask import current_app, request

from gridbot_server.http.services import current

log = logging.getLogger(__name__)

_WARNED = "gridbot_unnamed_peer"  # of the application, once a proxy did not name a peer


def source() -> str:
    """The address of whoever asks; empty if the proxy does not name it, which is logged once."""
    forwarded = request.headers.get("X-Forwarded-For", "")
    found = source_of(request.remote_addr or "", forwarded, current().settings.behind_proxy)
    if not found and _WARNED not in current_app.extensions:
        current_app.extensions[_WARNED] = True
        log.warning(
            "the proxy sends no address in X-Forwarded-For: wrong passwords are limited by"
            " account only, and new accounts all together; server/README.md says what to set"
        )
    return found


def source_of(peer: str, forwarded: str, is_behind_proxy: bool) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address, which one person has.

    `forwarded` is the header X-Forwarded-For.  Only its last entry counts: the proxy appends that
    to whatever the client made up.  Behind a proxy that does not say the result is empty, since
    the proxy's own address stands for everybody.
    """
    address = forwarded.rpartition(",")[2].strip() if is_behind_proxy else peer
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
