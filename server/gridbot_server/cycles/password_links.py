"""Mails links for new passwords to those who asked for one and have an account.

This is the cycles' work, so that the answer to who asks, and the time it takes, is the same whether
there is an account or not.
"""

from __future__ import annotations

import logging
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from gridbot_server.cycles.notices.address import Mailbox
from gridbot_server.cycles.notices.delivery import MAIL_REFUSED, Mail
from gridbot_server.settings import Settings
from gridbot_server.signing.keys import token_hash
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

SQL = sql.load("passwords.sql")

LIFETIME = timedelta(hours=1)
_MOST_MAILS = 3  # to a person in a day
_PER_PASS = 100


class _Asked(NamedTuple):
    id: int
    mailbox: str
    asked_at: datetime


def run_once(conn: Connection, settings: Settings) -> int:
    """Mail what is due; return for how many of those who asked something was done.

    What the relay does not take is tried again for an hour, each time with another link.  A relay
    that is away is left alone for this pass; one that refuses a mail may take the next one.
    """
    if settings.mail_relay is None:
        return 0
    due = rows.fetch(conn, _Asked, SQL["due"], {"limit": _PER_PASS})
    done = 0
    for asked in due:
        code = secrets.token_urlsafe(32)
        promised = {
            "id": asked.id, "hash": token_hash(code), "lifetime": LIFETIME, "most": _MOST_MAILS,
        }  # fmt: skip
        if rows.has_row(conn, SQL["promise"], promised):
            try:
                _mail(asked, code, settings).send(settings)
            except MAIL_REFUSED as error:
                _complain(error)
                continue
            except OSError as error:  # as all of SMTP's errors are
                _complain(error)
                break
        conn.execute(SQL["settle"], {"id": asked.id})
        done += 1
    return done


def _complain(error: Exception) -> None:
    """Log an error without what it says, which may be an address."""
    log.warning("a link for a new password is not mailed yet: %s", type(error).__name__)


def _mail(asked: _Asked, code: str, settings: Settings) -> Mail:
    """The code is an argument of the address: logs of proxies, such as ours, leave those out.

    Each attempt has an id of its own: it has another link, and must not be dropped as a copy.
    """
    text = (
        f"Somebody asked for a new password for your account at {settings.project_name}\n"
        f"({settings.url}). If that was you, open within an hour\n\n"
        f"    {settings.url}/login/password?code={code}\n\n"
        "and choose one. If it was not, do nothing: your password stays as it is.\n"
    )
    subject = f"A new password for {settings.project_name}"
    attempt = f"password-{asked.id}-{secrets.token_hex(8)}"
    return Mail(Mailbox(asked.mailbox), attempt, asked.asked_at, subject, text)
