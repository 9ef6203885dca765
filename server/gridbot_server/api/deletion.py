"""`DELETE /bots/ID`: BOTs that nobody needs any more."""

from __future__ import annotations

from typing import Any

from flask import Blueprint

from gridbot_server.errors import Conflict, ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.storage import sql

SQL = sql.load("retention.sql")

blueprint = Blueprint("deletion", __name__, url_prefix="/api/v1/bots")


@blueprint.delete("/<int:bot>")
@auth.rule("user")
def delete_bot(bot: int) -> tuple[dict[str, Any], int]:
    """Delete a BOT that has ended, with all that is known of it; safe to repeat.

    It is out of sight at once; its jobs, results and files go in the background.
    """
    key = auth.key()
    with connection() as conn, conn.transaction():
        row = conn.execute(SQL["lock"], {"bot": bot}).fetchone()
        if row is None or not (key.is_operator or row[0] == key.owner):
            raise ObjectNotFound(f"there is no BOT {bot}")
        _, state, is_deleted = row
        if state not in ("done", "cancelled"):
            raise Conflict(f"BOT {bot} is {state}: cancel it first")
        if not is_deleted:
            conn.execute(SQL["delete"], {"bots": [bot]})
    return {"id": bot, "deleted": True}, 202
