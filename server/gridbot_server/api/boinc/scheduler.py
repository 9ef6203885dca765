"""What stock clients ask by themselves: project, scheduler requests, downloads and uploads."""

from __future__ import annotations

import logging

import psycopg
from flask import Blueprint, Response, current_app, request

from gridbot_server.api import news as api_news
from gridbot_server.api.boinc.session import (
    attachable,
    known_project,
    scheduler_session,
    terms_of_use,
    xml,
)
from gridbot_server.api.content import send_content
from gridbot_server.api.rpc import gate_of
from gridbot_server.boinc.protocol import pages, peek, reply
from gridbot_server.boinc.protocol.feed import FeedItem, feed
from gridbot_server.boinc.protocol.names import boinc_platform
from gridbot_server.boinc.protocol.pages import ProjectConfig
from gridbot_server.boinc.protocol.reply import Message, SchedulerReply
from gridbot_server.boinc.protocol.request import MAX_REQUEST_BYTES
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import project
from gridbot_server.boinc.session.hosts import find_account
from gridbot_server.boinc.session.intake import Intake
from gridbot_server.boinc.session.session import DOWN_SECONDS, SchedulerSession
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current
from gridbot_server.matching.stock_platforms import SHELL_PLATFORMS, WRAPPED_WINDOWS
from gridbot_server.models.responses.news import NewsItem
from gridbot_server.overload.transfer_slots import Party

log = logging.getLogger(__name__)

blueprint = Blueprint("boinc", __name__, url_prefix=project.PATH)


@blueprint.get("/")
@auth.rule("public")
def master_page() -> Response:
    """The page that people attach their client to; it must not depend on the database.

    A client that failed to get it three times stays away for a day.
    """
    settings = current().settings
    with attachable():
        text = pages.master_page(settings.project_name, project.scheduler_url(settings))
    return Response(text, mimetype="text/html")


@blueprint.get("/get_project_config.php")
@auth.rule("public")
def config() -> Response:
    """What BOINC's manager asks before it attaches."""
    settings = current().settings
    platforms = [boinc_platform(name) for name in (*SHELL_PLATFORMS, WRAPPED_WINDOWS)]
    with attachable():
        found = ProjectConfig(
            settings.project_name,
            project.master_url(settings),
            platforms,
            has_account_creation=settings.boinc_accounts,
            least_version=settings.least_client_version,
            terms=terms_of_use(),
        )
    return xml(pages.project_config(found))


@blueprint.get(f"/{project.NEWS}")
@auth.rule("public")
def news() -> Response:
    """The project's news as RSS, for clients and everybody else."""
    settings = current().settings
    with attachable():
        url = project.master_url(settings)
    items = [
        FeedItem(_guid(url, item), item.title, item.text, item.posted_at)
        for item in api_news.latest()
    ]
    page = f"{settings.url}/project" if settings.public_page else url
    return Response(feed(settings.project_name, page, items), mimetype="application/rss+xml")


def _guid(url: str, item: NewsItem) -> str:
    """What no other item has, also one to which a restored database gives the same number."""
    return f"{url}news/{item.id}-{int(item.posted_at.timestamp())}"


@blueprint.post("/scheduler")
@auth.rule("boinc")
def scheduler() -> Response:
    """Serve a scheduler request; whatever goes wrong is said in a reply.

    Most requests are short, and never come here: the web process hands them to the session itself.
    """
    title = current().settings.project_name
    try:
        return xml(_serve(scheduler_session()))
    except BoincError as error:
        return xml(reply.render(SchedulerReply(title, messages=(Message(str(error)),))))
    except psycopg.OperationalError as error:
        log.warning("database: %r", str(error))
        away = "the database does not answer"
        return xml(reply.render(reply.project_is_down(title, away, DOWN_SECONDS)))


@blueprint.get("/download/<name>")
@auth.rule("boinc")
def download(name: str) -> Response:
    """Send a file to whoever knows its name, which only this server can make."""
    sha256 = known_project().names.read_file(name)
    if sha256 is None:
        raise ObjectNotFound(f"there is no file {name[:100]!r}")
    return send_content(sha256, Party(owner=source()))


@blueprint.post("/file_upload_handler")
@auth.rule("boinc")
def file_upload_handler() -> Response:
    """Tell how much of a file is here, or take the rest of it."""
    services, length = current(), request.content_length or 0
    # As for native clients: bounded by the file's own size, which its certificate vouches for.
    request.max_content_length = length + 1
    intake = Intake(known_project(), services.store, connection, services.uploads)
    return xml(intake.answer(request.stream.read, length))


def _serve(session: SchedulerSession) -> str:
    length = request.content_length or 0
    if length > MAX_REQUEST_BYTES:
        raise BoincError(f"the request has {length} bytes, at most {MAX_REQUEST_BYTES}")
    request.max_content_length = length + 1
    body = request.stream.read(peek.UNCHECKED_BYTES)
    refusal = gate_of(current_app).refusal(peek.client_of(body), peek.brings_results(body))
    if refusal is not None:
        return session.refusal(refusal.detail, refusal.seconds)
    if length > len(body):
        if not _is_known(body):
            return reply.render(reply.bad_key(session.project.title))
        body += request.stream.read()
    return session.answer(body)


def _is_known(head: bytes) -> bool:
    with connection() as conn:
        return find_account(conn, peek.authenticator(head)) is not None
