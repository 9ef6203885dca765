"""Who asks, and whether they may: every route carries one of the rules of this module.

The rules are marks; `authenticate` runs before each request and enforces them, so that a
route without a mark answers nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, cast

from flask import current_app, g, request

from gridbot_server.dispatch import bans
from gridbot_server.errors import Forbidden, InternalError, Unauthorized
from gridbot_server.http import services, sessions
from gridbot_server.signing import keys
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import fetch_one

SQL = sql.load("auth.sql")
SESSIONS = sql.load("sessions.sql")

View = TypeVar("View", bound=Callable[..., Any])
Rule = Literal[
    "public",
    "engine",
    "boinc",
    "client",
    "content",
    "joining",
    "join",
    "account",
    "user",
    "operator",
    "metrics",
    "console join",
    "console volunteer",
    "console user",
    "console operator",
]

# Each scope may do what those below it may, but for reading the metrics, which `operator` may.
_SCOPES = ("metrics", "pilot", "join", "account", "user", "operator")
_NO_KEY = "the key is unknown, expired or revoked"


class Key(NamedTuple):
    """A person's key, or one that only joins clients, or one that only joins a grid's pilots."""

    id: int
    owner: int
    owner_name: str
    scope: str
    grid: str | None  # of pilots
    serves: list[int] | None  # owners, of pilots
    is_expired: bool  # an invitation, good only for machines that have joined with it
    is_invitation: bool  # good for as many machines as it says
    by_password: bool  # of a session that was begun with a volunteer's password

    @property
    def is_operator(self) -> bool:
        """Whether it may see and change what belongs to others."""
        return self.scope == "operator"

    @property
    def may_change_account(self) -> bool:
        """Whether a person shows it: jobs can read keys that only join, on their machines."""
        return self.by_password or _SCOPES.index(self.scope) >= _SCOPES.index("account")


class AuthenticatedClient(NamedTuple):
    """A running client, by its own token."""

    id: int
    host: int
    owner: int
    owner_name: str


def rule(name: Rule) -> Callable[[View], View]:
    """Mark a view with who may call it.

    `join`, `account`, `user`, `operator`: a key of at least that scope.  `metrics`: a key of that
    scope, or an operator's.  `joining`: a key of any scope that joins, or an invitation that has
    expired, which the view itself checks.  `client`: a client's token.
    `content`: a key or a client's token; the view itself checks whose the content is.  `engine`:
    the view itself hands the token on, to be looked up together with the rest.  `boinc`: the view
    itself checks the key, certificate or name that BOINC's protocol carries.  `public`: everybody.
    `console …`: a browser's session, begun with a key of at least that scope; forms are checked.
    `console volunteer`: such a session of scope `account`, or one that was begun with a password.
    """

    def mark(view: View) -> View:
        view.auth_rule = name  # type: ignore[attr-defined]  # any function can carry a mark
        return view

    return mark


def authenticate() -> None:
    """Enforce the rule of the route that was asked for; raise Unauthorized or Forbidden."""
    if request.endpoint is None:  # no such route: there is nothing to guard
        return
    view = current_app.view_functions[request.endpoint]
    match getattr(view, "auth_rule", None):
        case "public" | "engine" | "boinc":
            pass
        case "client":
            g.client = _client()
        case "content":
            _key_or_client()
        case "joining":
            g.key = _joining_key()
        case "metrics":
            g.key = _metrics_key()
        case "join" | "account" | "user" | "operator" as scope:
            g.key = _key(scope)
        case "console join" | "console user" | "console operator" as scope:
            g.key = _sufficient(_session(), scope.removeprefix("console "))
        case "console volunteer":
            g.key = _account_changer(_session())
        case _:
            raise InternalError(f"the route {request.endpoint} has no auth rule")


def key() -> Key:
    """Return the key that this request was made with, or that its session was begun with."""
    return cast(Key, g.key)


def client() -> AuthenticatedClient:
    """Return the client that makes this request."""
    return cast(AuthenticatedClient, g.client)


def check_client() -> None:
    """Raise Unauthorized, or Banned, unless the request carries the token of a client."""
    _client()


def bearer_hash() -> bytes:
    """Return the hash of the request's token; raise Unauthorized when there is none."""
    return token_hash(request.headers.get("Authorization", ""))


def token_hash(authorization: str) -> bytes:
    """Return the hash of the token in a header; raise Unauthorized when there is none."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("this needs a key: send the header Authorization: Bearer KEY")
    return keys.token_hash(token.strip())


def _any_key() -> Key:
    with services.connection() as conn:
        found = _find_key(conn, bearer_hash())
    if found is None:
        raise Unauthorized(_NO_KEY)
    return found


def _joining_key() -> Key:
    found = _any_key()
    if found.scope == "metrics":
        raise Forbidden("this needs a key that joins clients, this one reads metrics")
    return found


def _metrics_key() -> Key:
    found = _any_key()
    if found.is_expired:
        raise Unauthorized(_NO_KEY)
    if found.scope not in ("metrics", "operator"):
        raise Forbidden(f"this needs a key of scope metrics, this one has {found.scope}")
    return found


def _key(scope: str) -> Key:
    found = _any_key()
    if found.is_expired:
        raise Unauthorized(_NO_KEY)
    return _sufficient(found, scope)


def _sufficient(found: Key, scope: str) -> Key:
    if _SCOPES.index(found.scope) < _SCOPES.index(scope):
        raise Forbidden(f"this needs a key of scope {scope}, this one has {found.scope}")
    return found


def _account_changer(found: Key) -> Key:
    if not found.may_change_account:
        raise Forbidden(
            "this needs a key of scope account or user, or the password of an account:"
            f" this session was begun with a key of scope {found.scope}"
        )
    return found


def _session() -> Key:
    """Return the key of a browser's session; a form must be one of its own."""
    found = find_session()
    if found is None:
        raise sessions.NotLoggedIn("log in first")
    if request.method not in ("GET", "HEAD"):
        sessions.check_form(sessions.cookie())
    return found


def find_session() -> Key | None:
    """Return the key of this browser's session, if it has one, and let it be that of the request.

    For public pages, which show more to those who are logged in.
    """
    if not (secret := sessions.cookie()):
        return None
    with services.connection() as conn:
        found = fetch_one(conn, Key, SESSIONS["session"], {"hash": keys.token_hash(secret)})
    if found is not None:
        g.key = found
    return found


def enterable(conn: Connection, text: str) -> Key | None:
    """Return the key that somebody shows to log in, if it is good for that.

    Keys of pilots and for metrics, and invitations, are for machines.
    """
    found = _find_key(conn, keys.token_hash(text.strip()))
    if found is None or found.is_expired or found.is_invitation:
        return None
    return None if found.scope in ("metrics", "pilot") else found


def _client() -> AuthenticatedClient:
    token = bearer_hash()
    with services.connection() as conn:
        found = _find_client(conn, token)
        if found is None:
            _refuse_banned(conn, token)
    if found is None:
        raise Unauthorized("the client's token is unknown, expired or revoked: join again")
    return found


def _key_or_client() -> None:
    token = bearer_hash()
    with services.connection() as conn:
        if (client := _find_client(conn, token)) is not None:
            g.client = client
        elif (
            (key := _find_key(conn, token)) is not None
            and not key.is_expired
            and key.scope != "metrics"
        ):
            g.key = key
        else:
            _refuse_banned(conn, token)
            raise Unauthorized("the token is unknown, expired or revoked")


def _refuse_banned(conn: Connection, token: bytes) -> None:
    """Raise Banned if that is why a token is good for nothing."""
    if error := bans.of_tokens(conn, [token]).get(token):
        raise error


def _find_key(conn: Connection, token: bytes) -> Key | None:
    return fetch_one(conn, Key, SQL["key"], {"hash": token})


def _find_client(conn: Connection, token: bytes) -> AuthenticatedClient | None:
    return fetch_one(conn, AuthenticatedClient, SQL["client"], {"hash": token})
