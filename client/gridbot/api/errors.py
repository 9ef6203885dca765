"""Errors of the Python API.  The message is one sentence that can be shown to a user."""

from __future__ import annotations


class GridbotError(Exception):
    """Base class of all errors of the API."""


class BadInput(GridbotError):
    """A file, row, template or option is invalid; nothing was sent."""


class InputUnreadable(BadInput):
    """An input file cannot be read now, or changes meanwhile; the call may work later."""


class NotFound(GridbotError):
    """The server has no such BOT, job, output or key, or it belongs to another user."""


class Refused(GridbotError):
    """The server refused the request; repeating it will not help.

    `error` is what a GridBot server calls the error; empty if something else refused.
    """

    def __init__(self, detail: str, error: str = "") -> None:
        super().__init__(detail)
        self.error = error


class BotHeld(GridbotError):
    """The BOT is held: nothing of it is sent until it is resumed or retried."""


class ServerAway(GridbotError):
    """No server is known, or it is unreachable, overloaded or failing; the call may work later.

    `retry_after` is how many seconds the server wants to be left alone.
    """

    def __init__(self, detail: str, retry_after: float = 0.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class KeyUsed(Refused):
    """The idempotency key has made another BOT, whose number is `bot`."""

    def __init__(self, detail: str, error: str, bot: int) -> None:
        super().__init__(detail, error)
        self.bot = bot


class PolicyError(Refused):
    """The policy has an error; `pretty` shows the place with a caret under it."""

    def __init__(self, detail: str, pretty: str = "") -> None:
        super().__init__(detail, "PolicyError")
        self.pretty = pretty or detail
