"""BOTs whose policy exceeded its evaluation budget repeatedly get no work until it is changed."""

from __future__ import annotations

import logging

from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

SQL = sql.load("suspension.sql")


def suspend(conn: Connection, bot: int, version: int, why: str) -> None:
    """Suspend a BOT, as of a version of it; one that changed, or is locked, stays as it is."""
    if conn.execute(SQL["suspend"], {"bot": bot, "version": version, "why": why}).rowcount:
        log.warning("BOT %d is suspended: %s", bot, why)
