"""Addresses that are told when a BOT of their owner ends or is held."""

from __future__ import annotations

import hmac
import secrets
from http import HTTPStatus
from typing import NamedTuple

from flask import Blueprint

from gridbot_server.api.schema import answers, json_body
from gridbot_server.cycles.notices.address import Mailbox, check_literal, parse
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import Confirmation, NewAddress
from gridbot_server.models.responses.notices import (
    ConfirmedNoticeAddress,
    NewNoticeAddress,
    NoticeAddress,
    NoticeAddresses,
    RemovedNoticeAddress,
)
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

SQL = sql.load("notices.sql")

MOST_ADDRESSES = 10  # of an owner
# Codes that are mailed in a day: for an owner, and to a mailbox, whoever wants them there, but for
# those who have confirmed it.
MOST_CODES_OF_OWNER, MOST_CODES_TO_MAILBOX = 10, 3
MOST_WRONG_CODES = 5  # after which a code is good for nothing
_LETTERS, _CODE_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789", 10  # none looks like another

blueprint = Blueprint("notices", __name__, url_prefix="/api/v1/account/notices")


class _Codes(NamedTuple):
    of_owner: int
    to_mailbox: int


@blueprint.get("")
@auth.rule("user")
@answers()
def list_addresses() -> NoticeAddresses:
    """List the caller's addresses, and whether what was sent there arrived."""
    with connection() as conn:
        found = rows.read(conn, NoticeAddress, SQL["list"], {"owner": auth.key().owner})
    return NoticeAddresses(addresses=found)


@blueprint.post("")
@auth.rule("user")
@json_body
@answers(HTTPStatus.CREATED, errors=(HTTPStatus.CONFLICT,))
def add_address(json: NewAddress) -> NewNoticeAddress:
    """Add a webhook (https://…) or a mailbox (mailto:…) that is told when a BOT ends or is held.

    Addresses of operators are told as well when the server needs attention.  A mailbox is first
    mailed a code, good for a day, and nothing else until that is shown (`/confirm`); to add it once
    more has another code mailed.
    """
    settings, found = current().settings, parse(json.url)
    owner, secret = auth.key().owner, secrets.token_urlsafe(32)
    if not isinstance(found, Mailbox):
        check_literal(found, settings)
    elif settings.mail_relay is None:
        raise RequestError("url: this server sends no mail; give a webhook, https://…")
    values = {"owner": owner, "url": json.url, "secret": secret, "most": MOST_ADDRESSES}
    with connection() as conn, conn.transaction():
        conn.execute(SQL["lock"])
        added = rows.fetch_value(conn, int, SQL["add"], values)
        if added is None and isinstance(found, Mailbox):
            added = rows.fetch_value(conn, int, SQL["unconfirmed"], values)
        if added is None:
            raise Conflict(f"url: it is there already, or there are {MOST_ADDRESSES} addresses")
        if isinstance(found, Mailbox):
            _mail_code(conn, owner, added, found)
            return NewNoticeAddress(id=added, url=json.url, secret="", confirmed=False)
    return NewNoticeAddress(id=added, url=json.url, secret=secret, confirmed=True)


@blueprint.post("/<int:address>/confirm")
@auth.rule("user")
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def confirm_address(address: int, json: Confirmation) -> ConfirmedNoticeAddress:
    """Show the code that was mailed to a mailbox: from now on it is told."""
    values = {"id": address, "owner": auth.key().owner, "most": MOST_WRONG_CODES}
    with connection() as conn:
        is_confirmed = rows.fetch_value(conn, bool, SQL["is_confirmed"], values)
        if is_confirmed is None:
            raise _unknown(address)
        if not is_confirmed:
            code = rows.fetch_value(conn, str, SQL["try_code"], values)
            if code is None:
                raise Conflict("code: the last one is too old, or was tried too often; add again")
            if not hmac.compare_digest(code.encode(), json.code.encode()):
                raise RequestError("code: not the one that was mailed last")
            conn.execute(SQL["confirm"], values)
    return ConfirmedNoticeAddress(id=address, confirmed=True)


@blueprint.delete("/<int:address>")
@auth.rule("user")
@answers()
def remove_address(address: int) -> RemovedNoticeAddress:
    """Tell an address nothing more."""
    values = {"id": address, "owner": auth.key().owner}
    with connection() as conn:
        if rows.fetch_value(conn, int, SQL["remove"], values) is None:
            raise _unknown(address)
    return RemovedNoticeAddress(id=address)


def _mail_code(conn: Connection, owner: int, address: int, mailbox: Mailbox) -> None:
    """Have a new code mailed.  Raises Conflict where that happened too often lately."""
    values = {
        "id": address, "owner": owner, "mailbox": mailbox.person,
        "code": "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LETTERS)),
    }  # fmt: skip
    mailed = rows.fetch_only(conn, _Codes, SQL["codes_mailed"], values)
    if mailed.of_owner >= MOST_CODES_OF_OWNER:
        raise Conflict(f"url: {mailed.of_owner} codes were mailed for you today: try tomorrow")
    if mailed.to_mailbox >= MOST_CODES_TO_MAILBOX:
        # Without telling what others do.
        raise Conflict(
            "url: no code can be mailed there now: try tomorrow, or give another mailbox"
        )
    conn.execute(SQL["mail_code"], values)


def _unknown(address: int) -> ObjectNotFound:
    return ObjectNotFound(f"there is no address {address} of yours")
