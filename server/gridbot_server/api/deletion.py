"""`DELETE /bots/ID`: BOTs that nobody needs any more."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.schema import answers
from gridbot_server.errors import Conflict, ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.responses.bots import DeletedBot
from gridbot_server.storage import rows, sql

SQL = sql.load("retention.sql")

blueprint = Blueprint("deletion", __name__, url_prefix="/api/v1/bots")


@dataclass(frozen=True, slots=True)
class _LockedBot:
    """A BOT that nobody else changes meanwhile."""

    owner: int
    state: str
    is_deleted: bool


@blueprint.delete("/<int:bot>")
@auth.rule("user")
@answers(HTTPStatus.ACCEPTED, errors=(HTTPStatus.CONFLICT,))
def delete_bot(bot: int) -> DeletedBot:
    """Delete a BOT that has ended, with all that is known of it; safe to repeat.

    It is out of sight at once; its jobs, results and files go in the background.
    """
    key = auth.key()
    with connection() as conn, conn.transaction():
        found = rows.read_one(conn, _LockedBot, SQL["lock"], {"bot": bot})
        if found is None or not (key.is_operator or found.owner == key.owner):
            raise ObjectNotFound(f"there is no BOT {bot}")
        if found.state not in ("done", "cancelled"):
            raise Conflict(f"BOT {bot} is {found.state}: cancel it first")
        if not found.is_deleted:
            conn.execute(SQL["delete"], {"bots": [bot]})
    return DeletedBot(id=bot, deleted=True)
