"""Addresses that are told when a BOT ends or is held."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel


class NoticeAddress(ResponseModel):
    """An address."""

    id: int
    url: str
    created_at: datetime
    told_at: datetime | None
    """When something last arrived there."""

    error: str | None
    """Why the last attempt failed; null if it did not."""

    waiting: int
    """Notices that have not arrived yet."""


class NoticeAddresses(ResponseModel):
    """`GET /account/notices`."""

    addresses: list[NoticeAddress]


class NewNoticeAddress(ResponseModel):
    """`POST /account/notices`: the secret is shown once."""

    id: int
    url: str
    secret: str
    """The key of the HMAC-SHA256 in the header `GridBot-Signature` of what is posted."""


class RemovedNoticeAddress(ResponseModel):
    """`DELETE /account/notices/ID`."""

    id: int
