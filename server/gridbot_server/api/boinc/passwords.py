"""Forgotten passwords: BOINC's page for them leads to the console's, which calls this module."""

from __future__ import annotations

import time
from http import HTTPStatus

from flask import Blueprint, redirect
from werkzeug.wrappers import Response

from gridbot_server.api.boinc.session import known_project
from gridbot_server.boinc.protocol.pages import LEAST_PASSWORD
from gridbot_server.boinc.session import passwords, project
from gridbot_server.cycles.notices.address import Mailbox, NotAllowed, parse
from gridbot_server.errors import ObjectNotFound, RequestError, ServerBusy
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current

blueprint = Blueprint("boinc_passwords", __name__, url_prefix=project.PATH)

_PLACE = "/login/forgotten"


@blueprint.get("/get_passwd.php")
@auth.rule("public")
def forgotten() -> Response:
    """Where BOINC's manager leads who has forgotten the password."""
    check_offered()
    return redirect(_PLACE, HTTPStatus.SEE_OTHER)


def are_offered() -> bool:
    """Whether this server mails links for new passwords."""
    settings = current().settings
    return settings.boinc_accounts and settings.mail_relay is not None


def check_offered() -> None:
    """Raise ObjectNotFound where no links are mailed."""
    if not are_offered():
        raise ObjectNotFound("this server mails no links for new passwords: ask its operator")


def ask(email: str) -> None:
    """Have a link mailed to who has an account with this address.

    Raises RequestError for what can be no mailbox, and ServerBusy for who asks too often.
    """
    check_offered()
    try:
        mailbox = parse(f"mailto:{email}")
    except NotAllowed:
        raise RequestError("to this address no mail can be sent") from None
    assert isinstance(mailbox, Mailbox), "a mailto: is one"
    if (address := source()) and not current().login_limits.links.take(address, time.monotonic()):
        raise ServerBusy("too many links are asked for from your address: try again later")
    with connection() as conn:
        passwords.ask(conn, known_project().names.secret, email, email, mailbox.person)


def is_good(code: str) -> bool:
    """Whether the link with this code may be used."""
    check_offered()
    with connection() as conn:
        return passwords.is_good(conn, code)


def replace(code: str, email: str, password: str) -> int | None:
    """Let an account have a new password; return its new key, None for a link that is not good.

    Raises RequestError for a password that cannot be one, and ServerBusy after too many tries.
    """
    check_offered()
    if len(password) < LEAST_PASSWORD:
        raise RequestError(f"a password has {LEAST_PASSWORD} characters or more")
    secret = known_project().names.secret

    def use() -> int | None:
        with connection() as conn:
            return passwords.replace(conn, secret, code, email, password)

    return current().login_limits.attempt_key(source(), use)
