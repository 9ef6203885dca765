"""Accounts that volunteers make from a BOINC client: made, looked up, and changed on a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import psycopg
from flask import Blueprint, Response, request
from pydantic import ValidationError

from gridbot_server.api import volunteers
from gridbot_server.api.boinc.session import known_project, terms_of_use, xml
from gridbot_server.api.schema import body_limit, plain_errors
from gridbot_server.boinc.protocol import pages
from gridbot_server.boinc.protocol.pages import AccountError, password_hash
from gridbot_server.boinc.session import accounts, project
from gridbot_server.boinc.session.account_page import account_page
from gridbot_server.boinc.session.accounts import Consent, Credentials
from gridbot_server.boinc.session.hosts import find_account
from gridbot_server.errors import Forbidden, RequestError, ServerBusy
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import VolunteerChange
from gridbot_server.models.responses.volunteers import Volunteer
from gridbot_server.overload.login_limits import TooManyAttempts
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

blueprint = Blueprint("boinc_accounts", __name__, url_prefix=project.PATH)

Find = Callable[[Connection, bytes, Credentials], str | AccountError]

_FORM_BYTES = 4096
# Clients call themselves so.  They are given a key that only attaches, since jobs can read it.
_CLIENT = "BOINC client"


@blueprint.get("/create_account.php")
@auth.rule("public")
def create_account() -> Response:
    """Make a volunteer's account, where operators let anybody do that."""
    if not current().settings.boinc_accounts:
        return xml(pages.no_account(AccountError.CREATION_DISABLED))
    name = request.args.get("user_name", "")
    # As clients from 7.16 on say it: a flag, and which program showed the terms.
    is_given = request.args.get("consent_flag") == "1" and bool(request.args.get("source"))
    consent = Consent(terms_of_use(), is_given)

    def create(conn: Connection, secret: bytes, given: Credentials) -> str | AccountError:
        return accounts.create(conn, secret, given, name, consent)

    return _account(create, is_creation=True)


@blueprint.get("/lookup_account.php")
@auth.rule("public")
def lookup_account() -> Response:
    """Tell the key of an account to whoever knows its password; without one, whether it exists."""
    if "passwd_hash" not in request.args and "email_addr" in request.args:
        return _existence(request.args["email_addr"])
    return _account(accounts.look_up)


@blueprint.route("/account", methods=["GET", "POST"])
@auth.rule("boinc")
@body_limit(lambda _: _FORM_BYTES)
def account() -> Response:
    """Team and consent, for volunteers who have a password and no key of scope user."""
    found = _changed_account() if request.method == "POST" else None
    shown = None if found is None else found.model_dump()
    text = account_page(current().settings.project_name, shown)
    return Response(text, mimetype="text/html")


def _account(find: Find, is_creation: bool = False) -> Response:
    given = Credentials(request.args.get("email_addr", ""), request.args.get("passwd_hash", ""))
    is_client = request.headers.get("User-Agent", "").startswith(_CLIENT)

    def open_account(conn: Connection, secret: bytes, given: Credentials) -> str | AccountError:
        found = find(conn, secret, given)
        if is_client or isinstance(found, AccountError):
            return found
        return accounts.open_account(conn, secret, given)

    found = given.fault() or _account_key(given, open_account, is_creation)
    if isinstance(found, AccountError):
        return xml(pages.no_account(found))
    return xml(pages.account(found))


def _existence(email: str) -> Response:
    """Attempts count as those with a password do: nobody reads off who has accounts."""
    if not accounts.is_email(email):
        return xml(pages.no_account(AccountError.BAD_EMAIL))

    def look() -> str | AccountError:
        secret = known_project().names.secret
        with connection() as conn:
            return AccountError.NOT_FOUND if accounts.is_free(conn, secret, email) else email

    found = _attempt(email, look)
    return xml(
        pages.no_account(found) if isinstance(found, AccountError) else pages.account_exists()
    )


def _account_key(
    given: Credentials, find: Find = accounts.look_up, is_creation: bool = False
) -> str | AccountError:
    """Try the password unless too many were wrong; nothing is looked up without a database."""

    def look() -> str | AccountError:
        secret = known_project().names.secret
        with connection() as conn:
            return find(conn, secret, given)

    return _attempt(given.email, look, is_creation)


def _attempt(
    email: str, look: Callable[[], str | AccountError], is_creation: bool = False
) -> str | AccountError:
    try:
        return current().login_limits.attempt(source(), email, look, is_creation)
    except TooManyAttempts:
        return AccountError.PROJECT_DOWN
    except psycopg.OperationalError as error:
        log.warning("database: %r", str(error))
        return AccountError.PROJECT_DOWN


def key_by_password(email: str, password: str) -> str | None:
    """Return the key of a volunteer's account; None if there is none with this password.

    Raises ServerBusy if too many passwords were wrong, or the database does not answer.
    """
    given = Credentials(email, password_hash(email, password))
    found = given.fault() or _account_key(given)
    if found is AccountError.PROJECT_DOWN:
        raise ServerBusy("the password is not looked at now, try again in a few minutes")
    return None if isinstance(found, AccountError) else found


def _changed_account() -> Volunteer:
    """Do what the form says; raise Forbidden for a wrong password."""
    form = request.form
    email, password = form.get("email", ""), form.get("password", "")
    change = _decided(form.get("decision", ""), form.get("team", ""))
    key = key_by_password(email, password)
    with connection() as conn, conn.transaction():
        account = None if key is None else find_account(conn, key)
        if account is None:
            raise Forbidden("there is no account with this e-mail address and password")
        return volunteers.change(conn, account.owner, change)


def _decided(decision: str, team: str) -> VolunteerChange:
    changes: dict[str, dict[str, Any]] = {
        "nothing": {},
        "public": {"public": True},
        "private": {"public": False},
        "join": {"team": team},
        "leave": {"team": None},
    }
    if decision not in changes:
        raise RequestError(f"decision: expected one of {', '.join(changes)}")
    try:
        return VolunteerChange.model_validate(changes[decision])
    except ValidationError as error:
        raise RequestError(plain_errors(error)) from None
