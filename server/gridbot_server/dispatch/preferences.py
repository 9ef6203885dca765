"""Hands the preferences of an account to its clients, when they hold another version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gridbot_client.protocol.preferences import AccountPreferences
from gridbot_server.dispatch.batch import Exchange
from gridbot_server.dispatch.replies import ReplyParts
from gridbot_server.storage.db import Connection
from gridbot_server.storage.preferences import of_owners, of_venue


def tell_preferences(
    conn: Connection, exchanges: Sequence[Exchange], replies: Mapping[int, ReplyParts]
) -> None:
    """Put them into the replies to those who follow them and have not this version."""
    stale = [
        exchange for exchange in exchanges
        if exchange.request.preferences not in (None, exchange.client.preferences_version)
    ]  # fmt: skip
    if not stale:
        return
    found = of_owners(conn, {exchange.client.owner for exchange in stale})
    for client in (exchange.client for exchange in stale):
        texts = of_venue(found[client.owner], client.venue)
        replies[client.id].preferences = AccountPreferences(client.preferences_version, texts)
