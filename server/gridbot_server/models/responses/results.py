"""What a BOT gave: lines of the streams, and the progress of uploads."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from gridbot_server.models.responses import ResponseModel


class ResultOutput(ResponseModel):
    """A file that a job returned."""

    sha256: str
    size: int
    """Bytes."""

    content: str = ""
    """The file itself, base64; only small ones travel here."""

    place: str = ""
    """s3://BUCKET/…: where it is in its owner's storage; empty before it is published there."""

    lost: bool = False
    """Whether its owner's storage has it no more."""


class ResultLine(ResponseModel):
    """A line of `GET /bots/ID/results`: a finished job."""

    n: int
    """Its place in the order of finishing, which is the cursor `after`."""

    seq: int
    """The job's number in its BOT."""

    event: Literal["provisional", "recalled", "confirmed", "failed"] | None = None
    """With `events=all`: what became of the answer; `n` then counts events."""

    state: Literal["done", "failed"]
    args: dict[str, str | int | float | bool]
    """The job's arguments."""

    replica: int | None
    """The canonical replica; null if the job failed."""

    host: str | None
    """Who computed it."""

    exit_code: int | None
    """Of the canonical replica, or of the last one that failed; null if a signal ended it."""

    signal: int | None
    """The signal that ended the program; null for none."""

    reason: str
    """Why it failed, as a code such as exit_nonzero; empty if it is done."""

    cpu_seconds: float | None
    wall_seconds: float | None
    version: int
    """Of the BOT's manifest: which one it ran; a retry with changes makes the next."""

    outputs: dict[str, ResultOutput]
    """By name."""


class LogLine(ResponseModel):
    """A line of `GET /bots/ID/logs`: a replica that ended."""

    seq: int
    """The job's number in its BOT."""

    replica: int
    """The replica's number in its job."""

    why: str
    """Why it was made: first, quorum, expired, error, tail, retry, silent, gang."""

    how: Literal["success", "error", "expired", "lost", "cancelled"]
    """How it ended."""

    reason: str
    """More of that, as a code such as time_limit; may be empty."""

    exit_code: int | None
    host: str | None
    sent_at: datetime
    ended_at: datetime
    cpu_seconds: float | None
    wall_seconds: float | None
    version: int
    """Of the BOT's manifest: which one it ran."""

    valid: bool | None
    """Whether its outputs agree with the canonical ones; null if nobody compared."""

    difference: str | None
    """Where its outputs differ from the canonical ones, if they are not valid for that."""

    said: str | None
    """What it said while it ran, as BOINC clients can."""

    stdout: str | None
    """The end of its standard output."""

    stderr: str | None
    """The end of its standard error."""


class UploadProgress(ResponseModel):
    """`PUT` of an upload."""

    offset: int
    """Bytes that have arrived, where the next part begins."""

    complete: bool
    """Whether all has arrived and its hash is right."""


class LiveReplica(ResponseModel):
    """Output of a replica in progress, as far as it is here, from the position that was given."""

    seq: int
    replica: int
    stdout: str
    """Base64, as `stderr`."""

    stderr: str


class LiveReplicas(ResponseModel):
    """`POST /bots/ID/live`."""

    is_over: bool
    """Whether the BOT, or the job that was asked for, has ended."""

    replicas: list[LiveReplica]
    """In progress; their clients send more while somebody asks."""
