"""Who changed what."""

from __future__ import annotations

from flask import Blueprint

from gridbot_server.api.access import mine
from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.schema import answers, query
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.responses.audit import AuditEntry, AuditLog
from gridbot_server.storage import rows, sql

SQL = sql.load("audit.sql")

blueprint = Blueprint("audit", __name__, url_prefix="/api/v1")


@blueprint.get("/audit")
@auth.rule("user")
@query(
    target=Parameter("Only changes of this path, or below it.", {"type": "string"}),
    before=number("Only entries before this one, by its id."),
    limit=number("How many at most.", default=100, most=10_000),
)
@answers()
def list_changes(target: str | None, before: int | None, limit: int) -> AuditLog:
    """List the changes that were made with one's own keys, or for an operator with all keys."""
    values = {"mine": mine(), "target": target, "before": before, "limit": limit}
    with connection() as conn:
        return AuditLog(entries=rows.read(conn, AuditEntry, SQL["entries"], values))
