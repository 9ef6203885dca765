"""The statistics files that BOINC's statistics sites read, and a page that lists them."""

from __future__ import annotations

from flask import Blueprint, Response, send_file

from gridbot_server.boinc.protocol import pages
from gridbot_server.boinc.session import project
from gridbot_server.credit.export import FILES
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import current
from gridbot_server.http.slow_readers import bounded
from gridbot_server.overload.transfer_slots import Party

blueprint = Blueprint("boinc_statistics", __name__, url_prefix=f"{project.PATH}/stats")


@blueprint.get("/")
@auth.rule("public")
def statistics() -> Response:
    """List the statistics files, for people."""
    return Response(pages.statistics(current().settings.project_name, FILES), mimetype="text/html")


@blueprint.get("/<name>")
@auth.rule("public")
def statistics_file(name: str) -> Response:
    """Send one of the files."""
    path = current().settings.statistics / name
    if name not in FILES or not path.exists():
        raise ObjectNotFound(f"there are no statistics {name[:100]!r}")
    # A type of its own, or a client would be told to unpack the file on its way.
    file = send_file(path, mimetype=FILES[name], conditional=True, max_age=3600)
    return bounded(file, Party(owner=source()))
