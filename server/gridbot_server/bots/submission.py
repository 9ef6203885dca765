"""Puts BOTs and their jobs into the database: whole or not at all, and once per submit key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import orjson

from gridbot_client.protocol.messages import FileRef, Manifest
from gridbot_server.bots.validation import Draft, JobSpec, Range, check_jobs, make_draft
from gridbot_server.errors import (
    Conflict,
    MissingFiles,
    ObjectNotFound,
    QuotaExceeded,
    RequestError,
    WrongOffset,
)
from gridbot_server.http.auth import Key
from gridbot_server.models.requests import SubmissionRequest
from gridbot_server.signing.stock_clients import StockClients, Unsuitable
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection

SQL = sql.load("submission.sql")


Sign = Callable[[str], bytes]  # makes the project's signature over the text of a manifest


@dataclass(frozen=True, slots=True)
class SubmissionReceipt:
    """The BOT of a submission, and whether it was made now or found by its submit key."""

    bot: int
    is_new: bool


def submit(
    conn: Connection, key: Key, body: SubmissionRequest, stock: StockClients, sign: Sign | None
) -> SubmissionReceipt:
    """Insert a BOT with its jobs in one transaction, or find the one this key already made.

    With `sign` it is signed for native clients, and for stock clients if it suits them.
    The owner's row is locked meanwhile: equal submissions that race make one BOT, and
    the quota holds however many submissions run.
    """
    draft = make_draft(body, key.owner_name)
    with conn.transaction():
        max_jobs = _lock_owner(conn, key.owner)
        if (found := _find(conn, key.owner, body.submit_key, draft)) is not None:
            return SubmissionReceipt(found, is_new=False)
        _check_quota(conn, key.owner, max_jobs, draft.size)
        _check_files(conn, key.owner, _files(draft))
        bot = _insert(conn, key.owner, body, draft, sign)
        _insert_jobs(conn, bot, draft)
        if sign is not None:
            _sign_for_stock(conn, bot, draft, stock)
    return SubmissionReceipt(bot, is_new=True)


def add_jobs(
    conn: Connection, owner: int, bot: int, offset: int, jobs: list[JobSpec], stock: StockClients
) -> int:
    """Append jobs to an open BOT that has `offset` jobs now; return how many it has then.

    Raises WrongOffset with the jobs there, so that a sender whose reply was lost goes on.
    """
    with conn.transaction():
        max_jobs = _lock_owner(conn, owner)
        state, size, manifest, is_for_stock = _lock_bot(conn, bot)
        if state != "open":
            raise Conflict(f"BOT {bot} takes no more jobs, it is {state}", jobs_total=size)
        if offset != size:
            raise WrongOffset(f"BOT {bot} has {size} jobs, not {offset}", jobs_total=size)
        check_jobs(manifest, jobs, first=offset)
        _check_quota(conn, owner, max_jobs, len(jobs))
        _check_files(conn, owner, [ref for job in jobs for ref in job.inputs])
        _copy(conn, _rows(bot, jobs, first=offset))
        conn.execute(SQL["grow"], {"bot": bot, "size": len(jobs)})
        if is_for_stock and (why := _unsuitable(stock, manifest, jobs)):
            conn.execute(SQL["refuse_boinc"], {"bot": bot, "why": why})
    return size + len(jobs)


def start(conn: Connection, bot: int) -> None:
    """Let an open BOT run; one that runs or ran already is left as it is."""
    with conn.transaction():
        state, size, *_ = _lock_bot(conn, bot)
        if state == "cancelled":
            raise Conflict(f"BOT {bot} is cancelled, submit it again")
        if state == "open" and size == 0:
            raise RequestError(f"BOT {bot} has no jobs, add some first")
        conn.execute(SQL["start"], {"bot": bot})


def _lock_owner(conn: Connection, owner: int) -> int:
    row = conn.execute(SQL["lock_owner"], {"owner": owner}).fetchone()
    assert row is not None, "owners are never deleted"
    return int(row[0])


def _lock_bot(conn: Connection, bot: int) -> tuple[str, int, Manifest, bool]:
    row = conn.execute(SQL["lock_bot"], {"bot": bot}).fetchone()
    if row is None:
        raise ObjectNotFound(f"there is no BOT {bot}")
    return row[0], row[1], Manifest.from_text(row[2]), row[3]


def _find(conn: Connection, owner: int, submit_key: str, draft: Draft) -> int | None:
    row = conn.execute(SQL["find"], {"owner": owner, "submit_key": submit_key}).fetchone()
    if row is None:
        return None
    if row[1] != draft.manifest.text():
        raise Conflict(f"the submit key {submit_key!r} made BOT {row[0]}, which runs another thing")
    return int(row[0])


def _check_quota(conn: Connection, owner: int, max_jobs: int, more: int) -> None:
    row = conn.execute(SQL["unfinished"], {"owner": owner}).fetchone()
    there = int(row[0]) if row else 0
    if there + more > max_jobs:
        raise QuotaExceeded(
            f"the quota is {max_jobs:,} jobs in unfinished BOTs: {there:,} are there,"
            f" {more:,} more do not fit"
        )


def _files(draft: Draft) -> list[FileRef]:
    own = [ref for job in draft.jobs for ref in job.inputs] if isinstance(draft.jobs, list) else []
    return [*draft.manifest.inputs, *own]


def _check_files(conn: Connection, owner: int, files: Iterable[FileRef]) -> None:
    """Raise MissingFiles unless the owner has sent them all: others' files do not count."""
    wanted = {ref.sha256: ref for ref in files}
    if not wanted:
        return
    hashes = [bytes.fromhex(sha256) for sha256 in wanted]
    sizes = {
        row[0].hex(): row[1]
        for row in conn.execute(SQL["blobs"], {"owner": owner, "hashes": hashes})
    }
    if missing := sorted(wanted.keys() - sizes.keys()):
        names = ", ".join(wanted[sha256].name for sha256 in missing[:5])
        raise MissingFiles(f"not uploaded yet: {names}", missing=missing)
    for sha256, ref in wanted.items():
        if ref.size != sizes[sha256]:
            raise RequestError(f"inputs: {ref.name} has {sizes[sha256]} bytes, not {ref.size}")


def _insert(
    conn: Connection, owner: int, body: SubmissionRequest, draft: Draft, sign: Sign | None
) -> int:
    text = draft.manifest.text()
    chosen = body.model_dump(
        include={
            "submit_key", "name", "policy", "quorum", "validator", "max_attempts", "max_replicas",
            "tail_threshold", "tail_sticky", "failover_after",
        }
    )  # fmt: skip
    row = conn.execute(
        SQL["insert_bot"],
        {
            **chosen,
            "owner": owner,
            "state": "open" if draft.jobs is None else "running",
            "manifest": text,
            "signature": sign(text) if sign else None,
            "size": draft.size,
        },
    ).fetchone()
    assert row is not None
    return int(row[0])


def _insert_jobs(conn: Connection, bot: int, draft: Draft) -> None:
    match draft.jobs:
        case Range() as jobs:
            values = {"bot": bot, "start": jobs.start, "step": jobs.step, "size": jobs.size}
            conn.execute(SQL["insert_range"], values)
        case list() as jobs:
            _copy(conn, _rows(bot, jobs, first=0))
        case None:
            pass


def _sign_for_stock(conn: Connection, bot: int, draft: Draft, stock: StockClients) -> None:
    """Let stock clients run the BOT, or note why they cannot: it is for native clients, then."""
    jobs = draft.jobs if isinstance(draft.jobs, list) else []
    why = _unsuitable(stock, draft.manifest, jobs)
    if not why:
        try:
            signed = stock.sign(conn, draft.manifest)
            conn.execute(SQL["offer_to_boinc"], {"bot": bot, "signed": signed})
        except Unsuitable as error:
            why = str(error)
    if why:
        conn.execute(SQL["refuse_boinc"], {"bot": bot, "why": why})


def _unsuitable(stock: StockClients, manifest: Manifest, jobs: Iterable[JobSpec]) -> str:
    """Return what keeps stock clients from running the jobs, nothing if they can."""
    try:
        for job in jobs:
            stock.check_job(manifest, job.args, job.inputs)
    except Unsuitable as error:
        return str(error)
    return ""


def _rows(bot: int, jobs: list[JobSpec], first: int) -> Iterator[tuple[int, int, str, str | None]]:
    for seq, job in enumerate(jobs, first):
        inputs = orjson.dumps([asdict(ref) for ref in job.inputs]).decode() if job.inputs else None
        yield bot, seq, orjson.dumps(job.args).decode(), inputs


def _copy(conn: Connection, rows: Iterator[tuple[int, int, str, str | None]]) -> None:
    with conn.cursor() as cursor, cursor.copy(SQL["copy_jobs"]) as copy:
        for row in rows:
            copy.write_row(row)
