"""Puts BOTs and their jobs into the database: whole or not at all, and once per submit key."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import orjson

from gridbot_client.protocol.manifest import CLOCK_ERROR_SECONDS
from gridbot_client.protocol.messages import FileRef, Manifest, manifest_id
from gridbot_client.protocol.signatures import fingerprint, manifest_statement
from gridbot_client.protocol.traces import TracedBot
from gridbot_server.bots import gangs, known_answers, reuse
from gridbot_server.bots.derivation import derivation_of
from gridbot_server.bots.job_parts import (
    JobPart,
    Sign,
    SignedBy,
    are_there,
    sign_parts,
    signed,
    unsigned_parts,
)
from gridbot_server.bots.program import program_of
from gridbot_server.bots.validation import (
    Draft,
    JobSpec,
    Range,
    Seal,
    check_jobs,
    files_to_send,
    make_draft,
)
from gridbot_server.errors import (
    Conflict,
    InvalidEnvelope,
    MissingFiles,
    ObjectNotFound,
    QuotaExceeded,
    RequestError,
    SubmitKeyUsed,
    WrongOffset,
)
from gridbot_server.http.auth import Key
from gridbot_server.models.requests import SubmissionRequest
from gridbot_server.signing.stock_clients import TO_STORAGE, StockClients, Unsuitable
from gridbot_server.storage import sql
from gridbot_server.storage.counters import API, NO_GRID, Counters
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import fetch, fetch_one, fetch_value, has_row

SQL = sql.load("submission.sql")
GROUPS = sql.load("groups.sql")


UNSIGNED_SECONDS = 366 * 86_400  # how long a BOT that arrives unsigned may run, once it is signed


@dataclass(frozen=True, slots=True)
class ProjectSigner:
    """The project's key, where it is on this server."""

    key: bytes  # public
    sign: Sign


@dataclass(frozen=True, slots=True)
class SubmissionReceipt:
    """The BOT of a submission, and whether it was made now or found by its submit key."""

    bot: int
    is_new: bool


def submit(
    conn: PostgresConnection,
    key: Key,
    body: SubmissionRequest,
    stock: StockClients,
    signer: ProjectSigner | None,
    traced: TracedBot | None = None,
) -> SubmissionReceipt:
    """Insert a BOT with its jobs in one transaction, or find the one this key already made.

    With `signer` it is signed for strangers' clients, and for stock clients if it suits them.
    With `traced` it belongs to a trace.
    The owner's row is locked meanwhile: equal submissions that race make one BOT, and
    the quota holds however many submissions run.
    """
    signer = present(conn, signer) if body.together == 1 else None
    draft = make_draft(body, key.owner_name, _seal(conn, key.owner, signer))
    parts = _parts(draft, signer)
    with conn.transaction():
        max_jobs = _lock_owner(conn, key.owner)
        if (found := _find(conn, key.owner, body.submit_key, draft)) is not None:
            return SubmissionReceipt(found, is_new=False)
        _check_quota(conn, key.owner, max_jobs, draft.size)
        files = [*files_to_send(draft.manifest, _listed(draft)), *known_answers.files(draft.known)]
        check_files(conn, key.owner, files)
        _check_key(conn, key, draft)
        _check_comparison(conn, key, body)
        bot = _insert(conn, key.owner, body, draft, signer)
        if traced is not None:
            _trace(conn, bot, traced)
        _insert_jobs(conn, bot, draft)
        if draft.jobs is not None:
            _reuse(conn, bot)
        known_answers.insert(conn, bot, draft.known)
        _copy_parts(conn, bot, parts)
        if body.outputs_to is not None:
            conn.execute(SQL["refuse_boinc"], {"bot": bot, "why": TO_STORAGE})
        elif signer is not None:
            _sign_for_stock(conn, bot, draft, stock)
    return SubmissionReceipt(bot, is_new=True)


class _Locked(NamedTuple):
    """A BOT whose row the transaction holds."""

    state: str
    size: int
    manifest: str
    is_for_stock: bool
    waits_for_signature: bool
    growing: bool
    was_growing: bool
    closed: str | None  # why it grows no more
    together: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Jobs on their way into a BOT: after `sizes[n]` more jobs came signature n.

    They go behind the `offset` jobs that are there.  `key` is that of the request, if it has one.
    """

    offset: int
    jobs: list[JobSpec]
    sizes: list[int]
    signatures: list[bytes]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class AppendReceipt:
    """Where the jobs of a request are, and how many the BOT has now."""

    first: int
    jobs_total: int


class _Sealing(NamedTuple):
    """What the manifest of an unsigned BOT says of its signer."""

    project: bytes  # the project's first key
    owner_key: bytes | None  # the owner's latest
    now: int


class _Found(NamedTuple):
    """The BOT that an earlier submission with the same key made."""

    id: int
    manifest: str


class _Blob(NamedTuple):
    """A content that is here."""

    sha256: bytes
    size: int


def add_jobs(
    conn: PostgresConnection,
    owner: int,
    bot: int,
    appended: Appended,
    stock: StockClients,
    signer: ProjectSigner | None,
) -> AppendReceipt:
    """Append jobs to an open or growing BOT.

    A BOT that its owner signed takes only signed jobs.  Raises WrongOffset with the jobs there, so
    that a sender whose reply was lost goes on.  To a growing BOT others may have appended since:
    there a request is a repetition, which changes nothing, if its key was seen, or if it has none
    and its very jobs are there already.
    """
    jobs, offset, signer = appended.jobs, appended.offset, present(conn, signer)
    with conn.transaction():
        max_jobs = _lock_owner(conn, owner)
        found = _lock_bot(conn, bot)
        manifest, size = Manifest.from_text(found.manifest), found.size
        if found.was_growing and jobs and offset < size:
            first = _repeated(conn, bot, appended)
            if first is not None:
                return AppendReceipt(first, size)
        if found.state != "open" and not found.growing:
            why = f"it was closed {found.closed}" if found.closed else f"it is {found.state}"
            raise Conflict(f"BOT {bot} takes no more jobs, {why}", jobs_total=size)
        if offset != size:
            raise WrongOffset(f"BOT {bot} has {size} jobs, not {offset}", jobs_total=size)
        check_jobs(manifest, jobs, first=offset)
        _check_quota(conn, owner, max_jobs, len(jobs))
        check_files(conn, owner, files_to_send(replace(manifest, inputs=()), jobs))
        parts = _appended_parts(found, manifest, appended, signer)
        _copy(conn, _rows(bot, jobs, first=offset))
        _copy_parts(conn, bot, parts, appended.key)
        conn.execute(SQL["grow"], {"bot": bot, "size": len(jobs)})
        if found.growing:
            _note_jobs(conn, bot, len(jobs))
            _reuse(conn, bot, offset)
        if found.is_for_stock and (why := _unsuitable(stock, manifest, jobs)):
            conn.execute(SQL["refuse_boinc"], {"bot": bot, "why": why})
    return AppendReceipt(offset, size + len(jobs))


def _repeated(conn: PostgresConnection, bot: int, appended: Appended) -> int | None:
    """Return where the jobs of this request are if it came before, else None."""
    if appended.key is None:
        made = unsigned_parts(appended.jobs, appended.offset, None)
        return appended.offset if are_there(conn, bot, made) else None
    values = {"bot": bot, "offset": appended.offset, "key": appended.key}
    return fetch_value(conn, int, SQL["appended_with"], values)


def start(conn: PostgresConnection, bot: int) -> None:
    """Let an open BOT run; one that runs or ran already is left as it is."""
    with conn.transaction():
        _lock_owner(conn, _owner_of(conn, bot))  # before the BOT, as all who submit do
        found = _lock_bot(conn, bot)
        if found.state == "cancelled":
            raise Conflict(f"BOT {bot} is cancelled, submit it again")
        if found.state == "open" and found.size == 0:
            raise RequestError(f"BOT {bot} has no jobs, add some first")
        gangs.check_size(found.together, found.size)
        if (job := known_answers.beyond(conn, bot, found.size)) is not None:
            raise RequestError(f"known_answers: job {job}: BOT {bot} has {found.size} jobs")
        if conn.execute(SQL["start"], {"bot": bot}).rowcount:
            _note_jobs(conn, bot, found.size)
            _reuse(conn, bot)


def _reuse(conn: PostgresConnection, bot: int, first: int = 0) -> None:
    """Give jobs of a running BOT from a number on the outcomes that are there, if it wants them."""
    counters = Counters()
    if reuse.reuse(conn, bot, first, counters):
        counters.write(conn, API)


def _note_jobs(conn: PostgresConnection, bot: int, jobs: int) -> None:
    """Let the history know of jobs that may be sent from now on."""
    counters = Counters()
    counters.note(bot, NO_GRID, "added", jobs)
    counters.write(conn, API)


def _lock_owner(conn: PostgresConnection, owner: int) -> int:
    most = fetch_value(conn, int, SQL["lock_owner"], {"owner": owner})
    assert most is not None, "owners are never deleted"
    return most


def _owner_of(conn: PostgresConnection, bot: int) -> int:
    owner = fetch_value(conn, int, SQL["owner_of"], {"bot": bot})
    if owner is None:
        raise ObjectNotFound(f"there is no BOT {bot}")
    return owner


def _lock_bot(conn: PostgresConnection, bot: int) -> _Locked:
    found = fetch_one(conn, _Locked, SQL["lock_bot"], {"bot": bot})
    if found is None:
        raise ObjectNotFound(f"there is no BOT {bot}")
    return found


def _find(conn: PostgresConnection, owner: int, submit_key: str, draft: Draft) -> int | None:
    found = fetch_one(conn, _Found, SQL["find"], {"owner": owner, "submit_key": submit_key})
    if found is None:
        return None
    if _unsealed(found.manifest) != _unsealed(draft.manifest.text()):
        raise SubmitKeyUsed(
            f"the submit key {submit_key!r} made BOT {found.id}, which runs another thing",
            bot=found.id,
        )
    return found.id


def _unsealed(text: str) -> Manifest:
    """A manifest without what differs whenever it is submitted."""
    manifest = Manifest.from_text(text)
    return replace(manifest, bot="", project="", owner_key="", not_before=0, expires=0)


def _seal(conn: PostgresConnection, owner: int, signer: ProjectSigner | None) -> Seal:
    """What a manifest says that arrives unsigned.

    Its job table is signed by the owner's latest key, unless the project's is to do it at once.
    """
    found = fetch_one(conn, _Sealing, SQL["sealing"], {"owner": owner})
    assert found is not None, "a server has a project key since its first start"
    by_owner = found.owner_key is not None and signer is None
    return Seal(
        project=fingerprint(found.project),
        bot=secrets.token_hex(16),
        owner_key=found.owner_key.hex() if found.owner_key and by_owner else "",
        not_before=found.now - CLOCK_ERROR_SECONDS,
        expires=found.now + UNSIGNED_SECONDS,
    )


def present(conn: PostgresConnection, signer: ProjectSigner | None) -> ProjectSigner | None:
    """The signer, unless the project has another key by now: new clients would not trust it."""
    if signer and has_row(conn, SQL["is_project_key"], {"key": signer.key.hex()}):
        return signer
    return None


def _check_key(conn: PostgresConnection, key: Key, draft: Draft) -> None:
    """Let a BOT be signed only with a key that is known to be its owner's."""
    if draft.signature is None:
        return
    if not is_good_key(conn, key.owner, bytes.fromhex(draft.manifest.owner_key)):
        raise InvalidEnvelope(
            f"envelope.owner_key: {draft.manifest.owner_key} is not a signing key of"
            f" {key.owner_name}, or it was revoked; to make it known: gridbot key add"
        )


def is_good_key(conn: PostgresConnection, owner: int, key: bytes) -> bool:
    """Whether this is a signing key of the owner, and was not revoked."""
    return has_row(conn, SQL["is_good_key"], {"key": key, "owner": owner})


def _check_comparison(conn: PostgresConnection, key: Key, body: SubmissionRequest) -> None:
    """Let a program compare answers on this machine only if an operator allows its owner that."""
    program = body.comparison
    if program is None:
        return
    if not fetch_value(conn, bool, SQL["may_compare"], {"owner": key.owner}):
        raise RequestError(
            f"validator {body.validator}: it would run on the server, which {key.owner_name} is not"
            f" allowed; ask an operator for: gridbot user comparisons {key.owner_name} --allow"
        )
    check_files(conn, key.owner, [FileRef(**program.model_dump())])


def _parts(draft: Draft, signer: ProjectSigner | None) -> list[JobPart]:
    """Parts of the jobs that come with a submission, signed if anybody signs them now."""
    if not isinstance(draft.jobs, list):
        return []
    made = unsigned_parts(draft.jobs, 0, None)
    manifest = manifest_id(draft.manifest.text())
    if draft.signature is not None:
        by = SignedBy(manifest, bytes.fromhex(draft.manifest.owner_key))
        return signed(made, draft.parts, by)
    return sign_parts(made, manifest, signer.sign) if signer else made


def _appended_parts(
    bot: _Locked, manifest: Manifest, appended: Appended, signer: ProjectSigner | None
) -> list[JobPart]:
    id, first = manifest_id(bot.manifest), appended.offset
    if manifest.version == 1:
        return []
    if bot.waits_for_signature:
        if appended.signatures:
            raise RequestError("the BOT itself is not signed, so its jobs cannot be")
        return unsigned_parts(appended.jobs, first, None)
    if manifest.owner_key:
        made = unsigned_parts(appended.jobs, first, appended.sizes)
        if sum(appended.sizes) != len(appended.jobs):
            raise RequestError(
                f"{len(appended.jobs) - sum(appended.sizes)} jobs at the end are not signed:"
                ' the line {"#signature": …} must follow them'
            )
        by = SignedBy(id, bytes.fromhex(manifest.owner_key))
        return signed(made, appended.signatures, by)
    if signer is None:
        raise Conflict("the project's key signs this BOT's jobs, and it is not on this server")
    return sign_parts(unsigned_parts(appended.jobs, first, None), id, signer.sign)


def _check_quota(conn: PostgresConnection, owner: int, max_jobs: int, more: int) -> None:
    there = fetch_value(conn, int, SQL["unfinished"], {"owner": owner}) or 0
    if there + more > max_jobs:
        raise QuotaExceeded(
            f"the quota is {max_jobs:,} jobs in unfinished BOTs: {there:,} are there,"
            f" {more:,} more do not fit"
        )


def _listed(draft: Draft) -> list[JobSpec]:
    return draft.jobs if isinstance(draft.jobs, list) else []


def check_files(conn: PostgresConnection, owner: int, files: Iterable[FileRef]) -> None:
    """Raise MissingFiles unless the owner has sent them all: others' files do not count."""
    wanted = {ref.sha256: ref for ref in files}
    if not wanted:
        return
    hashes = [bytes.fromhex(sha256) for sha256 in wanted]
    blobs = fetch(conn, _Blob, SQL["blobs"], {"owner": owner, "hashes": hashes})
    sizes = {blob.sha256.hex(): blob.size for blob in blobs}
    if missing := sorted(wanted.keys() - sizes.keys()):
        names = ", ".join(wanted[sha256].name for sha256 in missing[:5])
        raise MissingFiles(f"not uploaded yet: {names}", missing=missing)
    for sha256, ref in wanted.items():
        if ref.size != sizes[sha256]:
            raise RequestError(f"inputs: {ref.name} has {sizes[sha256]} bytes, not {ref.size}")


def _insert(
    conn: PostgresConnection,
    owner: int,
    body: SubmissionRequest,
    draft: Draft,
    signer: ProjectSigner | None,
) -> int:
    text = draft.manifest.text()
    chosen = body.model_dump(
        include={
            "submit_key", "name", "policy", "quorum", "validator", "max_attempts", "max_replicas",
            "tail_threshold", "tail_sticky", "failover_after", "max_failures", "growing",
            "together", "gather_seconds", "reuse",
        }
    )  # fmt: skip
    values = {
        **chosen,
        "owner": owner,
        "state": "open" if draft.jobs is None and not body.growing else "running",
        "manifest": text,
        "signature": signer.sign(manifest_statement(text)) if signer else None,
        "signed_with": signer.key if signer else None,
        "owner_signature": draft.signature,
        "waits": draft.signature is None and signer is None,
        "assurance": draft.policies.assurance,
        "program": program_of(owner, draft.manifest),
        "derivation": derivation_of(owner, draft.manifest),
        "size": draft.size,
        "compare_with": bytes.fromhex(body.comparison.sha256) if body.comparison else None,
        "bot_group": _group(conn, owner, body.group),
        "owner_storage": _storage(conn, owner, body.outputs_to),
    }
    bot = fetch_value(conn, int, SQL["insert_bot"], values)
    assert bot is not None, "it is inserted"
    if draft.size:
        _note_jobs(conn, bot, draft.size)
    return bot


def _trace(conn: PostgresConnection, bot: int, traced: TracedBot) -> None:
    trace = traced.trace.id + traced.trace.span
    conn.execute(SQL["trace"], {"bot": bot, "trace": trace, "jobs": traced.jobs})


def _group(conn: PostgresConnection, owner: int, name: str | None) -> int | None:
    if name is None:
        return None
    return fetch_value(conn, int, GROUPS["join"], {"owner": owner, "name": name})


def _storage(conn: PostgresConnection, owner: int, name: str | None) -> int | None:
    if name is None:
        return None
    found = fetch_value(conn, int, SQL["storage"], {"owner": owner, "name": name})
    if found is None:
        raise RequestError(
            f"outputs_to: you have no storage {name}; to add it: gridbot storage add {name} s3://…"
        )
    return found


def _insert_jobs(conn: PostgresConnection, bot: int, draft: Draft) -> None:
    match draft.jobs:
        case Range() as jobs:
            values = {"bot": bot, "start": jobs.start, "step": jobs.step, "size": jobs.size}
            conn.execute(SQL["insert_range"], values)
        case list() as jobs:
            _copy(conn, _rows(bot, jobs, first=0))
        case None:
            pass


def _sign_for_stock(conn: PostgresConnection, bot: int, draft: Draft, stock: StockClients) -> None:
    """Let stock clients run the BOT, or note why they cannot: it is for native clients, then."""
    why = _unsuitable(stock, draft.manifest, _listed(draft))
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


def _copy_parts(
    conn: PostgresConnection, bot: int, parts: Iterable[JobPart], key: str | None = None
) -> None:
    with conn.cursor() as cursor, cursor.copy(SQL["copy_parts"]) as copy:
        copy.set_types(["int8", "int8", "int2", "bytea", "bytea", "text"])
        for part in parts:
            copy.write_row((bot, *part, key))


def _copy(conn: PostgresConnection, rows: Iterator[tuple[int, int, str, str | None]]) -> None:
    with conn.cursor() as cursor, cursor.copy(SQL["copy_jobs"]) as copy:
        for row in rows:
            copy.write_row(row)
