"""Who changed what: each change that a person's key made through the API is noted, once it is made.

Not noted is what programs do all the time: uploads, jobs that are streamed in, what clients,
workflows and the overlay's constructor tell.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
import psycopg
from flask import Response, g, request

from gridbot_server.http.auth import Key
from gridbot_server.http.services import connection
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

log = logging.getLogger(__name__)

SQL = sql.load("audit.sql")

_CHANGES = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_ALL_THE_TIME = frozenset(
    ("blobs", "uploads", "clients", "joining", "content", "overlay", "append_jobs", "tell_workflow")
)
_NO_CHANGES = frozenset(("log_out",))
_SECRETS = ("code", "key", "password", "secret", "signature", "token", "envelope")
_MOST_BYTES = 256 << 10  # of a body that is looked at again
_MOST_CHARACTERS = 16_000  # of a text, such as a policy
_MOST_ITEMS = 100  # of a list of numbers or words


def note(response: Response) -> Response:
    """Note a request that has changed something; to be called when it is answered."""
    key = g.get("key")
    endpoint = request.endpoint or ""
    room, _, action = endpoint.rpartition(".")
    if (
        key is None
        or request.method not in _CHANGES
        or response.status_code >= 400
        or {room, action} & (_ALL_THE_TIME | _NO_CHANGES)
        # A form that changed something leads to a page; one that only tries something is a page.
        or (room == "console" and response.status_code != HTTPStatus.SEE_OTHER)
    ):
        return response
    try:
        with connection() as conn:
            note_change(conn, key, action, request.path, given(_document()))
    except psycopg.Error as error:  # what was changed stays so, and its maker must hear that
        log.error("%s by key %d is not noted: %r", action, key.id, str(error))
    return response


def note_change(
    conn: Connection, key: Key, action: str, target: str, told: Mapping[str, Any]
) -> None:
    """Note a change that was made with a key."""
    values = {
        "owner": key.owner,
        "key": key.id,
        "action": action,
        "target": target,
        "given": orjson.dumps(told).decode(),
    }
    conn.execute(SQL["note"], values)


def _document() -> object:
    """The body of this request, if it is a form, or a JSON document that the view has read."""
    if request.form:
        return request.form.to_dict()
    if not request.is_json or (request.content_length or 0) > _MOST_BYTES:
        return None
    try:
        return orjson.loads(request.get_data())
    except orjson.JSONDecodeError:  # it is empty, or was read piece by piece
        return None


def given(document: object) -> Mapping[str, Any]:
    """What of a request's body is noted: no secrets, no long texts, no tables of jobs."""
    if not isinstance(document, Mapping):
        return {}
    return {
        name: _without_path(value) if name == "url" else value
        for name, value in document.items()
        if not any(word in name.lower() for word in _SECRETS) and _is_short(value)
    }


def _without_path(url: object) -> object:
    """What of an address is noted: its scheme and host, since the rest may be a secret."""
    found = re.match(r"[^:/?#]*:(?://[^/?#@]*(?=[/?#]|$))?", url) if isinstance(url, str) else None
    return f"{found[0]}…" if found else None


def _is_short(value: object) -> bool:
    match value:
        case str():
            return len(value) <= _MOST_CHARACTERS and "\0" not in value
        case bool() | int() | float() | None:
            return True
        case list():
            return len(value) <= _MOST_ITEMS and all(
                isinstance(item, str | int | float) and _is_short(item) for item in value
            )
        case _:
            return False
