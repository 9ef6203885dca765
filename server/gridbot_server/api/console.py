"""What opens the console: links that log a browser in, once."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint

from gridbot_server.api.schema import answers
from gridbot_server.http import auth, sessions
from gridbot_server.http.services import connection, current
from gridbot_server.models.responses.operation import LoginLink

blueprint = Blueprint("console_links", __name__, url_prefix="/api/v1/console")


@blueprint.post("/links")
@auth.rule("user")
@answers(HTTPStatus.CREATED)
def make_link() -> LoginLink:
    """Make a link that lets a browser into the console with this key, once, within five minutes."""
    with connection() as conn:
        code = sessions.make_link(conn, auth.key().id)
    return LoginLink(url=f"{current().settings.url}/enter/{code}")
