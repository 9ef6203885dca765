"""What account managers see and change of an account, by its own key.

They may change what its owner may change with the password: name, preferences, resource shares,
venues, team and whether statistics name it.  Neither address nor password: the keys are made of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gridbot_client.protocol.preferences import VENUES
from gridbot_server.boinc.protocol import manager
from gridbot_server.boinc.protocol.manager import ManagedAccount
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import accounts
from gridbot_server.boinc.session.project import Project
from gridbot_server.signing import keys
from gridbot_server.storage import preferences, sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch_one, fetch_only, fetch_value

SQL = sql.load("boinc.sql")
CREDIT = sql.load("credit.sql")
OPERATION = sql.load("operation.sql")
PREFERENCES = preferences.SQL

_FIXED = ("email_addr", "password_hash")


class _Kept(NamedTuple):
    venues: preferences.Venues
    shares: Mapping[str, float]


class AccountRow(NamedTuple):
    """An account, of a key that may change it."""

    id: int
    name: str
    created_at: int  # s since 1970
    venue: str
    resource_shares: Mapping[str, float]
    preferences: Mapping[str, Mapping[str, str]]
    preferences_version: int
    is_public: bool
    team: int
    is_founder: bool


def find(conn: Connection, key: str) -> AccountRow | None:
    """The account of a key; None for one that is unknown, over, or good for less."""
    return fetch_one(conn, AccountRow, SQL["managed_account"], {"hash": keys.token_hash(key)})


def tell(conn: Connection, project: Project, account: AccountRow, key: str) -> ManagedAccount:
    """What the manager that showed this key is told, with a key for machines."""
    secret = project.names.secret
    return ManagedAccount(
        id=account.id,
        name=account.name,
        weak_key=accounts.open_weak(conn, secret, key),
        cross_project_id=project.names.person(account.id)[32:],
        created_at=account.created_at,
        preferences_version=account.preferences_version,
        preferences=account.preferences,
        shares=account.resource_shares,
        is_public=account.is_public,
        team=account.team,
        is_founder=account.is_founder,
        venue=account.venue,
    )


def change(conn: Connection, account: AccountRow, wanted: Mapping[str, str]) -> None:
    """Change what is named, all or nothing, within the caller's transaction.

    Empty values change nothing, as in BOINC.  Raises BoincError or PreferenceError for what cannot
    be.
    """
    said = {name: value for name, value in wanted.items() if value}
    if fixed := [name for name in _FIXED if name in said]:
        raise BoincError(f"{fixed[0]}: the address and the password of an account stay as they are")
    if "name" in said:
        name = accounts.shown_name(said["name"])
        if name is None:
            raise BoincError("name: this cannot be the name of a user")
        conn.execute(SQL["rename_account"], {"owner": account.id, "name": name})
    if "global_prefs" in said:
        _prefer(conn, account, manager.read_preferences(said["global_prefs"]))
    shares = manager.read_shares(said["project_prefs"]) if "project_prefs" in said else None
    values = {
        "owner": account.id,
        "venue": _venue(said["venue"]) if "venue" in said else None,
        "shares": None if shares is None else encode(shares),
    }
    conn.execute(SQL["change_account"], values)
    if "show_hosts" in said:
        public = {"owner": account.id, "public": said["show_hosts"] == "1"}
        conn.execute(CREDIT["set_public"], public)
    if "teamid" in said:
        _join(conn, account, said["teamid"])


def _prefer(conn: Connection, account: AccountRow, venues: preferences.Venues) -> None:
    """Replace the preferences of all venues, as far as a manager knows them."""
    kept, _ = fetch_only(conn, _Kept, PREFERENCES["lock"], {"owner": account.id})
    said = {
        venue: {**venues.get(venue, {}), **manager.beyond_boinc(kept.get(venue, {}))}
        for venue in VENUES
    }
    venues = {venue: texts for venue, texts in said.items() if texts}
    values = {"owner": account.id, "venues": encode(venues), "shares": None}
    conn.execute(PREFERENCES["save"], values)


def _join(conn: Connection, account: AccountRow, text: str) -> None:
    """Join the team of a number; 0 is none."""
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
        raise BoincError(f"teamid {text[:40]!r}: give the number of a team, or 0")
    team = int(text) or None
    if team and not conn.execute(SQL["team_exists"], {"team": team}).fetchone():
        raise BoincError(f"teamid: there is no team {team}")
    conn.execute(CREDIT["set_team"], {"owner": account.id, "team": team})


def set_venue(conn: Connection, account: AccountRow, client: int, venue: str) -> bool:
    """Set the venue of the machine of one of the account's clients; whether there is one."""
    values = {"client": client, "owner": account.id}
    host = fetch_value(conn, int, SQL["host_of_client"], values)
    if host is None:
        return False
    changed = {"host": host, "mine": account.id, "venue": _venue(venue)}
    conn.execute(OPERATION["change_host"], changed)
    return True


def _venue(text: str) -> str:
    """A venue; none is the default one."""
    venue = text.strip()
    if venue in ("", "none", "default"):
        return ""
    if venue not in VENUES:
        raise BoincError(f"venue {venue[:40]!r}: there are {', '.join(VENUES)}")
    return venue
