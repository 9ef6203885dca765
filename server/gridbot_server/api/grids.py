"""The grids of constructors: a registry of ads that are good for a while, as Globus's MDS was."""

from __future__ import annotations

import time
from http import HTTPStatus

from flask import Blueprint

from gridbot_policies.classad import Node, ParseError, parse
from gridbot_server.api.glue2 import glue2
from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.schema import answers, json_body, query
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.matching.grids import suited
from gridbot_server.models.requests import GridOrder
from gridbot_server.models.responses.grids import (
    GlueDocument,
    Grids,
    GridState,
    ListedOrder,
    NewOrder,
    Orders,
)
from gridbot_server.storage import rows, sql

SQL = sql.load("grids.sql")

blueprint = Blueprint("grids", __name__, url_prefix="/api/v1/grids")

_MOST = 1000
_MOST_CHARACTERS = 4096
_MATCH = {
    "match": Parameter(
        "Only grids of which this expression is true, as a GridPolicy: Grid.Gpus > 0.",
        {"type": "string"},
        default="",
    )
}


@blueprint.get("")
@auth.rule("user")
@query(**_MATCH)
@answers()
def list_grids(match: str) -> Grids:
    """List grids that constructors have told of, with their ads, as long as these are good."""
    return Grids(grids=_grids(match))


@blueprint.get("/glue2")
@auth.rule("user")
@query(**_MATCH)
@answers()
def describe_grids(match: str) -> GlueDocument:
    """List the same grids as entities of OGF's GLUE 2.0."""
    return glue2(_grids(match))


@blueprint.post("/orders")
@auth.rule("operator")
@json_body
@answers(HTTPStatus.CREATED, errors=(HTTPStatus.NOT_FOUND,))
def order_grid(json: GridOrder) -> NewOrder:
    """Drain a grid, or use it again: its constructor does so in its next round."""
    with connection() as conn:
        found = rows.fetch_value(conn, int, SQL["order"], json.model_dump())
    if found is None:
        raise ObjectNotFound(f"no constructor {json.constructor} tells of a grid {json.grid}")
    return NewOrder(number=found)


@blueprint.get("/orders")
@auth.rule("operator")
@query(
    constructor=Parameter("What the tags of its submissions begin with.", {"type": "string"}),
    after=number("Only orders with a greater number.", default=0, most=2**63 - 1),
)
@answers()
def list_orders(constructor: str, after: int) -> Orders:
    """List what operators want of a constructor's grids."""
    values = {"constructor": constructor, "after": after}
    with connection() as conn:
        return Orders(orders=rows.read(conn, ListedOrder, SQL["orders"], values))


def _grids(match: str) -> list[GridState]:
    wanted = _expression(match) if match else None
    with connection() as conn:
        found = rows.read(conn, GridState, SQL["grids"], {"most": _MOST})
    if wanted is None:
        return found
    suits = suited(wanted, [item.ad for item in found], time.time())
    return [item for item, suit in zip(found, suits, strict=True) if suit]


def _expression(text: str) -> Node:
    if len(text) > _MOST_CHARACTERS:
        raise RequestError(f"match: more than {_MOST_CHARACTERS} characters")
    try:
        return parse(text)
    except ParseError as error:
        raise RequestError(f"match: {error}") from None
