"""Expected failures of `gridbot client`, with the exit codes that all commands of GridBot have."""

from __future__ import annotations

import click

from gridbot_client.client import Revoked
from gridbot_client.host.permission import UnreadablePolicy
from gridbot_client.joining import JoinError
from gridbot_client.net.discovery import NoServer, WrongEndpoint
from gridbot_client.net.invitation import InvitationError
from gridbot_client.net.transport import NotOurServer, RequestRefused, ServerUnavailable

_OTHER, _WRONG_INPUT, NO_SERVER, _REFUSED = 1, 2, 3, 4
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (InvitationError, _WRONG_INPUT),
    (UnreadablePolicy, _WRONG_INPUT),
    (WrongEndpoint, _WRONG_INPUT),
    (NoServer, NO_SERVER),
    (ServerUnavailable, NO_SERVER),
    (NotOurServer, NO_SERVER),
    (RequestRefused, _REFUSED),
    (JoinError, _REFUSED),
    (Revoked, _REFUSED),
)


class Failed(click.ClickException):
    """One line on stderr, and an exit code."""

    def __init__(self, message: str, exit_code: int = _OTHER) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it of the instance


def failed(error: Exception) -> Failed:
    """The end of a command for an error that it expects."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _OTHER)
    return Failed(str(error), code)


def not_joined(advice: str) -> Failed:
    """The end of a command that needs a client that has joined a server."""
    return Failed(f"not joined yet; {advice}", NO_SERVER)
