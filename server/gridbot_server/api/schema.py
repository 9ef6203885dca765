"""What a route takes and gives: marks on views, enforced at each request, read by `openapi`.

A view gets its JSON body as `json`, its query parameters by their names, and returns a model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce, wraps
from http import HTTPStatus
from operator import or_
from typing import Any, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

from flask import Response, jsonify, request
from pydantic import BaseModel, ValidationError

from gridbot_server.api.parameters import Parameter
from gridbot_server.errors import RequestError
from gridbot_server.models.requests import PATTERNS_IN_WORDS
from gridbot_server.models.responses import ResponseModel
from gridbot_server.settings import Settings

View = TypeVar("View", bound=Callable[..., Any])
P = ParamSpec("P")
Returned = ResponseModel | tuple[ResponseModel, HTTPStatus] | Response

JSON, JSON_LINES, BYTES = "application/json", "application/jsonl", "application/octet-stream"

_SHOWN = 5  # errors told at once


@dataclass(frozen=True, slots=True)
class Operation:
    """What one route takes and gives, beside its path and who may call it."""

    body: type[BaseModel] | None = None
    body_type: str | None = None  # None: it takes no body
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    answer: Any = None  # a model or a union of some; None: `answer_type` says all
    answer_type: str | None = JSON  # None: it answers with headers alone
    headers: Mapping[str, str] = field(default_factory=dict)  # of a success, with what they say
    statuses: Sequence[HTTPStatus] = (HTTPStatus.OK,)
    errors: Sequence[HTTPStatus] = ()  # beside those that follow from the rest


def operation(view: Callable[..., Any]) -> Operation | None:
    """Return what a route's view takes and gives; None if nothing marks it."""
    return getattr(view, "operation", None)


def call(view: Callable[..., Any], **values: Any) -> Any:
    """Call a view as pages of this server do: its model instead of JSON, for values as they are.

    Parameters that are not given have their defaults.  The caller has found out who asks
    (`http.auth`), and checked the values as the view's marks do.
    """
    marked = operation(view) or Operation()
    defaults = {name: item.default for name, item in marked.parameters.items()}
    return inspect.unwrap(view)(**{**defaults, **values})


def json_body(view: View) -> View:
    """Give the view its JSON body as the model that its parameter `json` is annotated with."""
    model: type[BaseModel] = get_type_hints(view)["json"]

    @wraps(view)
    def reading(*args: Any, **values: Any) -> Any:
        try:
            # An empty body of any kind lacks what is required.
            body = model.model_validate((_has_body() and request.get_json()) or {})
        except ValidationError as error:
            raise RequestError(plain_errors(error)) from None
        return view(*args, json=body, **values)

    return cast(View, _marked(reading, body=model, body_type=JSON))


def _has_body() -> bool:
    """Whether the request brings a body, or says that it does."""
    return bool(request.content_type or request.get_data())


def takes(media_type: str, model: type[BaseModel] | None = None) -> Callable[[View], View]:
    """Mark a view that reads the body itself; `model` is what JSON in it looks like."""
    return lambda view: _marked(view, body=model, body_type=media_type)


def query(**parameters: Parameter) -> Callable[[View], View]:
    """Give the view these parameters of the query string."""

    def mark(view: View) -> View:
        @wraps(view)
        def reading(*args: Any, **values: Any) -> Any:
            given = {name: item.value(name) for name, item in parameters.items()}
            return view(*args, **values, **given)

        return cast(View, _marked(reading, parameters=parameters))

    return mark


def answers(
    *statuses: HTTPStatus, errors: Sequence[HTTPStatus] = ()
) -> Callable[[Callable[P, Returned]], Callable[P, Response]]:
    """Answer with the model that the view returns and the first of the statuses [200].

    A view that chooses among them returns the status beside the model.  One that redirects returns
    the response.
    """
    statuses = statuses or (HTTPStatus.OK,)

    def mark(view: Callable[P, Returned]) -> Callable[P, Response]:
        hint = get_type_hints(view)["return"]
        model = get_args(hint)[0] if get_origin(hint) is tuple else _without_response(hint)

        @wraps(view)
        def answering(*args: P.args, **values: P.kwargs) -> Response:
            found = view(*args, **values)
            if isinstance(found, Response):
                return found
            body, status = found if isinstance(found, tuple) else (found, statuses[0])
            response = jsonify(body.model_dump())
            response.status_code = status
            return response

        return _marked(answering, answer=model, statuses=statuses, errors=errors)

    return mark


def _without_response(hint: Any) -> Any:
    """The models among what a view returns."""
    if Response not in get_args(hint):
        return hint
    return reduce(or_, (item for item in get_args(hint) if item is not Response))


def sends(
    media_type: str | None,
    *statuses: HTTPStatus,
    model: type[ResponseModel] | None = None,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[HTTPStatus] = (),
) -> Callable[[View], View]:
    """Mark a view that makes its response itself; `model` is what JSON, or each line, looks like.

    Without a media type, it answers with `headers` alone.
    """
    return lambda view: _marked(
        view, answer=model, answer_type=media_type, headers=headers or {},
        statuses=statuses or (HTTPStatus.OK,), errors=errors,
    )  # fmt: skip


def body_limit(limit: Callable[[Settings], int]) -> Callable[[View], View]:
    """Let a route take bodies of another size than most."""

    def mark(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]  # any function can carry a mark
        return view

    return mark


def _marked(view: View, **more: Any) -> View:
    """Add to what is known of a view; decorators that wrap it carry that along."""
    marked = replace(operation(view) or Operation(), **more)
    view.operation = marked  # type: ignore[attr-defined]  # any function can carry a mark
    return view


def plain_errors(error: ValidationError) -> str:
    """Errors of a request body in one line, such as `resources.cpus: 0 is less than 1`."""
    found = error.errors(include_url=False)
    lines = [f"{_where(item['loc'])}: {_what(cast(dict[str, Any], item))}" for item in found]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more


def _where(location: Sequence[str | int]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "body"


def _what(item: dict[str, Any]) -> str:
    value, context = item["input"], item.get("ctx", {})
    match item["type"]:
        case "missing":
            return "missing"
        case "extra_forbidden":
            return "unknown field"
        case "value_error":
            return str(context["error"])
        case "greater_than_equal":
            return f"{value} is less than {context['ge']}"
        case "less_than_equal":
            return f"{value} is greater than {context['le']}"
        case "greater_than":
            return f"{value} is not greater than {context['gt']}"
        case "string_too_long":
            return f"more than {context['max_length']} characters"
        case "too_long":
            return f"more than {context['max_length']} entries"
        case "string_too_short" | "too_short":
            return "empty"
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            words = PATTERNS_IN_WORDS.get(pattern)
            return f"{_brief(value)} does not match {pattern}{f' ({words})' if words else ''}"
        case kind if kind in _EXPECTED:
            return f"expected {_EXPECTED[kind]}, got {_brief(value)}"
        case _:
            return f"{item['msg'][:1].lower()}{item['msg'][1:]}, got {_brief(value)}"


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "an object",
    "string_type": "a string",
}


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
