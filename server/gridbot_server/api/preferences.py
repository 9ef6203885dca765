"""Preferences of an account: when and how much its machines work, by venue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

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

T = TypeVar("T")


class _Kept(NamedTuple):
    venues: Mapping[str, Mapping[str, str]]
    shares: Mapping[str, float]


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
    """Set preferences at a venue, and resource shares; null removes one.

    A host at a venue with preferences of its own follows these alone, any other the default ones.
    Only BOINC clients work for other projects as well: native ones need no share.
    """
    owner = auth.key().owner
    with connection() as conn, conn.transaction():
        kept = rows.fetch_only(conn, _Kept, SQL["lock"], {"owner": owner})
        texts = _said({**kept.venues.get(json.venue, {}), **json.preferences})
        try:
            OwnerPreferences.parse(texts)
        except PreferenceError as error:
            raise RequestError(str(error)) from None
        venues = {**kept.venues, json.venue: texts}
        values = {
            "owner": owner,
            "venues": rows.encode({name: said for name, said in venues.items() if said}),
            "shares": rows.encode(_said({**kept.shares, **dict(json.shares.items())})),
        }
        found = rows.read_one(conn, VenuePreferences, SQL["save"], values)
    assert found is not None, "its row is locked"
    return found


def _said(changed: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in changed.items() if value is not None}
