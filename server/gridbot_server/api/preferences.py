"""Preferences of an account: when and how much its machines work, by venue."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Blueprint

from gridbot_client.protocol.preferences import OwnerPreferences, PreferenceError
from gridbot_server.api.schema import answers, json_body
from gridbot_server.errors import RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import PreferencesChange
from gridbot_server.models.responses.volunteers import VenuePreferences
from gridbot_server.storage import rows
from gridbot_server.storage.preferences import SQL

blueprint = Blueprint("preferences", __name__, url_prefix="/api/v1/account/preferences")


@blueprint.get("")
@auth.rule("join")
@answers()
def show_preferences() -> VenuePreferences:
    """Show the preferences of the caller's account, by venue."""
    with connection() as conn:
        found = rows.read_one(conn, VenuePreferences, SQL["show"], {"owner": auth.key().owner})
    assert found is not None, "the owner of a key is there"
    return found


@blueprint.patch("")
@auth.rule("account")
@json_body
@answers()
def change_preferences(json: PreferencesChange) -> VenuePreferences:
    """Set preferences at a venue; null removes one.

    A host at a venue with preferences of its own follows these alone, any other the default ones.
    """
    owner = auth.key().owner
    with connection() as conn, conn.transaction():
        kept: Mapping[str, Mapping[str, str]]
        kept = rows.fetch_only_value(conn, dict, SQL["lock"], {"owner": owner})
        changed = {**kept.get(json.venue, {}), **json.preferences}
        texts = {name: text for name, text in changed.items() if text is not None}
        try:
            OwnerPreferences.parse(texts)
        except PreferenceError as error:
            raise RequestError(str(error)) from None
        venues = {**kept, json.venue: texts}
        values = {
            "owner": owner,
            "venues": rows.encode({name: said for name, said in venues.items() if said}),
        }
        found = rows.read_one(conn, VenuePreferences, SQL["save"], values)
    assert found is not None, "its row is locked"
    return found
