"""The barrier at which the members of a gang start together."""

from __future__ import annotations

from typing import NamedTuple

from flask import Blueprint

from gridbot_server.api.content import reader
from gridbot_server.api.parameters import Parameter, number
from gridbot_server.api.schema import answers, json_body, query
from gridbot_server.http import auth
from gridbot_server.http.long_poll import MOST_SECONDS, wait_for_news
from gridbot_server.http.services import connection
from gridbot_server.models.requests import GangMember
from gridbot_server.models.responses.clients import GangState
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.moves import relinquish
from gridbot_server.storage.rows import fetch_one
from gridbot_server.storage.states import Event

SQL = sql.load("gangs.sql")

blueprint = Blueprint("gangs", __name__, url_prefix="/api/v1/clients")

_OVER = GangState(state="over", members=[])


class _Member(NamedTuple):
    """The gang of a replica, locked, and the run in which the replica arrived, if it has."""

    number: int
    has_started: bool
    run: str | None


class _Found(NamedTuple):
    """The gang of a replica."""

    has_started: bool
    news: int
    members: list[str]


@blueprint.post("/self/gang")
@auth.rule("client")
@json_body
@answers()
def meet_gang(json: GangMember) -> GangState:
    """Note that a member is ready, and start its gang if it is the last one; tell the gang's state.

    A member that comes in another run after the start has lost what it did: the gang begins anew.
    """
    bot, seq, replica = json.replica
    client = auth.client().id
    named = {"bot": bot, "seq": seq, "replica": replica, "client": client}
    with connection() as conn, conn.transaction():
        member = fetch_one(conn, _Member, SQL["lock_member"], named)
        if member is None:
            return _OVER
        gang = {"bot": bot, "number": member.number}
        if member.run != json.run:
            if member.has_started:
                values = {"client": client, "bots": [bot], "seqs": [seq], "replicas": [replica]}
                relinquish(conn, Event.RETURNED, values)
                return _OVER
            arrived = {**named, **gang, "address": json.address, "run": json.run}
            conn.execute(SQL["arrive"], arrived)
        conn.execute(SQL["start"], gang)
        return _state(conn, named)[0]


@blueprint.get("/self/gang/<int:bot>/<int:seq>/<int:replica>")
@auth.rule("client")
@query(
    known=Parameter("The state that the asker knows.", {"type": "string"}, default=""),
    wait=number("Seconds to wait for another one.", default=0, most=MOST_SECONDS),
)
@answers()
def watch_gang(bot: int, seq: int, replica: int, known: str, wait: int) -> GangState:
    """Tell what a member's gang does; with `wait`, once that is another state than `known`."""
    named = {"bot": bot, "seq": seq, "replica": replica, "client": auth.client().id}
    with connection() as conn:
        found, news = _state(conn, named)
    if found.state == known:
        wait_for_news(news, wait, reader())
    return found


def _state(conn: Connection, named: dict[str, int]) -> tuple[GangState, int]:
    """The state of a member's gang, and of which BOT news of it are told."""
    found = fetch_one(conn, _Found, SQL["state"], named)
    if found is None:
        return _OVER, 0
    if not found.has_started:
        return GangState(state="gathering", members=[]), found.news
    return GangState(state="started", members=found.members), found.news
