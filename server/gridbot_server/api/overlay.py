"""For the overlay's constructor: what BOTs demand, how pilots fare, keys for pilots.

Paper section 5: the constructor matches the BOTs' demand to the grids; section 8: whom a pilot
serves is known before it is submitted, and its key is good for nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from flask import Blueprint

from gridbot_client.protocol.messages import Manifest
from gridbot_policies.classad import UNDEFINED, Record
from gridbot_server.api.content import reader
from gridbot_server.api.matching import QueuedBot, queue_ad
from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.schema import answers, json_body, query
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.long_poll import ANY_BOT, MOST_SECONDS, wait_for_news
from gridbot_server.http.services import connection
from gridbot_server.matching.run_time import run_seconds
from gridbot_server.models.requests import (
    EndedPilots,
    GridAds,
    PilotLogs,
    PilotToken,
    Refusals,
    Tags,
)
from gridbot_server.models.responses.grids import ToldGrids
from gridbot_server.models.responses.operation import NewKey
from gridbot_server.models.responses.overlay import (
    BotDemand,
    Demand,
    DemandVersion,
    GoodKeys,
    KeptLogs,
    NotedRefusals,
    PilotEnd,
    PilotEnds,
    PilotLog,
    Pilots,
    PilotTally,
    Relinquished,
)
from gridbot_server.signing import keys
from gridbot_server.storage import rows, sql
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.states import Event

SQL = sql.load("overlay.sql")
NOTABLE = sql.load("notable.sql")
GRIDS = sql.load("grids.sql")

blueprint = Blueprint("overlay", __name__, url_prefix="/api/v1/overlay")

_MOST_PILOTS = 20_000
# Of pilots that have ended: how many words are kept, and for how long.
_MOST_LOGS, _LOGS_LIFETIME = 10_000, timedelta(days=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DemandingBot(QueuedBot):
    """An unfinished BOT, and where it runs."""

    operator: bool
    share: float
    dedicated: int
    on_pilots: dict[str, int]
    usual_seconds: float | None
    cut_off_seconds: float | None

    def demand(self, now: float) -> BotDemand | None:
        """Return what it could use at `now`; None for one that pilots cannot run."""
        manifest = Manifest.from_text(self.manifest)
        if manifest.boinc_api:
            return None
        resources = manifest.resources
        return BotDemand(
            bot=self.id,
            name=self.name,
            owner=self.owner_name,
            is_operator=self.operator,
            share=self.share,
            unsent=self.unsent,
            dedicated=self.dedicated,
            on_pilots=self.on_pilots,
            seconds=self.mean_turnaround,
            run_seconds=run_seconds(self.usual_seconds, manifest),
            cut_off_seconds=self.cut_off_seconds,
            cpus=resources.cpus,
            memory_mb=resources.memory_mb,
            gpus=resources.gpus,
            policy=self.policy,
            ad=_plain(self.ad(now)),
        )


@blueprint.get("/demand")
@auth.rule("operator")
@answers()
def show_demand() -> Demand:
    """Tell what each unfinished BOT could use now, with the ads that its GridPolicy looks at."""
    now = time.time()
    with connection() as conn:
        queue = queue_ad(conn)
        found = rows.read(conn, _DemandingBot, SQL["demand"])
    bots = [demand for bot in found if (demand := bot.demand(now))]
    return Demand(bots=bots, queue=_plain(queue))


@blueprint.get("/demand/version")
@auth.rule("operator")
@query(
    known=Parameter("The version that the asker knows.", {"type": "string"}, default=""),
    wait=number("Seconds to wait for another one.", default=0, most=MOST_SECONDS),
)
@answers()
def show_demand_version(known: str, wait: int) -> DemandVersion:
    """Tell which BOTs there are, as a version; with `wait`, once it is another than `known`."""
    with connection() as conn:
        version = rows.fetch_only_value(conn, str, SQL["demand_version"], {})
    if version == known:
        wait_for_news(ANY_BOT, wait, reader())
    return DemandVersion(version=version)


@blueprint.post("/refusals")
@auth.rule("operator")
@json_body
@answers()
def note_refusals(json: Refusals) -> NotedRefusals:
    """Note why grids refuse BOTs, in place of all that this constructor said before.

    Owners are told while it was said within 15 minutes.
    """
    values = {"constructor": json.constructor, "bots": rows.encode(json.bots)}
    with connection() as conn, conn.transaction():
        conn.execute(SQL["note_refusals"], values)
        conn.execute(SQL["drop_refusals"])
    return NotedRefusals(bots=len(json.bots))


@blueprint.post("/grids")
@auth.rule("operator")
@json_body
@answers()
def tell_grids(json: GridAds) -> ToldGrids:
    """Tell the ads of all grids of a constructor, in place of those that it told before."""
    values = {
        **json.model_dump(exclude={"grids", "drained"}),
        "ads": rows.encode(json.grids),
        "drained": rows.encode(json.drained),
    }
    with connection() as conn, conn.transaction():
        conn.execute(GRIDS["tell"], values)
        conn.execute(GRIDS["drop_old"])
        conn.execute(GRIDS["drop_old_orders"])
    return ToldGrids(grids=len(json.grids))


@blueprint.get("/pilots")
@auth.rule("operator")
@query(
    grid=Parameter("The grid's name.", {"type": "string"}, default=""),
    seconds=number("Only those seen in so many seconds.", default=86_400, most=10**7),
)
@answers()
def list_pilots(grid: str, seconds: int) -> Pilots:
    """List a grid's pilots of the last `seconds`, the latest first."""
    values = {"grid": grid, "lifetime": timedelta(seconds=seconds), "limit": _MOST_PILOTS}
    with connection() as conn:
        return Pilots(pilots=rows.read(conn, PilotTally, SQL["pilots"], values))


@blueprint.post("/pilots/ended")
@auth.rule("operator")
@json_body
@answers()
def end_pilots(json: EndedPilots) -> Relinquished:
    """Take back what pilots ran that their grid has ended; tell how many replicas that were."""
    with connection() as conn, conn.transaction():
        conn.execute(NOTABLE["note_ended_pilots"], json.model_dump())
        return Relinquished(replicas=relinquish(conn, Event.PILOT_ENDED, json.model_dump()))


@blueprint.post("/logs")
@auth.rule("operator")
@json_body
@answers()
def keep_logs(json: PilotLogs) -> KeptLogs:
    """Keep the end of pilots' stderr, for two weeks and of 10,000 of them at most."""
    values = {"grid": json.grid, "logs": rows.encode([log.model_dump() for log in json.logs])}
    with connection() as conn, conn.transaction():
        conn.execute(SQL["keep_logs"], values)
        conn.execute(SQL["drop_logs"], {"most": _MOST_LOGS, "lifetime": _LOGS_LIFETIME})
    return KeptLogs(logs=len(json.logs))


@blueprint.get("/logs")
@auth.rule("operator")
@query(
    grid=Parameter("The grid's name; empty for all grids.", {"type": "string"}, default=""),
    limit=number("How many.", default=20, most=1000),
)
@answers()
def list_logs(grid: str, limit: int) -> PilotEnds:
    """List pilots whose stderr is kept, the latest first."""
    with connection() as conn:
        return PilotEnds(
            logs=rows.read(conn, PilotEnd, SQL["logs"], {"grid": grid, "limit": limit})
        )


@blueprint.get("/logs/<pilot>")
@auth.rule("operator")
@answers()
def show_log(pilot: str) -> PilotLog:
    """Show how a pilot ended, and the end of its stderr."""
    with connection() as conn:
        found = rows.read(conn, PilotLog, SQL["log"], {"pilot": pilot})
    if not found:
        raise ObjectNotFound(f"nothing is kept of a pilot {pilot[:100]}")
    return found[0]


@blueprint.post("/tokens")
@auth.rule("operator")
@json_body
@answers(HTTPStatus.CREATED)
def add_pilot_token(json: PilotToken) -> NewKey:
    """Make a key for pilots: for one grid, for some owners' BOTs, for a while."""
    token, token_hash = keys.new_token("pilot")
    with connection() as conn:
        found: dict[str, int] = rows.fetch_mapping(conn, SQL["owner_ids"], {"names": json.owners})
        if missing := set(json.owners) - set(found):
            raise RequestError(f"owners: there is no owner {min(missing)}")
        values = {
            "hash": token_hash,
            "owner": auth.key().owner,
            "grid": json.grid,
            "serves": sorted(found.values()),
            "tag": json.tag,
            "count": json.count,
            "artefact": bytes.fromhex(json.artefact) if json.artefact else None,
            "lifetime": timedelta(seconds=json.seconds),
        }
        return NewKey(id=rows.fetch_only_value(conn, int, SQL["add_token"], values), token=token)


@blueprint.post("/tags")
@auth.rule("operator")
@json_body
@answers()
def find_good_keys(json: Tags) -> GoodKeys:
    """Tell which submissions somebody still counts on: by tag, the number of a good key."""
    with connection() as conn:
        return GoodKeys(keys=rows.fetch_mapping(conn, SQL["good_keys"], json.model_dump()))


def _plain(ad: Record) -> dict[str, Any]:
    """Return an ad of plain values as JSON; what is undefined is left out."""
    values = zip(ad.names, ad.attributes.values(), strict=True)
    return {name: value for name, value in values if value is not UNDEFINED}
