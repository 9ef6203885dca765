"""What every answer looks like, whoever sends it: Flask's views or a web process itself."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from gridbot_server.errors import InternalError, ServerError

RETRY_AFTER_SECONDS = 5
# Answers are neither stored nor guessed at.  Pages have no scripts, styles or frames; their forms
# go back to this server, and links tell nobody where they were followed.
HARDENING = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def error_body(error: ServerError) -> dict[str, object]:
    """The JSON document that tells of an error."""
    body = {"error": error.name, "detail": error.detail, "retry": error.retry}
    return {**body, **error.extra}


def error_headers(status: int, retry: bool) -> Mapping[str, str]:
    """The headers of an error: when to come back, or what to bring."""
    if retry:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}


def defect() -> InternalError:
    """The error that hides a defect of ours from the caller; the log has it."""
    return InternalError("the server failed on this request; its log says why")
