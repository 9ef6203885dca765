"""Takes what was signed away from the server for stock clients: applications, and the next key."""

from __future__ import annotations

from typing import Any

from flask import Blueprint

from gridbot_server.api.access import bot_owner
from gridbot_server.api.schema import json_body
from gridbot_server.boinc.application import acceptance
from gridbot_server.boinc.application.signed import SignedApplication
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import BoincKey, BoincSignatures

blueprint = Blueprint("boinc_signing", __name__, url_prefix="/api/v1")

Document = dict[str, Any]


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
