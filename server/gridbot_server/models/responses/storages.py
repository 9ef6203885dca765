"""Storages of owners, to which outputs of their BOTs go."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel


class StorageState(ResponseModel):
    """A bucket of an owner."""

    name: str
    place: str
    """s3://BUCKET/PREFIX?endpoint=…; outputs lie below it, in the folder `tag`."""

    tag: str
    access_key: str
    created_at: datetime
    error: str | None
    """Why the last attempt to publish or to sweep failed; null if it did not."""

    incoming: int
    """Objects that clients were asked to send, until they are swept."""

    unpublished: int
    """Jobs that are done, and of which an output has not its final name yet."""


class StorageStates(ResponseModel):
    """`GET /storages`."""

    storages: list[StorageState]


class RemovedStorage(ResponseModel):
    """`DELETE /storages/NAME`."""

    name: str
    place: str
    objects_left: int
    """Objects that may lie below `incoming/` there, and that nobody sweeps any more."""
