"""Overlay: pilots by grid, what they did, why none is submitted, and how they ended."""

from __future__ import annotations

from typing import Any, NamedTuple

from flask import request

from gridbot_server.api.grids import list_grids, order_grid
from gridbot_server.api.overlay import list_logs, show_log
from gridbot_server.api.schema import call
from gridbot_server.console import curves
from gridbot_server.console.blueprint import action, blueprint, live, model, shared
from gridbot_server.console.operations import server_history
from gridbot_server.errors import RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import GridOrder
from gridbot_server.models.responses.grids import GridState
from gridbot_server.storage import rows, sql

SQL = sql.load("console.sql")
GRIDS = sql.load("grids.sql")

_SLOW_SECONDS = 15.0  # for which figures are shown that look at all pilots
_MOST_GRIDS, _MOST_REFUSALS, _MOST_ENDS, _OPENED = 200, 50, 30, 5


_WORDS = {"": "in use", "finish": "drained; what runs may end", "now": "drained"}
_CHANGES = (("", "Resume"), ("finish", "Drain, let finish"), ("now", "Drain now"))


class GridPilots(NamedTuple):
    """The pilots of a grid in the last day."""

    grid: str
    alive: int
    silent: int
    seen: int
    jobs: int
    failures: int
    core_seconds: float
    pilot_seconds: float


class ShownRefusal(NamedTuple):
    """Why a grid sends no pilots for a BOT."""

    bot: int
    name: str
    grid: str
    why: str


class Budget(NamedTuple):
    """What a grid's constructor told of its pilot-hours and its money."""

    grid: str
    constructor: str
    used: float | None
    left: float | None  # None: it has no budget
    wasted: float | None  # of the last days
    spent: float | None  # money, in the period of its budget; None: it costs nothing
    money_left: float | None  # None: it has no budget of money

    @classmethod
    def of(cls, grid: GridState) -> Budget:
        """Return what an ad says; a constructor of another release may say less."""
        names = ("PilotHours", "PilotHoursLeft", "PilotHoursWasted", "Spent", "BudgetLeft")
        told = (grid.ad.get(name) for name in names)
        numbers = (float(value) if isinstance(value, int | float) else None for value in told)
        return cls(grid.name, grid.constructor, *numbers)


class Drained(NamedTuple):
    """Whether a grid is drained, and what was ordered that its constructor has not heard."""

    grid: str
    constructor: str
    drained: str
    ordered: str | None
    ordered_seconds: float | None


def _grids() -> list[GridPilots]:
    with connection() as conn:
        return rows.fetch(conn, GridPilots, SQL["pilots"])


@blueprint.get("/overlay")
@auth.rule("console operator")
@live("overlay.html", seconds=5.0)
def overlay_page() -> dict[str, Any]:
    """Show the pilots."""
    with connection() as conn:
        refusals = rows.fetch(conn, ShownRefusal, SQL["refusals"], {"limit": _MOST_REFUSALS})
        drains = rows.fetch(conn, Drained, GRIDS["drains"], {"most": _MOST_GRIDS})
    ends = call(list_logs, grid="", limit=_MOST_ENDS).logs
    return {
        "title": "Overlay",
        "curve": curves.pilots(server_history()),
        "grids": shared(("pilots", "operator"), _SLOW_SECONDS, _grids),
        "drains": drains,
        "words": _WORDS,
        "changes": _CHANGES,
        "refusals": refusals,
        "budgets": [Budget.of(grid) for grid in call(list_grids, match="").grids],
        "ends": ends,
        "logs": [call(show_log, pilot=end.pilot) for end in ends[:_OPENED]],
    }


@blueprint.post("/overlay/order")
@auth.rule("console operator")
@action
def order_drain() -> str:
    """Drain a grid, or use it again.  A ticked box confirms that running pilots are ended."""
    if request.form.get("drained") == "now" and request.form.get("confirm") != "yes":
        raise RequestError("tick the box to confirm: running pilots of the grid are ended")
    names = ("constructor", "grid", "drained")
    call(order_grid, json=model(GridOrder, {name: request.form.get(name) for name in names}))
    return "/overlay"
