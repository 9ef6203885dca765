"""Mails links for new passwords to those who asked for one and have an account.

This is the cycles' work, so that the answer to who asks, and the time it takes, is the same whether
there is an account or not.
"""

from __future__ import annotations

import logging
import secrets
import smtplib
from datetime import datetime, timedelta
from typing import NamedTuple

from gridbot_server.cycles.notices.address import Mailbox
from gridbot_server.cycles.notices.delivery import Mail
from gridbot_server.settings import Settings
from gridbot_server.signing.keys import token_hash
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

SQL = sql.load("passwords.sql")

LIFETIME = timedelta(hours=1)
_PER_PASS = 100


class _Asked(NamedTuple):
    id: int
    mailbox: str
    asked_at: datetime


def run_once(conn: Connection, settings: Settings) -> int:
    """Mail what is due; return for how many of those who asked something was done.

    What the relay does not take is tried again for an hour, each time with another link; a relay
    that refuses one is left alone for this pass.
    """
    if settings.mail_relay is None:
        return 0
    due = rows.fetch(conn, _Asked, SQL["due"], {"limit": _PER_PASS})
    for done, asked in enumerate(due):
        code = secrets.token_urlsafe(32)
        promised = {"id": asked.id, "hash": token_hash(code), "lifetime": LIFETIME}
        if rows.has_row(conn, SQL["promise"], promised) and not _is_sent(asked, code, settings):
            return done
        conn.execute(SQL["settle"], {"id": asked.id})
    return len(due)


def _is_sent(asked: _Asked, code: str, settings: Settings) -> bool:
    try:
        _mail(asked, code, settings).send(settings)
    except (OSError, smtplib.SMTPException) as error:
        log.warning("a link for a new password is not mailed yet: %s", type(error).__name__)
        return False
    return True


def _mail(asked: _Asked, code: str, settings: Settings) -> Mail:
    """The code is an argument of the address: logs of proxies, such as ours, leave those out."""
    text = (
        f"Somebody asked for a new password for your account at {settings.project_name}\n"
        f"({settings.url}). If that was you, open within an hour\n\n"
        f"    {settings.url}/login/password?code={code}\n\n"
        "and choose one. If it was not, do nothing: your password stays as it is.\n"
    )
    subject = f"A new password for {settings.project_name}"
    return Mail(Mailbox(asked.mailbox), f"password-{asked.id}", asked.asked_at, subject, text)
