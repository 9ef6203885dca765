"""Where files come from."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gridbot_server.models.responses import ResponseModel
from gridbot_server.models.responses.bots import HostCommand


class UsedFile(ResponseModel):
    """An input of a job."""

    name: str
    sha256: str
    size: int


class JobName(ResponseModel):
    """A job."""

    bot: int
    job: int


class MakingJob(ResponseModel):
    """A job whose confirmed answer has the content."""

    bot: int
    job: int
    name: str
    """Of the BOT."""

    output: str
    """Under which it returned the content."""

    size: int
    ended_at: datetime
    host: str | None
    """Null: it was not run, or the host is gone."""

    command: list[str]
    """Of several programs it is the first one's."""

    programs: list[HostCommand]
    """Of which its host ran the one for it; empty: it ran `command`."""

    environment: dict[str, str]
    image: str
    args: dict[str, Any]
    inputs: list[UsedFile]
    reused: JobName | None
    """The job that has run, if this one was not; it may be deleted."""

    invalidated: bool


class Provenance(ResponseModel):
    """`GET /data/SHA256`: what made a content, and what read it."""

    sha256: str
    made_by: list[MakingJob]
    """Of the latest BOTs first, at most 20."""

    used_by: list[JobName]
    """Jobs with an answer that read it, at most 100."""


class Invalidated(ResponseModel):
    """`POST /data/SHA256/invalidate`."""

    jobs: int
    """Jobs whose answers are not reused any more, without those that were so already."""

    bots: list[int]
    """Whose jobs they are."""
