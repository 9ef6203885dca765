"""Holds responses against the API's description: their status, media type and body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import Flask
from openapi_schema_validator import OAS31Validator
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException
from werkzeug.wsgi import ClosingIterator

from gridbot_server.api.openapi import description, path_template
from gridbot_server.api.schema import JSON, JSON_LINES
from gridbot_server.settings import Settings
from gridbot_server.web.app import create_app

Wsgi = Callable[[Flask, dict[str, Any], Any], Iterable[bytes]]

WITHOUT_BODY = (HTTPStatus.NOT_MODIFIED, HTTPStatus.TEMPORARY_REDIRECT)


class Description:
    """The description of an API; answers have no fields but those that it names."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._paths = document["paths"]
        self._components = deepcopy(document["components"])
        for schema in self._components["schemas"].values():
            schema.setdefault("additionalProperties", False)

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        """What a method of a path gives; None if that is not described."""
        found: dict[str, Any] | None = self._paths.get(path, {}).get(method.lower())
        return found

    def faults(
        self, operation: dict[str, Any], status: int, media_type: str, body: bytes | None
    ) -> Iterator[str]:
        """Yield what is not as described; `body` is None where only the head is known."""
        answer = operation["responses"].get(str(status))
        if answer is None:
            yield f"{status} is not described"
            return
        content = self._resolved(answer).get("content", {})
        has_body = body != b"" and status not in WITHOUT_BODY
        if has_body and media_type not in content:
            yield f"{status} with {media_type or 'no type'}, described are {', '.join(content)}"
        elif has_body and body is not None:
            yield from self._body_faults(media_type, content[media_type]["schema"], body)

    def _body_faults(self, media_type: str, schema: dict[str, Any], body: bytes) -> Iterator[str]:
        if media_type == JSON:
            yield from self._document_faults(schema, json.loads(body))
        elif media_type == JSON_LINES:
            for line in body.splitlines():
                yield from self._document_faults(schema["contentSchema"]["items"], json.loads(line))

    def _document_faults(self, schema: dict[str, Any], document: object) -> Iterator[str]:
        validator = OAS31Validator({**schema, "components": self._components})
        for error in validator.iter_errors(document):
            yield f"{error.json_path}: {error.message}"

    def _resolved(self, answer: dict[str, Any]) -> dict[str, Any]:
        reference = answer.get("$ref", "").rpartition("/")[2]
        found: dict[str, Any] = self._components["responses"].get(reference, answer)
        return found


def watching(wsgi_app: Wsgi, faults: list[str]) -> Wsgi:
    """Let an application's `wsgi_app` note in `faults` what is not as described."""

    def watched(app: Flask, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        operation = _operation(app, environ)
        if operation is None:
            return wsgi_app(app, environ, start_response)
        head: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            head[:] = int(status[:3]), Headers(headers).get("Content-Type", "").partition(";")[0]
            return start_response(status, headers, *rest)

        def check(body: bytes | None) -> None:
            found = _description().faults(operation, head[0], head[1], body)
            request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
            faults.extend(f"{request}: {fault}" for fault in found)

        body: Any = wsgi_app(app, environ, start)
        if head[1] == JSON:  # also of answers of which a test reads the head alone
            body = ClosingIterator([*_read(body, check)], [body.close])
        elif head[1] == JSON_LINES:
            body = ClosingIterator(_read(body, check), [body.close])
        else:
            check(b"" if environ["REQUEST_METHOD"] == "HEAD" else None)
        return body  # type: ignore[no-any-return]

    return watched


def _read(body: Iterable[bytes], check: Callable[[bytes], None]) -> Iterator[bytes]:
    """Pass a body on; check it when it has been sent to its end."""
    pieces = []
    for piece in body:
        pieces.append(piece)
        yield piece
    check(b"".join(pieces))


def _operation(app: Flask, environ: dict[str, Any]) -> dict[str, Any] | None:
    try:
        rule, _ = app.url_map.bind_to_environ(environ).match(return_rule=True)
    except HTTPException:
        return None
    return _description().operation(environ["REQUEST_METHOD"], path_template(rule.rule))


@cache
def _description() -> Description:
    """The routes of all applications are the same, whatever their settings."""
    return Description(description(create_app(Settings(data=Path("unused")))))
