"""The JSON documents that the API answers with, as models: each field with its unit.

Names are a contract: clients out there read them.  A field may be added, none may go.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, WithJsonSchema

_SCALAR = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}

# Attributes of a ClassAd: constants by name.  They were checked when a host said them.
Ad = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": _SCALAR})]


def _may_grow(schema: dict[str, Any]) -> None:
    """Leave a schema open: what reads an answer must pass over fields that it does not know."""
    schema.pop("additionalProperties")


class ResponseModel(BaseModel):
    """Base of all answers: made by views, or from rows whose columns are named as the fields."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, json_schema_extra=_may_grow
    )
