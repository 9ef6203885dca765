"""`GET /api/v1/openapi.json`: the API's description, made from what marks the views.

Which errors an operation may answer with follows from what it takes, by the table `_ERRORS_IF`;
what a view refuses for reasons of its own, it names.  BOINC's routes are described elsewhere: by
BOINC's protocol.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from flask import Blueprint, Flask, Response, current_app, jsonify
from pydantic import TypeAdapter
from werkzeug.routing import Rule

from gridbot_client.protocol.messages import MAX_BIGINT
from gridbot_server.api.schema import JSON, JSON_LINES, Operation, operation, sends
from gridbot_server.http import auth
from gridbot_server.models.responses.errors import ErrorAnswer

blueprint = Blueprint("openapi", __name__)

Document = dict[str, Any]

_PREFIX = "/api/v1"
_SCHEMAS = "#/components/schemas/"
_ARGUMENT = re.compile(r"<(?:(\w+):)?(\w+)>")

# The first part of a path behind the prefix names the resource.
_TAGS = {
    "account": "What one prefers for one's own machines.",
    "audit": "Who changed what.",
    "blobs": "Input files of BOTs: resumable uploads, by SHA-256.",
    "boinc": "The key that signs for BOINC clients.",
    "bots": "Bags of tasks: submission, state, results.",
    "checkpoints": "What programs saved, to go on with: sent and fetched by clients.",
    "clients": "Execution clients: a machine joins, describes itself, leaves.",
    "console": "The pages for people: links that log a browser in.",
    "data": "Where files come from, and what is not to be reused.",
    "files": "Content by its SHA-256.",
    "health": "Whether the server works.",
    "history": "What happened on the server over time.",
    "hosts": "Machines that run or ran jobs.",
    "grids": "Clusters that the overlay submits pilots to.",
    "groups": "Labels over BOTs: their results as one stream, cancelling them, their share.",
    "invitations": "Keys for some machines, which join with them for a while.",
    "metrics": "What Prometheus reads.",
    "news": "What the project tells all volunteers.",
    "openapi.json": "This document.",
    "overlay": "What the overlay's constructor asks and tells.",
    "owners": "People who may submit.",
    "signing": "Keys that sign BOTs: a person's own, and the project's.",
    "rpc": "Requests for work of execution clients.",
    "storages": "Buckets of owners, to which outputs of their BOTs go.",
    "teams": "Teams of volunteers.",
    "tokens": "Keys.",
    "uploads": "Outputs of replicas: resumable uploads.",
    "workflows": "Runs of DAGs and flows, as they tell how they are.",
    "volunteer": "One's own credit, team and consent.",
}

_SECURITY: Mapping[str, list[Mapping[str, list[str]]]] = {
    "public": [],
    "engine": [{"client": []}],
    "client": [{"client": []}],
    "content": [{"client": []}, {"key": []}],
    "joining": [{"key": ["pilot"]}],
    "join": [{"key": ["join"]}],
    "account": [{"key": ["account"]}],
    "user": [{"key": ["user"]}],
    "operator": [{"key": ["operator"]}],
    "metrics": [{"key": ["metrics"]}],
}
_SCHEMES = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key. Its scope is one of pilot, join, account, user and operator, and"
        " each may do what those before it may; or metrics, which operator may, too.",
    },
    "client": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token that a client was given when it joined.",
    },
}


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    rule: Rule
    method: str
    auth_rule: str
    view: Callable[..., Any]
    operation: Operation

    @property
    def path(self) -> str:
        """The path as OpenAPI writes it."""
        return path_template(self.rule.rule)

    @property
    def tag(self) -> str:
        """The resource."""
        return self.path.removeprefix(_PREFIX).split("/")[1]


_Applies = Callable[[Route], bool]

_ERRORS_IF: tuple[tuple[_Applies, tuple[HTTPStatus, ...]], ...] = (
    (lambda _: True, (HTTPStatus.INTERNAL_SERVER_ERROR,)),
    (
        lambda route: route.auth_rule != "public",
        (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE),
    ),
    (lambda route: bool(route.rule.arguments), (HTTPStatus.NOT_FOUND,)),
    (lambda route: bool(route.operation.parameters), (HTTPStatus.BAD_REQUEST,)),
    # Also what it does not take may be sent, and end early.
    (
        lambda route: route.method.lower() not in ("get", "head"),
        (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    ),
    (
        lambda route: route.operation.body_type is not None,
        (
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.LENGTH_REQUIRED,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
    ),
    (
        lambda route: route.operation.body_type == JSON,
        (HTTPStatus.UNSUPPORTED_MEDIA_TYPE,),
    ),
)

_ERRORS = {
    HTTPStatus.BAD_REQUEST: "The request is wrong and will stay wrong.",
    HTTPStatus.UNAUTHORIZED: "The key or token is missing, unknown, expired or revoked.",
    HTTPStatus.FORBIDDEN: "The key's scope or quota does not suffice, or the host is banned.",
    HTTPStatus.NOT_FOUND: "There is no such thing, or it belongs to another owner.",
    HTTPStatus.REQUEST_TIMEOUT: "The body came too slowly.",
    HTTPStatus.CONFLICT: "The thing is not in a state that allows this.",
    HTTPStatus.GONE: "What this belongs to was cancelled or deleted.",
    HTTPStatus.LENGTH_REQUIRED: "The body came without Content-Length.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body, or what it describes, is above its limit.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not of the type application/json.",
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: "The content has no such range.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The upload hashes to something else and was discarded.",
    HTTPStatus.UPGRADE_REQUIRED: "The client is too old to check what would run.",
    HTTPStatus.TOO_MANY_REQUESTS: "This client asks too often.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "A defect of the server; its log has the details.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The server cannot do this now.",
}
_RETRY_AFTER = {
    "description": "Seconds to wait before the request is repeated.",
    "schema": {"type": "integer", "minimum": 0},
}
_ERROR_HEADERS = {
    HTTPStatus.UNAUTHORIZED: {
        "WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}
    },
    HTTPStatus.REQUEST_TIMEOUT: {"Retry-After": _RETRY_AFTER},
    HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": _RETRY_AFTER},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": _RETRY_AFTER},
}


@blueprint.get(f"{_PREFIX}/openapi.json")
@auth.rule("public")
@sends(JSON)
def describe_api() -> Response:
    """Describe the API: this document, in OpenAPI 3.1."""
    return jsonify(description(current_app._get_current_object()))  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def description(app: Flask) -> Document:
    """Return the description of an application's API."""
    routes = sorted(_routes(app), key=lambda route: (route.path, route.method))
    named = _Schemas(routes)
    paths: Document = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GridBot",
            "version": version("gridbot"),
            "description": "Bags of tasks on volunteers' machines and clusters. Answers may gain"
            " fields: pass over those that you do not know.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": tag, "description": _TAGS[tag]} for tag in sorted({r.tag for r in routes})
        ],
        "paths": paths,
        "components": {
            "schemas": named.definitions,
            "responses": {status.name: _error(status, named) for status in _ERRORS},
            "securitySchemes": _SCHEMES,
        },
    }


def path_template(rule: str) -> str:
    """Return a path of Flask's as OpenAPI writes it."""
    return _ARGUMENT.sub(r"{\2}", rule)


def _routes(app: Flask) -> Iterator[Route]:
    for rule in app.url_map.iter_rules():
        view: Any = app.view_functions[rule.endpoint]  # functions carry marks
        if (marked := operation(view)) is None:
            continue
        methods = (rule.methods or set()) - {"OPTIONS"}
        for method in methods - {"HEAD"} if "GET" in methods else methods:
            yield Route(rule, method, view.auth_rule, view, marked)


class _Schemas:
    """The models of all routes, each under one name."""

    def __init__(self, routes: list[Route]) -> None:
        bodies = dict.fromkeys(route.operation.body for route in routes)
        answers = dict.fromkeys([ErrorAnswer, *(route.operation.answer for route in routes)])
        references, found = TypeAdapter.json_schemas(
            [
                *((body, "validation", TypeAdapter[Any](body)) for body in bodies if body),
                *((item, "serialization", TypeAdapter[Any](item)) for item in answers if item),
            ],
            ref_template=_SCHEMAS + "{model}",
        )
        self._references = {model: schema for (model, _), schema in references.items()}
        self.definitions = found["$defs"]

    def __getitem__(self, model: Any) -> Document:
        return self._references[model]


def _operation(route: Route, named: _Schemas) -> Document:
    summary, _, more = (inspect.getdoc(route.view) or "").partition("\n\n")
    described = {
        "operationId": route.view.__name__,
        "summary": summary,
        "description": more,
        "tags": [route.tag],
        "security": _SECURITY[route.auth_rule],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "requestBody": _body(route.operation, named),
        "responses": _responses(route, named),
    }
    return {name: value for name, value in described.items() if value or name == "security"}


def _path_parameters(route: Route) -> Iterator[Document]:
    for converter, name in _ARGUMENT.findall(route.rule.rule):
        number = {"type": "integer", "minimum": 0, "maximum": MAX_BIGINT}
        schema = number if converter == "int" else {"type": "string"}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(route: Route) -> Iterator[Document]:
    for name, item in route.operation.parameters.items():
        default = {} if item.default is None else {"default": item.default}
        yield {
            "name": name,
            "in": "query",
            "required": item.required,
            "description": item.text,
            "schema": {**item.schema, **default},
        }


def _body(what: Operation, named: _Schemas) -> Document | None:
    if what.body_type is None:
        return None
    schema = named[what.body] if what.body else {"type": "string", "format": "binary"}
    return {"required": True, "content": {what.body_type: {"schema": schema}}}


_WITHOUT_BODY = (HTTPStatus.NOT_MODIFIED, HTTPStatus.TEMPORARY_REDIRECT)


def _responses(route: Route, named: _Schemas) -> Document:
    what = route.operation
    errors = {status for applies, group in _ERRORS_IF if applies(route) for status in group}
    success = {str(status.value): _success(what, status, named) for status in what.statuses}
    return success | {
        str(status.value): {"$ref": f"#/components/responses/{status.name}"}
        for status in sorted(errors.union(what.errors))
    }


def _success(what: Operation, status: HTTPStatus, named: _Schemas) -> Document:
    headers = {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in what.headers.items()
    }
    answer: Document = {"description": status.phrase}
    if headers:
        answer["headers"] = headers
    if what.answer_type and status not in _WITHOUT_BODY:
        answer["content"] = {what.answer_type: {"schema": _content(what, named)}}
    return answer


def _content(what: Operation, named: _Schemas) -> Document:
    if what.answer_type == JSON:
        return named[what.answer] if what.answer else {"type": "object"}
    if what.answer_type == JSON_LINES:
        lines = {"type": "array", "items": named[what.answer]}
        return {"type": "string", "contentMediaType": JSON_LINES, "contentSchema": lines}
    is_text = (what.answer_type or "").startswith("text/")
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


def _error(status: HTTPStatus, named: _Schemas) -> Document:
    described = {
        "description": _ERRORS[status],
        "headers": _ERROR_HEADERS.get(status),
        "content": {JSON: {"schema": named[ErrorAnswer]}},
    }
    return {name: value for name, value in described.items() if value}
