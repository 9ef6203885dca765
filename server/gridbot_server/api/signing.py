"""What whoever signs a BOT looks at."""

from __future__ import annotations

from flask import Blueprint, Response

from gridbot_client.protocol.messages import Manifest
from gridbot_server.api.access import bot_owner, manifest_of
from gridbot_server.api.content import send_content, sends_content
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection

blueprint = Blueprint("signing", __name__, url_prefix="/api/v1")


@blueprint.get("/bots/<int:bot>/inputs/<sha256>")
@auth.rule("user")
@sends_content
def fetch_bot_input(bot: int, sha256: str) -> Response:
    """Send a file that all jobs of a BOT share, for whoever is to sign it."""
    with connection() as conn:
        bot_owner(conn, bot)
        manifest = Manifest.from_text(manifest_of(conn, bot).manifest)
    if sha256 not in (ref.sha256 for ref in manifest.inputs):
        raise ObjectNotFound(f"BOT {bot} has no input {sha256[:64]!r}")
    return send_content(sha256)
