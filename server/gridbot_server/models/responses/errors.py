"""The one shape of every error."""

from __future__ import annotations

from gridbot_server.models.responses import ResponseModel


class ErrorAnswer(ResponseModel):
    """Why a request was not served."""

    error: str
    """The kind of error, for programs, such as `NotFound` or `PolicyError`."""

    detail: str
    """The reason, for people: one line that names what is wrong."""

    retry: bool
    """Whether the same request may succeed later; then `Retry-After` says when."""

    pretty: str = ""
    """Of a `PolicyError`: the policy's line, with a caret below the place."""

    missing: tuple[str, ...] = ()
    """Of `MissingFiles`: SHA-256 of the input files that have not been uploaded."""

    bot: int = 0
    """Of `SubmitKeyUsed`: the BOT that the submit key has made."""

    jobs_total: int = 0
    """Where jobs are appended: how many the BOT has, which is the `offset` to go on from."""

    offset: int = 0
    """Of a `WrongOffset` of an upload: how many bytes the server has."""
