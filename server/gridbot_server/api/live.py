"""Live output: what running replicas print, for who follows them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from flask import Blueprint

from gridbot_client.protocol.fields import STREAMS
from gridbot_server.api.access import bot_owner
from gridbot_server.api.schema import answers, json_body
from gridbot_server.dispatch.live_output import MOST_BYTES, SQL
from gridbot_server.errors import ObjectNotFound
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import FollowedOutput
from gridbot_server.models.responses.results import LiveReplica, LiveReplicas
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import encode, fetch, fetch_value

blueprint = Blueprint("live", __name__, url_prefix="/api/v1/bots/<int:bot>")

_MOST_REPLICAS = 20  # that are followed at once
_PATIENCE = timedelta(seconds=10)  # in which the next request of who follows must come


class RunningId(NamedTuple):
    """A replica of a BOT."""

    seq: int
    replica: int


class _Window(NamedTuple):
    """What is here of a stream."""

    seq: int
    replica: int
    stream: str
    begins: int
    content: bytes


@blueprint.post("/live")
@auth.rule("user")
@json_body
@answers()
def follow_output(bot: int, json: FollowedOutput) -> LiveReplicas:
    """Tell what replicas in progress have printed since, and have their clients send more.

    To be repeated every second or so; 10 seconds after the last request clients stop.
    """
    read = {
        (item.seq, item.replica): {"stdout": item.stdout, "stderr": item.stderr}
        for item in json.positions
    }
    with connection() as conn:
        bot_owner(conn, bot)
        with conn.transaction():
            values = {"bot": bot, "seq": json.job, "limit": _MOST_REPLICAS}
            running = fetch(conn, RunningId, SQL["running"], values)
            found = output_since(conn, bot, running, read)
            is_over = fetch_value(conn, bool, SQL["is_over"], values)
    if is_over is None:
        raise ObjectNotFound(f"BOT {bot} has no job {json.job}")
    told = [LiveReplica(seq=id.seq, replica=id.replica, **_encoded(found[id])) for id in running]
    return LiveReplicas(is_over=is_over, replicas=told)


def output_since(
    conn: Connection, bot: int, running: Sequence[RunningId],
    read: Mapping[tuple[int, int], Mapping[str, int]],
) -> dict[RunningId, dict[str, bytes]]:  # fmt: skip
    """Return what is here of each stream behind what was read, and ask clients for more."""
    at = {(id, stream): read.get(id, {}).get(stream, 0) for id in running for stream in STREAMS}
    wanted = [
        {"seq": id.seq, "replica": id.replica, "stream": stream, "at": place}
        for (id, stream), place in at.items()
    ]
    values = {
        "bot": bot, "wanted": encode(wanted), "patience": _PATIENCE, "much": MOST_BYTES // 2,
    }  # fmt: skip
    found = {id: dict.fromkeys(STREAMS, b"") for id in running}
    for item in fetch(conn, _Window, SQL["follow"], values) if wanted else ():
        id = RunningId(item.seq, item.replica)
        found[id][item.stream] = item.content[at[id, item.stream] - item.begins :]
    return found


class WatchedStream(NamedTuple):
    """The last bytes of a stream of a running replica."""

    replica: int
    stream: str
    begins: int  # bytes of the stream before the content
    content: bytes


def watched_output(conn: Connection, bot: int, seq: int) -> list[WatchedStream]:
    """Return what a job's replicas printed last, and have their clients send more for 10 seconds.

    Who follows the same job by `follow_output` is not disturbed.
    """
    values = {"bot": bot, "seq": seq, "limit": _MOST_REPLICAS, "patience": _PATIENCE}
    return fetch(conn, WatchedStream, SQL["watch"], values)


def _encoded(streams: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in streams.items()}
