"""When a client is led to the next code signing key, and what must come with it.

A client checks an application's file when it has arrived whole, by the key that it holds then.  So
a new key would spoil the jobs whose files are still on their way, which may take hours, unless new
signatures of these files come with it: the client keeps those in place of the old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.boinc.application.description import Application
from gridbot_server.boinc.application.signed import AppFile


@dataclass(frozen=True, slots=True)
class KeyTurn:
    """The key that a client is to take now, and files that it has, signed with that key.

    `takes_work`: whether the client can check what the newest key signed, after this reply.
    """

    offer: Link | None
    takes_work: bool
    files: tuple[AppFile, ...] = ()


def key_turn(chain: Chain, held: str | None, running: Sequence[Application | None]) -> KeyTurn:
    """Decide for a client that holds a key, and jobs of these applications.

    None stands for an application that the newest key did not sign.  The client finishes its jobs
    first, under its old key and without new work, when they would not survive the turn.
    """
    link = chain.offer(held)
    if not (running and chain.is_behind(held)):
        return KeyTurn(link, chain.is_current(held))
    signed = [application for application in running if application]
    if not chain.is_current(held) or len(signed) < len(running):
        return KeyTurn(None, takes_work=False)
    files = {file.sha256: file for application in signed for file in application.files}
    return KeyTurn(link, takes_work=True, files=tuple(files.values()))
