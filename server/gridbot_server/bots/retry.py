"""Runs failed jobs again, also with another version of the manifest for all that is left.

A version begins with a round (docs/decisions/0019).  What was sent in an earlier round runs an
earlier version: its answer counts for a job that is not retried, unless answers of the BOT are
compared with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gridbot_client.protocol.messages import Manifest, ReplicaId, manifest_id
from gridbot_client.protocol.signatures import manifest_statement, verify
from gridbot_client.protocol.sources import Sources
from gridbot_server.bots import gangs
from gridbot_server.bots.job_parts import SignedBy
from gridbot_server.bots.program import program_of
from gridbot_server.bots.signing import sign_parts
from gridbot_server.bots.submission import ProjectSigner, check_files, is_good_key, present
from gridbot_server.bots.validation import check_names, files_to_send
from gridbot_server.errors import Conflict, ObjectNotFound, RequestError
from gridbot_server.storage import moves, sql
from gridbot_server.storage.counters import API, NO_GRID, Counters
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.rows import encode, fetch, fetch_one, fetch_value, fetch_values
from gridbot_server.storage.states import Event

SQL = sql.load("retry.sql")
CANCELLING = sql.load("cancelling.sql")
COMPARISONS = sql.load("comparisons.sql")
EVENTS = sql.load("assurance.sql")

_UNSUITABLE = "a retry replaced its manifest, and stock clients keep the first version of a BOT"
_CHANGEABLE = "inputs, sources, archives, resources, max_output_bytes, not_before and expires"


@dataclass(frozen=True, slots=True)
class NewVersion:
    """Another version of a BOT's manifest, and its owner's signatures, also over all jobs."""

    text: str
    signature: bytes
    parts: list[bytes]


@dataclass(frozen=True, slots=True)
class RetryReceipt:
    """How many failed jobs run again, and the version of the manifest."""

    retried: int
    version: int


class _Bot(NamedTuple):
    """A BOT whose row the transaction holds."""

    state: str
    held: str | None
    manifest: str
    version: int
    round: int
    size: int
    done: int
    failed: int
    jobs_cancelled: int
    is_compared: bool  # answers with each other
    is_for_stock: bool
    owner: int
    is_signed_by_project: bool


class _NotFailed(NamedTuple):
    """A job that cannot be retried."""

    seq: int
    why: str


class _Recalled(NamedTuple):
    """The replica on which a provisional outcome relied."""

    seq: int
    replica: int


class _Numbered(NamedTuple):
    """The last number that a BOT had given to an event."""

    bot: int
    last: int


def retry(
    conn: PostgresConnection,
    bot: int,
    jobs: Sequence[int] | None = None,
    new: NewVersion | None = None,
    signer: ProjectSigner | None = None,
) -> RetryReceipt:
    """Turn failed jobs, all or these, into unsent replicas of the next round.

    With `new` all that is left runs that version of the manifest; to repeat such a request changes
    nothing.  With `signer` the project signs it at once, if it signed the one before.
    Raises Conflict for a BOT of which nothing can be retried, RequestError for a version that is
    not one of this BOT.
    """
    signer = present(conn, signer)
    with conn.transaction():
        found = fetch_one(conn, _Bot, SQL["lock_bot"], {"bot": bot})
        if found is None:
            raise ObjectNotFound(f"there is no BOT {bot}")
        if found.state in ("open", "cancelled"):
            raise Conflict(f"BOT {bot} is {found.state}, there is nothing to retry")
        if new and new.text == found.manifest:
            values = {"bot": bot, "manifest": new.text}
            before = fetch_value(conn, int, SQL["began_with"], values)
            return RetryReceipt(before or 0, found.version)
        gangs.check_whole(conn, bot, jobs, "retry")
        _check_failed(conn, bot, jobs)
        wanted = {"bot": bot, "jobs": None if jobs is None else sorted(set(jobs))}
        conn.execute(COMPARISONS["forget_crashes"], {"bot": bot})
        conn.execute(SQL["unbind_failed"], wanted)
        retried = fetch_values(conn, int, moves.SQL["requeue_failed"], wanted)
        counters = Counters()
        if new:
            left = found.size - found.done - found.failed + len(retried)
            if not left:
                raise Conflict(f"BOT {bot} is {found.state}: no job is left to run")
            _replace(conn, bot, found, new, retried, signer, counters)
        if retried or new:
            if retried:
                counters.add(bot, "queued", len(retried))
                counters.note(bot, NO_GRID, "retried", len(retried))
            conn.execute(SQL["next_round"], {"bot": bot, "retried": len(retried)})
        counters.write(conn, API)
        return RetryReceipt(len(retried), found.version + (new is not None))


def _check_failed(conn: PostgresConnection, bot: int, jobs: Sequence[int] | None) -> None:
    if jobs is None:
        return
    values = {"bot": bot, "jobs": sorted(set(jobs))}
    if (other := fetch_one(conn, _NotFailed, SQL["not_failed"], values)) is not None:
        raise Conflict(f"job {other.seq} of BOT {bot} {other.why}: only failed jobs are retried")


def _replace(
    conn: PostgresConnection,
    bot: int,
    found: _Bot,
    new: NewVersion,
    retried: Sequence[int],
    signer: ProjectSigner | None,
    counters: Counters,
) -> None:
    """Let all that is left of a BOT run another version of its manifest."""
    manifest = _checked(conn, bot, found, new)
    by = SignedBy(manifest_id(new.text), bytes.fromhex(manifest.owner_key))
    sign_parts(conn, bot, new.parts, by)
    conn.execute(SQL["keep_first"], {"bot": bot})
    made = {"bot": bot, "manifest": new.text, "retried": len(retried)}
    conn.execute(SQL["add_version"], made)
    by_project = signer if found.is_signed_by_project else None
    values = {
        **made,
        "owner_signature": new.signature,
        "signature": by_project.sign(manifest_statement(new.text)) if by_project else None,
        "signed_with": by_project.key if by_project else None,
        "program": program_of(found.owner, manifest),
        "unsuitable": _UNSUITABLE if found.is_for_stock else None,
    }
    conn.execute(SQL["replace_manifest"], values)
    conn.execute(SQL["renew_copies"], {"bot": bot, "round": found.round + 1})
    moves.retire(conn, Event.MANIFEST_REPLACED, bot, retried, counters)
    if found.is_compared:
        _begin_anew(conn, bot, counters)


def _begin_anew(conn: PostgresConnection, bot: int, counters: Counters) -> None:
    """Let unfinished jobs begin anew: answers of two versions are never compared."""
    begun = fetch_values(conn, int, SQL["begun"], {"bot": bot})
    if not begun:
        return
    _recall(conn, bot, counters)
    held = fetch(conn, ReplicaId, SQL["in_progress"], {"bot": bot})
    listed = {"replicas": encode([name._asdict() for name in held])}
    moves.end_unanswered(conn, Event.MANIFEST_REPLACED, listed, counters)
    moves.retire(conn, Event.MANIFEST_REPLACED, bot, begun, counters)
    conn.execute(CANCELLING["forget_unjudged"], {"bot": bot, "seqs": begun})
    for name in ("unbind", "wake"):
        conn.execute(SQL[name], {"bot": bot, "jobs": begun})


def _recall(conn: PostgresConnection, bot: int, counters: Counters) -> None:
    """Take provisional outcomes back: their jobs begin anew."""
    recalled = fetch(conn, _Recalled, SQL["recall"], {"bot": bot})
    if not recalled:
        return
    count = len(recalled)
    counters.note(bot, NO_GRID, "recalled", count)
    told = encode([{"bot": bot, "events": count, "provisional": -count, "doubt": 0.0}])
    (numbered,) = fetch(conn, _Numbered, EVENTS["number_events"], {"bots": told})
    events = [
        {"bot": bot, "n": n, "seq": item.seq, "kind": "recalled", "replica": item.replica}
        for n, item in enumerate(recalled, numbered.last + 1)
    ]
    conn.execute(EVENTS["add_events"], {"events": encode(events)})


def _checked(conn: PostgresConnection, bot: int, found: _Bot, new: NewVersion) -> Manifest:
    """Make sure that it is a version of this BOT's manifest, signed by the same key."""
    old, manifest = Manifest.from_text(found.manifest), Manifest.from_text(new.text)
    if old.boinc_api:
        raise Conflict(f"BOT {bot} runs on BOINC clients alone, which keep the first version")
    kept = replace(
        manifest,
        inputs=old.inputs,
        sources=old.sources,
        archives=old.archives,
        version=old.version,
        resources=old.resources,
        max_output_bytes=old.max_output_bytes,
        not_before=old.not_before,
        expires=old.expires,
    )
    if kept.text() != found.manifest or manifest.text() != new.text:
        raise RequestError(f"manifest: a version of BOT {bot} may differ in {_CHANGEABLE} only")
    if _own_sources(manifest) != _own_sources(old):
        raise RequestError("sources: those of files that single jobs have stay as they are")
    key = bytes.fromhex(manifest.owner_key)
    if not key or not is_good_key(conn, found.owner, key):
        raise Conflict(
            f"BOT {bot} is not signed by a good key of its owner, which must sign its next version"
        )
    if not verify(key, manifest_statement(new.text), new.signature):
        raise RequestError("signature: it is not the owner key's over this manifest")
    check_names("inputs", [ref.name for ref in manifest.inputs])
    added = sorted({ref.name for ref in manifest.inputs} - {ref.name for ref in old.inputs})
    values = {"bot": bot, "names": added}
    if added and (job := fetch_value(conn, int, SQL["job_with_input"], values)) is not None:
        raise RequestError(f"inputs: job {job} has a file of its own under a name of {added}")
    check_files(conn, found.owner, files_to_send(manifest))
    return manifest


def _own_sources(manifest: Manifest) -> Sources:
    """Where files are that single jobs have."""
    shared = {ref.name for ref in manifest.inputs}
    return {name: urls for name, urls in manifest.sources.items() if name not in shared}
