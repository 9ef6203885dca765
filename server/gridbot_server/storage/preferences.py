"""Preferences of accounts for their machines, by venue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import array, fetch_mapping

SQL = sql.load("preferences.sql")

Venues = Mapping[str, Mapping[str, str]]  # texts by name, by venue; some are missing


def of_owners(conn: Connection, owners: Iterable[int]) -> Mapping[int, Venues]:
    """Return what these owners prefer."""
    return fetch_mapping(conn, SQL["of_owners"], {"owners": array(owners)})


def of_venue(venues: Venues, venue: str) -> Mapping[str, str]:
    """Return what holds at a host's venue: its own preferences, or else the default ones."""
    return venues.get(venue) or venues.get("default", {})
