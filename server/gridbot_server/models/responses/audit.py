"""Who changed what."""

from __future__ import annotations

from datetime import datetime

from pydantic import JsonValue

from gridbot_server.models.responses import ResponseModel


class AuditEntry(ResponseModel):
    """A change that was made through the API."""

    id: int
    at: datetime
    owner: str
    """Whose key it was made with."""

    key: int
    action: str
    """As the API's description names the operation: `change_bot`, `revoke_token` and so on."""

    target: str
    """The path of the request."""

    given: dict[str, JsonValue]
    """What was asked for, without secrets and long texts."""


class AuditLog(ResponseModel):
    """`GET /audit`: the latest first."""

    entries: list[AuditEntry]
