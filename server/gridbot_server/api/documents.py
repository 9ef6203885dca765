"""The description of the API, as OpenAPI."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from flask import Blueprint, current_app

from gridbot_server.api.schema import spec
from gridbot_server.http import auth

blueprint = Blueprint("documents", __name__)


@blueprint.get("/api/v1/openapi.json")
@auth.rule("public")
def openapi() -> dict[str, Any]:
    """Describe the API."""
    return _description()


@lru_cache(maxsize=1)
def _description() -> dict[str, Any]:
    spec.app = current_app
    return spec.spec  # type: ignore[no-any-return]  # spectree leaves it untyped
