"""The scheduler session of this web process, and what BOINC's routes share beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from flask import Response, current_app

from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import project
from gridbot_server.boinc.session.project import Project
from gridbot_server.boinc.session.session import SchedulerSession
from gridbot_server.errors import ObjectNotFound, ServerBusy
from gridbot_server.http.services import connection, current
from gridbot_server.settings import SettingsError

log = logging.getLogger(__name__)

SESSION = "gridbot_boinc"  # of the application, once a client has come
_making = threading.Lock()


def scheduler_session() -> SchedulerSession:
    """The session, made at the first request and again after the services closed."""
    extensions, services = current_app.extensions, current()
    with _making:
        if SESSION not in extensions:
            with attachable(), connection() as conn:
                loaded = project.load(conn, services.settings)
            extensions[SESSION] = session = SchedulerSession(
                loaded,
                lambda: services.pool.connection(),
                lambda token, work, tell: services.engine.take(token, work, tell),
                services.login_limits.attachments,
            )
            services.before_close.append(lambda: extensions.pop(SESSION, session).close())
        return cast(SchedulerSession, extensions[SESSION])


def known_project() -> Project:
    """The project as it was when a client asked for work last."""
    return scheduler_session().project


@contextmanager
def attachable() -> Iterator[None]:
    """Answer ObjectNotFound where this server has an URL that no client attaches to."""
    try:
        yield
    except BoincError as error:
        raise ObjectNotFound(str(error)) from None


def terms_of_use() -> str:
    """The text of the terms of use; raises ServerBusy while nobody can read it.

    It may be changed while the server runs.
    """
    try:
        return current().settings.terms_of_use()
    except SettingsError as error:
        log.error("%s", error)
        raise ServerBusy("the terms of use cannot be read: the operator's log says why") from None


def xml(text: str) -> Response:
    """An answer in BOINC's words."""
    return Response(text, mimetype="text/xml")
