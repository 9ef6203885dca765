"""Takes what was signed away from the server for stock clients: applications, and the next key."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.access import bot_owner
from gridbot_server.api.schema import answers, json_body
from gridbot_server.boinc.application import acceptance
from gridbot_server.boinc.application.signed import SignedApplication
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import BoincKey, BoincSignatures
from gridbot_server.models.responses.bots import KeyChanged, SignedForBoinc

blueprint = Blueprint("boinc_signing", __name__, url_prefix="/api/v1")


@blueprint.put("/bots/<int:bot>/boinc")
@auth.rule("user")
@json_body
@answers(errors=(HTTPStatus.CONFLICT, HTTPStatus.GONE))
def sign_bot_for_boinc(bot: int, json: BoincSignatures) -> SignedForBoinc:
    """Offer a BOT to stock BOINC clients, signed where the code signing key is."""
    with connection() as conn:
        bot_owner(conn, bot)
        given = SignedApplication(tuple(json.scripts) or (json.script,), json.signatures)
        acceptance.accept(conn, current().store, bot, given)
    return SignedForBoinc(id=bot, signed_for_boinc=True)


@blueprint.put("/boinc/key")
@auth.rule("operator")
@json_body
@answers()
def change_boinc_key(json: BoincKey) -> KeyChanged:
    """Lead stock BOINC clients to the next code signing key; tell which BOTs wait for it."""
    with connection() as conn:
        return KeyChanged(unsigned=acceptance.rotate(conn, json.key, json.signature))
