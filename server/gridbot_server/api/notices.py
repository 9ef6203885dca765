"""Addresses that are told when a BOT of their owner ends or is held."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.schema import answers, json_body
from gridbot_server.cycles.notices.address import Mailbox, parse, resolve
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection, current
from gridbot_server.models.requests import NewAddress
from gridbot_server.models.responses.notices import (
    NewNoticeAddress,
    NoticeAddress,
    NoticeAddresses,
    RemovedNoticeAddress,
)
from gridbot_server.storage import rows, sql

SQL = sql.load("notices.sql")

MOST_ADDRESSES = 10  # of an owner

blueprint = Blueprint("notices", __name__, url_prefix="/api/v1/account/notices")


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

    Addresses of operators are told as well when the server needs attention.
    """
    _check(json.url)
    secret = secrets.token_urlsafe(32)
    values = {
        "owner": auth.key().owner, "url": json.url, "secret": secret, "most": MOST_ADDRESSES,
    }  # fmt: skip
    with connection() as conn:
        added = rows.fetch_value(conn, int, SQL["add"], values)
    if added is None:
        raise Conflict(f"url: it is there already, or there are {MOST_ADDRESSES} addresses")
    return NewNoticeAddress(id=added, url=json.url, secret=secret)


@blueprint.delete("/<int:address>")
@auth.rule("user")
@answers()
def remove_address(address: int) -> RemovedNoticeAddress:
    """Tell an address nothing more."""
    values = {"id": address, "owner": auth.key().owner}
    with connection() as conn:
        if rows.fetch_value(conn, int, SQL["remove"], values) is None:
            raise ObjectNotFound(f"there is no address {address} of yours")
    return RemovedNoticeAddress(id=address)


def _check(url: str) -> None:
    """Raise RequestError for an address to which nothing would be sent."""
    settings, found = current().settings, parse(url)
    if isinstance(found, Mailbox):
        if settings.mail_relay is None:
            raise RequestError("url: this server sends no mail; give a webhook, https://…")
        return
    try:
        resolve(found.host, found.port, settings.private_webhooks)
    except (OSError, UnicodeError):
        raise RequestError(f"url: the name {found.host} has no address") from None
