"""The console's script, style, icon, and uPlot: few files, kept by browsers until they change."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from flask import Blueprint, Response

from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth

_TYPES = MappingProxyType({".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"})
_FOREVER = "public, max-age=31536000, immutable"

blueprint = Blueprint("console_static", __name__, url_prefix="/console")


@cache
def _content(name: str) -> tuple[bytes, str, str]:
    """Return a file's bytes, media type, and the start of its SHA-256."""
    suffix = name[name.rfind(".") :]
    if "/" in name or suffix not in _TYPES:
        raise ObjectNotFound("there is no such file")
    file = files("gridbot_server.console") / "static" / name
    if not file.is_file():
        raise ObjectNotFound("there is no such file")
    content = file.read_bytes()
    return content, _TYPES[suffix], hashlib.sha256(content).hexdigest()[:12]


def address(name: str) -> str:
    """Return the address of a file: another one whenever it changes."""
    return f"/console/{_content(name)[2]}/{name}"


@blueprint.get("/<digest>/<name>")
@auth.rule("public")
def send_static(digest: str, name: str) -> Response:
    """Send a file of the console: as it is now, also to those who ask for an older one."""
    content, mimetype, now = _content(name)
    keep = _FOREVER if digest == now else "no-cache"
    return Response(content, mimetype=mimetype, headers={"Cache-Control": keep})
