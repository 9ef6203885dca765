"""Every error that `gridbot` raises on purpose: one sentence, fit to be shown as it is."""

from __future__ import annotations


class GridbotError(Exception):
    """Base of the errors below; catching it catches all that can be expected."""


class BadInput(GridbotError):
    """What was given here cannot be sent: a file, a row, a template or an option is wrong."""


class NotFound(GridbotError):
    """The server has no such BOT, job, output or key, or it belongs to somebody else."""


class Refused(GridbotError):
    """The server understood and said no; repeating the call will not help."""


class ServerAway(GridbotError):
    """The server does not answer, or not sensibly; the same call may work later."""


class PolicyError(Refused):
    """The policy is not a policy; `pretty` shows the place with a caret under it."""

    def __init__(self, detail: str, pretty: str = "") -> None:
        super().__init__(detail)
        self.pretty = pretty or detail
