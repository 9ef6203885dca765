"""Where stock BOINC clients attach, report, ask for work, and fetch and leave files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import psycopg
from flask import Blueprint, Response, current_app, request

from gridbot_server.api.content import send_content
from gridbot_server.api.rpc import door_of
from gridbot_server.boinc.protocol import pages, reply
from gridbot_server.boinc.protocol.names import boinc_platform
from gridbot_server.boinc.protocol.pages import AccountError, ProjectConfig
from gridbot_server.boinc.protocol.reply import Message, SchedulerReply
from gridbot_server.boinc.protocol.request import MAX_REQUEST_BYTES
from gridbot_server.boinc.protocol.tags import BoincError
from gridbot_server.boinc.session import accounts, project
from gridbot_server.boinc.session.accounts import Credentials
from gridbot_server.boinc.session.hosts import find_account
from gridbot_server.boinc.session.intake import Intake
from gridbot_server.boinc.session.project import Project
from gridbot_server.boinc.session.session import DOWN_SECONDS, UNCHECKED_BYTES, Desk, authenticator
from gridbot_server.errors import NotFound
from gridbot_server.http import auth
from gridbot_server.http.addresses import source
from gridbot_server.http.services import connection, current
from gridbot_server.matching.stock_platforms import SHELL_PLATFORMS
from gridbot_server.overload.login_limits import TooManyAttempts
from gridbot_server.overload.transfer_slots import Party
from gridbot_server.storage.db import Connection
from gridbot_server.web import refusals
from gridbot_server.web.gate import boinc_client, brings_results

log = logging.getLogger(__name__)

Find = Callable[[Connection, bytes, Credentials], str | AccountError]

blueprint = Blueprint("boinc", __name__, url_prefix=project.PATH)

DESK = "gridbot_boinc"  # of the application, once a client has come
_making_desk = threading.Lock()


@blueprint.get("/")
@auth.rule("public")
def master_page() -> Response:
    """The page that people attach their client to; it must not depend on the database.

    A client that failed to get it three times stays away for a day.
    """
    settings = current().settings
    with _attachable():
        text = pages.master_page(settings.project_name, project.scheduler_url(settings))
    return Response(text, mimetype="text/html")


@blueprint.get("/get_project_config.php")
@auth.rule("public")
def config() -> Response:
    """What BOINC's manager asks before it attaches."""
    settings = current().settings
    platforms = [boinc_platform(name) for name in SHELL_PLATFORMS]
    with _attachable():
        found = ProjectConfig(
            settings.project_name,
            project.master_url(settings),
            platforms,
            has_account_creation=settings.boinc_accounts,
        )
    return _xml(pages.project_config(found))


@blueprint.get("/create_account.php")
@auth.rule("public")
def create_account() -> Response:
    """Make a volunteer's account, where operators let anybody do that."""
    if not current().settings.boinc_accounts:
        return _xml(pages.no_account(AccountError.CREATION_DISABLED))
    name = request.args.get("user_name", "")

    def create(conn: Connection, secret: bytes, given: Credentials) -> str | AccountError:
        return accounts.create(conn, secret, given, name)

    return _account(create, is_creation=True)


@blueprint.get("/lookup_account.php")
@auth.rule("public")
def lookup_account() -> Response:
    """Tell the key of an account to whoever knows its password."""
    return _account(accounts.look_up)


@blueprint.post("/scheduler")
@auth.rule("boinc")
def scheduler() -> Response:
    """Serve a scheduler request; whatever goes wrong is said in a reply.

    Most requests are short, and never come here: the web process hands them to the desk itself.
    """
    title = current().settings.project_name
    try:
        return _xml(_serve(_desk()))
    except BoincError as error:
        return _xml(reply.render(SchedulerReply(title, messages=(Message(str(error)),))))
    except psycopg.OperationalError as error:
        log.warning("database: %r", str(error))
        away = "the database does not answer"
        return _xml(reply.render(reply.project_is_down(title, away, DOWN_SECONDS)))


@blueprint.get("/download/<name>")
@auth.rule("boinc")
def download(name: str) -> Response:
    """Send a file to whoever knows its name, which only this server can make."""
    sha256 = _project().names.read_file(name)
    if sha256 is None:
        raise NotFound(f"there is no file {name[:100]!r}")
    return send_content(sha256, Party(owner=source()))


@blueprint.post("/file_upload_handler")
@auth.rule("boinc")
def file_upload_handler() -> Response:
    """Tell how much of a file is here, or take the rest of it."""
    services, length = current(), request.content_length or 0
    # As for native clients: bounded by the file's own size, which its certificate vouches for.
    request.max_content_length = length + 1
    intake = Intake(_project(), services.store, connection, services.uploads)
    return _xml(intake.answer(request.stream.read, length))


def _account(find: Find, is_creation: bool = False) -> Response:
    given = Credentials(request.args.get("email_addr", ""), request.args.get("passwd_hash", ""))
    found = given.fault() or account_key(given, find, is_creation)
    if isinstance(found, AccountError):
        return _xml(pages.no_account(found))
    return _xml(pages.account(found))


def account_key(
    given: Credentials, find: Find = accounts.look_up, is_creation: bool = False
) -> str | AccountError:
    """Try the password unless too many were wrong; nothing is looked up without a database."""

    def look() -> str | AccountError:
        secret = _project().names.secret
        with connection() as conn:
            return find(conn, secret, given)

    try:
        return current().login_limits.attempt(source(), given.email, look, is_creation)
    except TooManyAttempts:
        return AccountError.PROJECT_DOWN
    except psycopg.OperationalError as error:
        log.warning("database: %r", str(error))
        return AccountError.PROJECT_DOWN


def _serve(desk: Desk) -> str:
    length = request.content_length or 0
    if length > MAX_REQUEST_BYTES:
        raise BoincError(f"the request has {length} bytes, at most {MAX_REQUEST_BYTES}")
    request.max_content_length = length + 1
    body = request.stream.read(UNCHECKED_BYTES)
    refusal = door_of(current_app).refusal(boinc_client(body), brings_results(body))
    if refusal is not None:
        return refusals.in_reply(refusal, desk.project.title)
    if length > len(body):
        if not _is_known(body):
            return reply.render(reply.bad_key(desk.project.title))
        body += request.stream.read()
    return desk.answer(body)


def _is_known(head: bytes) -> bool:
    with connection() as conn:
        return find_account(conn, authenticator(head)) is not None


def _project() -> Project:
    """The project as it was when a client asked for work last."""
    return _desk().project


def _desk() -> Desk:
    """This process's desk, made at the first request and again after the services closed."""
    extensions, services = current_app.extensions, current()
    with _making_desk:
        if DESK not in extensions:
            with _attachable(), connection() as conn:
                loaded = project.load(conn, services.settings)
            extensions[DESK] = desk = Desk(
                loaded,
                lambda: services.pool.connection(),
                lambda token, work, tell: services.engine.take(token, work, tell),
                services.login_limits.attachments,
            )
            services.before_close.append(lambda: extensions.pop(DESK, desk).close())
        return cast(Desk, extensions[DESK])


@contextmanager
def _attachable() -> Iterator[None]:
    """Answer NotFound where this server has an URL that no client attaches to."""
    try:
        yield
    except BoincError as error:
        raise NotFound(str(error)) from None


def _xml(text: str) -> Response:
    return Response(text, mimetype="text/xml")
