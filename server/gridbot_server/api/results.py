"""What a BOT has given: results, outputs, logs, as streams of bounded memory."""

from __future__ import annotations

import itertools
import tarfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

import orjson
from flask import Blueprint, Response
from psycopg.rows import class_row

from gridbot_client.protocol.messages import MAX_BIGINT
from gridbot_server.api.access import bot_owner
from gridbot_server.api.content import reader, send_content, sends_content
from gridbot_server.api.pages import R, by_cursor
from gridbot_server.api.parameters import Parameter, number, one_of
from gridbot_server.api.schema import JSON_LINES, query, sends
from gridbot_server.api.stored_outputs import send_stored, storage_of
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.long_poll import MOST_SECONDS, wait_for_news
from gridbot_server.http.services import Services, connection, current
from gridbot_server.http.slow_readers import bounded
from gridbot_server.models.responses.results import LogLine, ResultLine
from gridbot_server.storage import rows, sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.files import Store, read_chunks

SQL = sql.load("results.sql")

blueprint = Blueprint("results", __name__, url_prefix="/api/v1/bots/<int:bot>")

_LOGS_PER_PAGE = 50  # each may carry 128 KB
_HOW = ("success", "error", "expired", "lost", "cancelled")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """An outcome with one of its outputs, or with none."""

    n: int
    seq: int
    canonical: int | None
    reason: str
    args: str  # JSON
    host: str | None
    exit_code: int | None
    cpu_seconds: float | None
    wall_seconds: float | None
    version: int  # of the manifest
    name: str | None  # of the output; None: it has none
    sha256: bytes
    size: int
    content: bytes | None  # None: it lies in the file store, or its owner's storage
    place: str | None  # in its owner's storage, once it is published there
    is_lost: bool  # from there

    def told(self) -> Mapping[str, Any]:
        """What its line tells beside what all lines do."""
        return {}


@dataclass(frozen=True, slots=True)
class _EventRow(ResultRow):
    """What became of a job's answer, with one of its outputs, or with none."""

    event: str

    def told(self) -> Mapping[str, Any]:
        """What became of the answer."""
        return {"event": self.event}


@dataclass(frozen=True, slots=True)
class _OutputRow:
    """An output for the archive; an outcome without outputs is one row, without a name."""

    n: int
    seq: int
    made_at: datetime
    name: str | None
    sha256: bytes
    size: int
    content: bytes | None  # None: it lies in the file store


@dataclass(frozen=True, slots=True)
class _Output:
    """One output."""

    sha256: bytes
    content: bytes | None  # None: it lies in the file store


def _log_cursor(name: str, text: str) -> tuple[int, int]:
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise RequestError(f"{name}: expected SEQ-REPLICA, got {text[:60]!r}")
    return min(int(parts[0][:20]), MAX_BIGINT), min(int(parts[1][:20]), MAX_BIGINT)


LIMIT = number("How many lines at most.", default=MAX_BIGINT)
AFTER = number("The last `n` that is known already.", default=0)
_EVENTS = one_of("Also what is provisional or was recalled, as events.", ("confirmed", "all"))
WAIT = number("Seconds to wait for a line.", default=0, most=MOST_SECONDS)
_AFTER_LOG = Parameter(
    "The last line that is known already, as SEQ-REPLICA.",
    {"type": "string", "pattern": "^[0-9]+-[0-9]+$"},
    _log_cursor,
)


@blueprint.get("/results")
@auth.rule("user")
@query(after=AFTER, limit=LIMIT, events=_EVENTS, wait=WAIT)
@sends(JSON_LINES, model=ResultLine)
def stream_results(bot: int, after: int, limit: int, events: str | None, wait: int) -> Response:
    """Stream the finished jobs as JSON lines, in the order in which they finished.

    Ends with the outcomes there were at the beginning; `after` goes on behind the last
    line's `n`, also when a connection broke.  What is not sure yet is left out; with `events=all`
    it comes as well, and so does what was taken back: then `n` counts these events.  With `wait`,
    a stream that would be empty begins once there is a line, or the BOT has ended, or so many
    seconds are over.
    """
    has_events = events == "all" and _has_events(bot)
    if wait and not _has_news(bot, after, has_events):
        wait_for_news(bot, wait, reader())
    if has_events:
        pages: Iterator[Sequence[ResultRow]] = _outcome_pages(
            bot, _EventRow, SQL["events"], after, limit, SQL["last_event"]
        )
    else:
        pages = _outcome_pages(bot, ResultRow, SQL["results"], after, limit)
    return result_stream(pages)


@blueprint.get("/outputs/<int:seq>/<path:name>")
@auth.rule("user")
@sends_content
def fetch_output(bot: int, seq: int, name: str) -> Response:
    """Send one output of a finished job."""
    with connection() as conn:
        bot_owner(conn, bot)
        values = {"bot": bot, "seq": seq, "name": name}
        output = rows.read_one(conn, _Output, SQL["output"], values)
        storage = storage_of(conn, bot)
    if output is None:
        raise ObjectNotFound(f"job {seq} of BOT {bot} has no output {name[:200]!r} (yet)")
    if output.content is not None:
        return Response(output.content, mimetype="application/octet-stream")
    if storage is not None:
        return send_stored(storage, bot, seq, name)
    return send_content(output.sha256.hex())


@blueprint.get("/archive")
@auth.rule("user")
@query(after=AFTER)
@sends("application/x-tar", errors=(HTTPStatus.CONFLICT,))
def fetch_archive(bot: int, after: int) -> Response:
    """Stream a tar archive of all outputs, as SEQ/NAME."""
    store = current().store
    with connection() as conn:
        bot_owner(conn, bot)
        storage = storage_of(conn, bot)
    if storage is not None:
        raise Conflict(f"outputs of BOT {bot} are in storage {storage.name}: {storage.shown}/{bot}")
    pages = _outcome_pages(bot, _OutputRow, SQL["outputs"], after, MAX_BIGINT)
    response = Response(_tar(store, pages), mimetype="application/x-tar")
    response.headers["Content-Disposition"] = f'attachment; filename="bot-{bot}.tar"'
    return bounded(response, reader())


@blueprint.get("/logs")
@auth.rule("user")
@query(
    how=one_of("Only replicas that ended so.", _HOW),
    seq=number("Only replicas of this job."),
    after=_AFTER_LOG,
    limit=LIMIT,
)
@sends(JSON_LINES, model=LogLine)
def stream_logs(
    bot: int, how: str | None, seq: int | None, after: tuple[int, int] | None, limit: int
) -> Response:
    """Stream the replicas that ended as JSON lines, by job; `after` is SEQ-REPLICA."""
    with connection() as conn:
        bot_owner(conn, bot)
    wanted = {"bot": bot, "seq": seq, "how": how}
    lines = _log_lines(current(), wanted, after or (-1, -1), limit)
    return bounded(Response(lines, mimetype=JSON_LINES), reader())


def output_bytes(bot: int, seq: int, name: str, most: int) -> bytes | None:
    """Return the first bytes of an output of a BOT that the caller has seen.

    None if it is gone, or in a storage of its owner.
    """
    with connection() as conn:
        values = {"bot": bot, "seq": seq, "name": name}
        output = rows.read_one(conn, _Output, SQL["output"], values)
        storage = storage_of(conn, bot)
    if output is None:
        return None
    if output.content is not None:
        return output.content[:most]
    if storage is not None:
        return None  # it may take long to answer
    return current().store.beginning(output.sha256.hex(), most)


def logs_of(conn: PostgresConnection, bot: int, seq: int, limit: int) -> list[LogLine]:
    """Return the first replicas of a job that ended; the caller has seen the BOT."""
    values = {
        "bot": bot, "seq": seq, "how": None, "after_seq": -1, "after_replica": -1, "limit": limit,
    }  # fmt: skip
    return rows.read(conn, LogLine, SQL["logs"], values)


def _has_news(bot: int, after: int, has_events: bool) -> bool:
    """Whether there is more than is known, or there will be nothing more."""
    with connection() as conn:
        bot_owner(conn, bot)
        last = rows.fetch_value(
            conn, int, SQL["last_event" if has_events else "last_outcome"], {"bot": bot}
        )
        return (last or 0) > after or not rows.has_row(conn, SQL["goes_on"], {"bot": bot})


def _has_events(bot: int) -> bool:
    """Whether a BOT has events beside its outcomes: where strangers answer."""
    with connection() as conn:
        bot_owner(conn, bot)
        return bool(rows.fetch_value(conn, int, SQL["last_event"], {"bot": bot}))


def _outcome_pages(
    bot: int,
    shape: type[R],
    query: bytes,
    after: int,
    limit: int,
    counted: bytes = SQL["last_outcome"],
) -> Iterator[list[R]]:
    """Return the pages of a query over the outcomes there are now, at most `limit` of them."""
    with connection() as conn:
        bot_owner(conn, bot)
        last = rows.fetch_value(conn, int, counted, {"bot": bot}) or 0
    return result_pages(shape, query, {"bot": bot, "last": last}, after, limit)


def result_pages(
    shape: type[R], query: bytes, of: Mapping[str, int], after: int, limit: int
) -> Iterator[list[R]]:
    """Return the pages of a query over outcomes, whose parameters are in `of`."""
    services = current()  # the stream outlives the request's context

    def fetch(after: int, count: int) -> list[R]:
        values = {**of, "after": after, "limit": count}
        with services.pool.connection() as conn, conn.transaction():
            conn.execute(SQL["plan_by_keys"])
            # Binary, because outputs are: as text they would be twice as long.
            with conn.cursor(binary=True, row_factory=class_row(shape)) as cursor:
                return cursor.execute(query, values).fetchall()

    return by_cursor(fetch, after, limit)


def result_stream(pages: Iterable[Sequence[ResultRow]]) -> Response:
    """Return the response that streams these pages as JSON lines."""
    lines = (_result_lines(page) for page in pages)
    return bounded(Response(lines, mimetype=JSON_LINES), reader())


def _result_lines(page: Sequence[ResultRow]) -> bytes:
    return b"".join(
        orjson.dumps(_result(list(outputs)), option=orjson.OPT_APPEND_NEWLINE)
        for _, outputs in itertools.groupby(page, key=lambda row: row.n)
    )


def _result(outputs: Sequence[ResultRow]) -> dict[str, Any]:
    """Render a `ResultLine`, without looking into the arguments."""
    first = outputs[0]
    code = first.exit_code
    return {
        "n": first.n,
        **first.told(),
        "seq": first.seq,
        "state": "failed" if first.canonical is None else "done",
        "args": orjson.Fragment(first.args),
        "replica": first.canonical,
        "host": first.host,
        "exit_code": code if code is None or code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "reason": first.reason,
        "cpu_seconds": first.cpu_seconds,
        "wall_seconds": first.wall_seconds,
        "version": first.version,
        "outputs": {row.name: _output_document(row) for row in outputs if row.name is not None},
    }


def _output_document(row: ResultRow) -> dict[str, Any]:
    document: dict[str, Any] = {"sha256": row.sha256.hex(), "size": row.size}
    if row.place is not None:
        document["place"] = row.place
    if row.is_lost:
        document["lost"] = True
    if row.content is not None:
        document["content"] = b64encode(row.content).decode()
    return document


def _tar(store: Store, pages: Iterable[list[_OutputRow]]) -> Iterator[bytes]:
    for output in itertools.chain.from_iterable(pages):
        if output.name is None:
            continue
        yield _tar_header(f"{output.seq}/{output.name}", output.size, output.made_at)
        if output.content is None:
            yield from read_chunks(store.open(output.sha256.hex()))
        else:
            yield output.content
        yield bytes(-output.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _tar_header(name: str, size: int, made_at: datetime) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, int(made_at.timestamp())
    return info.tobuf(tarfile.PAX_FORMAT)


def _log_lines(
    services: Services, wanted: dict[str, Any], cursor: tuple[int, int], limit: int
) -> Iterator[bytes]:
    while limit > 0:
        values = {
            **wanted, "after_seq": cursor[0], "after_replica": cursor[1],
            "limit": min(limit, _LOGS_PER_PAGE),
        }  # fmt: skip
        with services.pool.connection() as conn:
            page = rows.read(conn, LogLine, SQL["logs"], values)
        if not page:
            return
        yield b"".join(
            orjson.dumps(line.model_dump(), option=orjson.OPT_APPEND_NEWLINE) for line in page
        )
        limit -= len(page)
        cursor = page[-1].seq, page[-1].replica
