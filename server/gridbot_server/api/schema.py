"""Checks JSON bodies against their models and describes them as OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from flask import Request
from pydantic import ValidationError
from spectree import SpecTree

from gridbot_server.errors import RequestError
from gridbot_server.settings import Settings

View = TypeVar("View", bound=Callable[..., Any])

_SHOWN = 5  # errors told at once


def json_body(view: View) -> View:
    """Give the view its JSON body as the model that its parameter `json` is annotated with."""
    return cast(View, spec.validate(before=_refuse)(view))


def body_limit(limit: Callable[[Settings], int]) -> Callable[[View], View]:
    """Let a route take bodies of another size than most."""

    def mark(view: View) -> View:
        view.body_limit = limit  # type: ignore[attr-defined]  # any function can carry a mark
        return view

    return mark


def plain_errors(error: ValidationError) -> str:
    """Errors of a request body in one line, such as `resources.cpus: 0 is less than 1`."""
    found = error.errors(include_url=False)
    lines = [f"{_where(item['loc'])}: {_what(cast(dict[str, Any], item))}" for item in found]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more


def _refuse(request: Request, _response: Any, error: Exception | None, *_: Any) -> None:
    request.get_json()  # spectree would take a body of another type for an empty one
    if isinstance(error, ValidationError):
        raise RequestError(plain_errors(error))


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
            return f"{_brief(value)} does not match {context['pattern']}"
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


spec = SpecTree("flask", title="GridBot", version="1", validation_error_status=400)
