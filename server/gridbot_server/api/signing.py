"""What goes from the server to the machine with the keys, beside the manifests of `bots`."""

from __future__ import annotations

from flask import Blueprint, Response

from gridbot_client.protocol.messages import Manifest
from gridbot_server.api.access import bot_owner
from gridbot_server.api.content import send_content
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.storage import sql

SQL = sql.load("bots.sql")

blueprint = Blueprint("signing", __name__, url_prefix="/api/v1")


@blueprint.get("/bots/<int:bot>/inputs/<sha256>")
@auth.rule("user")
def bot_input(bot: int, sha256: str) -> Response:
    """Send a file that all jobs of a BOT share, for whoever is to sign it."""
    with connection() as conn:
        bot_owner(conn, bot)
        row = conn.execute(SQL["manifest"], {"bot": bot}).fetchone()
    assert row is not None, "the BOT was there"
    if sha256 not in (ref.sha256 for ref in Manifest.from_text(row[0]).inputs):
        raise ObjectNotFound(f"BOT {bot} has no input {sha256[:64]!r}")
    return send_content(sha256)
