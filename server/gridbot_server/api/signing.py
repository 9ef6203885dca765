"""What is signed away from the server comes back here: applications, and the next key."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from gridbot_client.protocol.messages import Manifest
from gridbot_server.api.access import bot_owner
from gridbot_server.api.content import send_content
from gridbot_server.api.schema import json_body
from gridbot_server.boinc.application import acceptance
from gridbot_server.boinc.application.signed import SignedApplication
from gridbot_server.errors import NotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import BoincKey, BoincSignatures
from gridbot_server.storage import sql

SQL = sql.load("bots.sql")

blueprint = Blueprint("signing", __name__, url_prefix="/api/v1")

Document = dict[str, Any]


@blueprint.get("/bots/<int:bot>/inputs/<sha256>")
@auth.rule("user")
def bot_input(bot: int, sha256: str) -> Response:
    """Send a file that all jobs of a BOT share, for whoever is to sign it."""
    with connection() as conn:
        bot_owner(conn, bot)
        row = conn.execute(SQL["manifest"], {"bot": bot}).fetchone()
    assert row is not None, "the BOT was there"
    if sha256 not in (ref.sha256 for ref in Manifest.from_text(row[0]).inputs):
        raise NotFound(f"BOT {bot} has no input {sha256[:64]!r}")
    return send_content(sha256)


@blueprint.put("/bots/<int:bot>/boinc")
@auth.rule("user")
@json_body
def sign_bot_for_boinc(bot: int, json: BoincSignatures) -> Document:
    """Offer a BOT to stock BOINC clients, signed where the code signing key is."""
    with connection() as conn:
        bot_owner(conn, bot)
        given = SignedApplication(json.script, json.signatures)
        acceptance.accept(conn, current().store, bot, given)
    return {"id": bot, "signed_for_boinc": True}


@blueprint.put("/boinc/key")
@auth.rule("operator")
@json_body
def change_boinc_key(json: BoincKey) -> Document:
    """Lead stock BOINC clients to the next code signing key; tell which BOTs wait for it."""
    with connection() as conn:
        return {"unsigned": acceptance.rotate(conn, json.key, json.signature)}
