"""The pages that account managers call with an account's key: BOINC's `am_*.php`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import psycopg
from flask import Blueprint, Response, request

from gridbot_client.protocol.preferences import PreferenceError
from gridbot_server.api.boinc.session import known_project, xml
from gridbot_server.api.schema import body_limit
from gridbot_server.boinc.protocol import manager, pages
from gridbot_server.boinc.protocol.pages import AccountError
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import managers, project
from gridbot_server.boinc.session.managers import AccountRow
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current
from gridbot_server.overload.login_limits import TooManyAttempts
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

blueprint = Blueprint("boinc_managers", __name__, url_prefix=project.PATH)

_FORM_BYTES = 64 * 1024
_NO_KEY = (
    "this key changes no account: look the account up with its e-mail address and password,"
    " but not through a BOINC client, which is told a key for machines"
)
_CANNOT_BE = -1  # BOINC's number for all that has none

Answer = Callable[[Connection, AccountRow, str], str]


@blueprint.route("/am_get_info.php", methods=["GET", "POST"])
@auth.rule("boinc")
@body_limit(lambda _: _FORM_BYTES)
def get_info() -> Response:
    """Tell what the account has, and a key for machines that changes nothing."""

    def tell(conn: Connection, account: AccountRow, key: str) -> str:
        return manager.account_info(managers.tell(conn, known_project(), account, key))

    return _managed(tell)


@blueprint.route("/am_set_info.php", methods=["GET", "POST"])
@auth.rule("boinc")
@body_limit(lambda _: _FORM_BYTES)
def set_info() -> Response:
    """Change what is named; what this project does not keep is taken and forgotten."""

    def change(conn: Connection, account: AccountRow, _: str) -> str:
        managers.change(conn, account, _given())
        return manager.done("am_set_info")

    return _managed(change)


@blueprint.route("/am_set_host_info.php", methods=["GET", "POST"])
@auth.rule("boinc")
@body_limit(lambda _: _FORM_BYTES)
def set_host_info() -> Response:
    """Set the venue of a machine, by the number that its client was told."""

    def change(conn: Connection, account: AccountRow, _: str) -> str:
        number = _given().get("hostid", "")
        client = int(number) if number.isdecimal() and len(number) < 19 else 0
        if not managers.set_venue(conn, account, client, _given().get("venue", "")):
            return pages.failed(AccountError.NOT_FOUND, f"no host {number[:40]!r} of this account")
        return manager.done("am_set_host_info")

    return _managed(change)


def _given() -> Mapping[str, str]:
    """The arguments: managers send long ones in a body."""
    return {**request.args.to_dict(), **request.form.to_dict()}


def _managed(answer: Answer) -> Response:
    """Answer for the account of the key, all in one transaction, or say what is wrong."""
    key = _given().get("account_key", "")

    def look() -> str | None:
        try:
            with connection() as conn, conn.transaction():
                account = managers.find(conn, key)
                return None if account is None else answer(conn, account, key)
        except (BoincError, PreferenceError) as error:  # of a change, whose key was right
            return pages.failed(_CANNOT_BE, str(error))

    try:
        found = current().login_limits.attempt_key(source(), look)
    except TooManyAttempts:
        return xml(pages.no_account(AccountError.PROJECT_DOWN))
    except psycopg.OperationalError as error:
        log.warning("database: %r", str(error))
        return xml(pages.no_account(AccountError.PROJECT_DOWN))
    if found is None:
        return xml(pages.failed(AccountError.NOT_FOUND, _NO_KEY))
    return xml(found)
