"""What a BOT has given: results, outputs, logs, as streams of bounded memory."""

from __future__ import annotations

import tarfile
from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson
from flask import Blueprint, Response, request
from psycopg.rows import TupleRow, dict_row

from gridbot_client.protocol.messages import MAX_BIGINT
from gridbot_server.api.access import bot_owner, number_argument
from gridbot_server.api.content import reader, send_content
from gridbot_server.api.pages import by_cursor
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import Services, connection, current
from gridbot_server.http.slow_readers import bounded
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.files import Store, read_chunks

SQL = sql.load("results.sql")

blueprint = Blueprint("results", __name__, url_prefix="/api/v1/bots/<int:bot>")

_JSON_LINES = "application/jsonl"
_LOGS_PER_PAGE = 50  # each may carry 128 KB
_HOW = ("success", "error", "expired", "lost", "cancelled")


@blueprint.get("/results")
@auth.rule("user")
def results(bot: int) -> Response:
    """Stream the finished jobs as JSON lines, in the order in which they finished.

    Ends with the outcomes there were at the beginning; `after` goes on behind the last
    line's `n`, also when a connection broke.
    """
    pages = _outcome_pages(bot, "results", limit=number_argument("limit", MAX_BIGINT))
    lines = (_result_lines(page) for page in pages)
    return bounded(Response(lines, mimetype=_JSON_LINES), reader())


@blueprint.get("/outputs/<int:seq>/<path:name>")
@auth.rule("user")
def output(bot: int, seq: int, name: str) -> Response:
    """Send one output of a finished job."""
    with connection() as conn:
        bot_owner(conn, bot)
        values = {"bot": bot, "seq": seq, "name": name}
        row = conn.execute(SQL["output"], values).fetchone()
    if row is None:
        raise ObjectNotFound(f"job {seq} of BOT {bot} has no output {name[:200]!r} (yet)")
    if row[1] is not None:
        return Response(row[1], mimetype="application/octet-stream")
    return send_content(row[0].hex())


@blueprint.get("/archive")
@auth.rule("user")
def archive(bot: int) -> Response:
    """Stream a tar archive of all outputs, as SEQ/NAME."""
    store = current().store
    pages = _outcome_pages(bot, "outputs", limit=MAX_BIGINT)
    response = Response(_tar(store, pages), mimetype="application/x-tar")
    response.headers["Content-Disposition"] = f'attachment; filename="bot-{bot}.tar"'
    return bounded(response, reader())


@blueprint.get("/logs")
@auth.rule("user")
def logs(bot: int) -> Response:
    """Stream the replicas that ended as JSON lines, by job; `after` is SEQ-REPLICA."""
    how = request.args.get("how")
    if how is not None and how not in _HOW:
        raise RequestError(f"how: expected one of {', '.join(_HOW)}, got {how[:60]!r}")
    seq = number_argument("seq") if "seq" in request.args else None
    wanted = {"bot": bot, "seq": seq, "how": how}
    with connection() as conn:
        bot_owner(conn, bot)
    lines = _log_lines(current(), wanted, _log_cursor(), number_argument("limit", MAX_BIGINT))
    return bounded(Response(lines, mimetype=_JSON_LINES), reader())


def _outcome_pages(bot: int, query: str, limit: int) -> Iterator[list[TupleRow]]:
    """Return the pages of a query over the outcomes there are now, at most `limit` of them."""
    services = current()  # the stream outlives the request's context
    after = number_argument("after", default=0)
    with connection() as conn:
        bot_owner(conn, bot)
        row = conn.execute(SQL["last_outcome"], {"bot": bot}).fetchone()
    last = row[0] if row else 0

    def fetch(after: int, count: int) -> list[TupleRow]:
        values = {"bot": bot, "after": after, "last": last, "limit": count}
        with services.pool.connection() as conn, conn.transaction():
            conn.execute(SQL["plan_by_keys"])
            # Binary, because outputs are: as text they would be twice as long.
            return conn.cursor(binary=True).execute(SQL[query], values).fetchall()

    return by_cursor(fetch, after, limit)


def _result_lines(page: list[TupleRow]) -> bytes:
    return b"".join(
        orjson.dumps(_result(list(rows)), option=orjson.OPT_APPEND_NEWLINE)
        for _, rows in groupby(page, key=itemgetter(0))
    )


def _result(rows: list[TupleRow]) -> dict[str, Any]:
    n, seq, canonical, reason, args, host, exit_code, cpu, wall = rows[0][:9]
    return {
        "n": n,
        "seq": seq,
        "state": "failed" if canonical is None else "done",
        "args": orjson.Fragment(args),
        "replica": canonical,
        "host": host,
        "exit_code": exit_code,
        "reason": reason,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "outputs": {row[9]: _output_document(*row[10:]) for row in rows if row[9] is not None},
    }


def _output_document(sha256: bytes, size: int, content: bytes | None) -> dict[str, Any]:
    document = {"sha256": sha256.hex(), "size": size}
    return document if content is None else {**document, "content": b64encode(content).decode()}


def _tar(store: Store, pages: Iterable[list[TupleRow]]) -> Iterator[bytes]:
    for page in pages:
        for _, seq, made_at, name, sha256, size, content in page:
            if name is None:
                continue
            yield _tar_header(f"{seq}/{name}", size, made_at)
            yield from (content,) if content is not None else read_chunks(store.open(sha256.hex()))
            yield bytes(-size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _tar_header(name: str, size: int, made_at: datetime) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, int(made_at.timestamp())
    return info.tobuf(tarfile.PAX_FORMAT)


def _log_lines(
    services: Services, wanted: dict[str, Any], cursor: tuple[int, int], limit: int
) -> Iterator[bytes]:
    while limit > 0:
        with services.pool.connection() as conn:
            rows = _log_page(conn, wanted, cursor, min(limit, _LOGS_PER_PAGE))
        if not rows:
            return
        yield b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
        limit -= len(rows)
        cursor = rows[-1]["seq"], rows[-1]["replica"]


def _log_page(
    conn: Connection, wanted: dict[str, Any], after: tuple[int, int], count: int
) -> list[dict[str, Any]]:
    values = {**wanted, "after_seq": after[0], "after_replica": after[1], "limit": count}
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(SQL["logs"], values).fetchall()


def _log_cursor() -> tuple[int, int]:
    text = request.args.get("after")
    if text is None:
        return -1, -1
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise RequestError(f"after: expected SEQ-REPLICA, got {text[:60]!r}")
    return min(int(parts[0][:20]), MAX_BIGINT), min(int(parts[1][:20]), MAX_BIGINT)
