"""The host request path for stock BOINC clients, of a BOT that is signed for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from .harness.command import jobs_option, measurement
from .harness.host_requests import COLUMNS, Cell, Size, beside_floor, celled, sized
from .harness.load import boinc_hosts
from .harness.stages import Server, Stock, prepared
from .harness.windows import Row

_QUICK_JOBS = 20_000


@measurement(COLUMNS)
@celled()
@jobs_option()
@sized(rounds=5, seconds=3.0, requests=20_000)
def boinc(cells: Sequence[Cell], jobs: int, size: Size, quick: bool) -> list[Row]:
    """The same from stock BOINC clients, in their protocol, beside the floor."""
    jobs = _QUICK_JOBS if quick else jobs
    with (
        prepared(0, "--sign-on-submit", owners=1) as (place, known, load),
        place.session() as session,
    ):
        made = place.gridbot("token", "create", "volunteer1", "--scope", "join", "--json")
        key = json.loads(made)["token"]
        stock = Stock(place, session, jobs, jobs // 2)

        def fill() -> bool:
            is_new = stock.fill()
            if is_new:  # uploads are no scheduler requests: they are there before
                known.add_uploads(stock.bot, jobs, boinc_hosts.OUTPUT)
            return is_new

        ours = Server(place, load, fill, known)
        plans = (size.plan(ours.port, *cell) for cell in cells)
        asked = [replace(plan, path=boinc_hosts.PATH, key=key) for plan in plans]
        return beside_floor(ours, asked, size.rounds)
