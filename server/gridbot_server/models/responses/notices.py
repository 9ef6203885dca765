"""Addresses that are told when a BOT ends or is held."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel


class NoticeAddress(ResponseModel):
    """An address."""

    id: int
    url: str
    created_at: datetime
    confirmed: bool
    """Whether it is told anything: a mailbox only after the code mailed there was shown."""

    told_at: datetime | None
    """When something last arrived there."""

    error: str | None
    """Why the last attempt failed; null if it did not."""

    waiting: int
    """Notices that have not arrived yet: the last hundred."""

    dropped: int
    """Older ones that gave way to those."""


class NoticeAddresses(ResponseModel):
    """`GET /account/notices`."""

    addresses: list[NoticeAddress]


class NewNoticeAddress(ResponseModel):
    """`POST /account/notices`: the secret is shown once."""

    id: int
    url: str
    secret: str
    """The key of the HMAC-SHA256 in the header `GridBot-Signature` of what is posted; empty for a
    mailbox."""

    confirmed: bool
    """Whether it is told anything; a mailbox is mailed a code first."""


class ConfirmedNoticeAddress(ResponseModel):
    """`POST /account/notices/ID/confirm`."""

    id: int
    confirmed: bool


class RemovedNoticeAddress(ResponseModel):
    """`DELETE /account/notices/ID`."""

    id: int
