"""Grids, as their constructors told them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import WithJsonSchema

from gridbot_server.models.responses import Ad, ResponseModel

# An entity's attributes by name: texts, numbers, lists of texts; Associations is an object of them.
GlueEntity = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": True})
]


class GridState(ResponseModel):
    """A grid of one constructor."""

    name: str
    constructor: str
    """What the tags of its submissions begin with."""

    ad: Ad
    """What a GridPolicy sees as Grid, but for Grid.LastHost."""

    told_at: datetime
    good_seconds: int
    """How long after `told_at` it is listed."""


class Grids(ResponseModel):
    """`GET /grids`: by name."""

    grids: list[GridState]


class GlueDocument(ResponseModel):
    """`GET /grids/glue2`: attributes as in OGF's GFD.147, with times in s and memory in MB."""

    ComputingService: list[GlueEntity]
    ComputingManager: list[GlueEntity]
    ComputingShare: list[GlueEntity]


class ToldGrids(ResponseModel):
    """`POST /overlay/grids`."""

    grids: int
    """How many were told of."""


class ListedOrder(ResponseModel):
    """What an operator wants of a grid."""

    number: int
    """A later order has a greater one."""

    grid: str
    drained: str
    """`""`: it is used; `finish`: it gets no more pilots; `now`: and those that run are ended."""


class Orders(ResponseModel):
    """`GET /grids/orders`: the earliest first."""

    orders: list[ListedOrder]


class NewOrder(ResponseModel):
    """`POST /grids/orders`."""

    number: int
