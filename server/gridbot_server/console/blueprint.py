"""Where the console's pages are registered, and how one is made of its content."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from http import HTTPStatus
from importlib import metadata
from typing import Any, TypeVar, cast

from flask import Blueprint, Response, current_app, g, redirect, render_template, request
from markupsafe import Markup
from pydantic import BaseModel, ValidationError
from werkzeug.wrappers import Response as BaseResponse

from gridbot_server.api.schema import plain_errors
from gridbot_server.console import figures, graph, words
from gridbot_server.console.shared import POLL_SECONDS, SECONDS, SharedContents
from gridbot_server.console.static import address
from gridbot_server.errors import RequestError
from gridbot_server.http import auth, sessions
from gridbot_server.http.services import current

# Scripts, styles and pictures of this server alone, none of them written into a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
FORM_BYTES = 256 * 1024
_VERSION = metadata.version("gridbot")  # it is parsed out of a file
# Pages that every page leads to: addresses, names, and the scopes of those who see them.
_EVERYBODY, _SCIENTISTS, _OPERATORS = (
    ("join", "account", "user", "operator"),
    ("user", "operator"),
    ("operator",),
)
_PAGES = (
    ("/", "BOTs", _SCIENTISTS),
    ("/machines", "My machines", _EVERYBODY),
    ("/notices", "Notices", _SCIENTISTS),
    ("/operations", "Operations", _OPERATORS),
    ("/overlay", "Overlay", _OPERATORS),
)

T = TypeVar("T")
View = Callable[..., Mapping[str, Any]]
Action = Callable[..., str]

blueprint = Blueprint("console", __name__, template_folder="templates")
for _name, _filter in words.FILTERS.items():
    blueprint.add_app_template_filter(_filter, _name)
blueprint.add_app_template_filter(figures.parts, "parts")
blueprint.add_app_template_filter(graph.node_parts, "node_parts")
blueprint.add_app_template_global(address, "static")


def contents() -> SharedContents:
    """Return what this process has computed for live pages."""
    return cast(SharedContents, current_app.extensions["gridbot_console"])


def shared(key: tuple[str, Hashable], seconds: float, make: Callable[[], T]) -> T:
    """Return what pages show that takes long to find out: it may be so many seconds old."""
    return contents().value(key, seconds, make)


def viewer() -> Hashable:
    """Return whose things this session sees: an operator everybody's, and others their own."""
    key = auth.key()
    return ("operator",) if key.is_operator else (key.scope, key.owner)


def own() -> Hashable:
    """Return whose things a page shows that shows one's own, to operators as well."""
    key = auth.key()
    return key.scope, key.owner, key.may_change_account


def live(
    template: str, seconds: float = SECONDS, whose: Callable[[], Hashable] = viewer
) -> Callable[[View], Callable[..., Response]]:
    """Make a page that keeps itself up to date of a view that returns what its template shows.

    The view is run once in `seconds` for all who see the same; what it shows must follow from the
    path and from `whose` things it shows.
    """

    def mark(view: View) -> Callable[..., Response]:
        @wraps(view)
        def show(**values: Any) -> Response:
            kept = contents()

            def make() -> tuple[str, bytes]:
                shown = view(**values)
                html = render_template(template, form_token=kept.placeholder, **shown)
                return shown["title"], html.encode()

            content = kept.get(request.path, whose(), seconds, make)
            kept.remember(sessions.cookie(), (viewer(), own()))
            token = sessions.form_token(sessions.cookie())
            filled = kept.filled(content, token.encode())
            if request.query_string == b"live":
                return _fragment(filled, content.etag)
            return _whole(filled.decode(), content.title, content.etag, token)

        return show

    return mark


def page(template: str, shown: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Make a page that stays as it is."""
    secret = sessions.cookie() or visitor()
    token = sessions.form_token(secret)
    html = render_template(template, form_token=token, **shown)
    response = _whole(html, shown["title"], None, token)
    response.status_code = status
    if not sessions.cookie():
        sessions.set_cookie(response, secret, sessions.VISITOR)
    return response


def visitor() -> str:
    """Return the secret of a browser that is not logged in."""
    if "visitor" not in g:
        g.visitor = sessions.cookie(sessions.VISITOR) or secrets.token_urlsafe(16)
    return cast(str, g.visitor)


def model(kind: type[BaseModel], values: Mapping[str, Any]) -> Any:
    """Return a body of the API, made of what a form says.  Raises RequestError."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestError(plain_errors(error)) from None


def action(view: Action) -> Callable[..., BaseResponse]:
    """Make a route of a view that changes something and returns where the browser goes then."""

    @wraps(view)
    def act(**values: Any) -> BaseResponse:
        place = view(**values)
        contents().expire()
        return redirect(place, HTTPStatus.SEE_OTHER)

    act.body_limit = lambda _: FORM_BYTES  # type: ignore[attr-defined]  # see `schema.body_limit`
    return act


def _fragment(html: bytes, etag: str) -> Response:
    if request.headers.get("If-None-Match") == etag:
        return Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
    return Response(html, mimetype="text/html", headers={"ETag": etag})


def _whole(content: str, title: str, etag: str | None, token: str) -> Response:
    html = render_template(
        "layout.html",
        content=Markup(content),  # noqa: S704  rendered
        title=title,
        etag=etag,
        form_token=token,
        poll_seconds=POLL_SECONDS,
        who=g.get("key"),
        project=current().settings.project_name,
        is_public=current().settings.public_page,
        has_openid=current().settings.oidc_issuer is not None,
        path=request.path,
        pages=_PAGES,
        version=_VERSION,
    )
    return Response(html, mimetype="text/html")


@blueprint.after_request
def _guard(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers["Referrer-Policy"] = "same-origin"
    return response
