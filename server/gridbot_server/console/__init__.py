"""The web console: pages for people, which read what the API reads and change what it changes.

Pages are plain HTML that needs no script.  A view gets its models from the API's own functions
(`api.schema.call`), so that a page never says anything that the API does not.  Live pages are
computed once in a while for all who look at them (`shared.py`).
"""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from flask import Flask

from gridbot_server.console import (
    bots,
    entry,
    errors,
    files,
    home,
    jobs,
    logins,
    machines,
    notices,
    operations,
    overlay,
    passwords,
    policies,
    project,
    static,
    workflows,
)
from gridbot_server.console.blueprint import blueprint
from gridbot_server.console.openid import OpenIdProvider
from gridbot_server.console.shared import FastPolls, SharedContents
from gridbot_server.http import sessions
from gridbot_server.http.services import connection
from gridbot_server.settings import Settings

__all__ = ["register"]

# Their views are in the blueprint once they are imported.
_PAGES = (
    bots, entry, errors, files, home, jobs, logins, machines, notices, operations, overlay,
    passwords, policies, project, workflows,
)  # fmt: skip


def register(app: Flask, settings: Settings) -> None:
    """Add the console's pages to an application.  Raises SettingsError."""
    app.extensions["gridbot_openid"] = OpenIdProvider.of(settings)
    contents = app.extensions["gridbot_console"] = SharedContents()

    def still_good(cookies: Collection[str]) -> Collection[str]:
        try:
            with app.app_context(), connection() as conn:
                return sessions.still_good(conn, cookies)
        except psycopg.OperationalError:  # the pages say that the database does not answer
            return ()

    contents.still_good = still_good
    app.register_blueprint(blueprint)
    app.register_blueprint(static.blueprint)
    app.wsgi_app = FastPolls(app.wsgi_app, contents)  # type: ignore[method-assign,assignment]
