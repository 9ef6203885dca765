"""Takes what was signed where the code signing key is: applications, and the key after it.

Nothing is believed: every signature is checked with the public key in use before it is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from gridbot_client.protocol import messages
from gridbot_client.protocol.messages import Manifest
from gridbot_server.boinc.application import code_keys, code_signatures, description, signed
from gridbot_server.boinc.application.code_keys import Chain, Link
from gridbot_server.boinc.application.offers import content_md5s, keep_scripts, read_chain
from gridbot_server.boinc.application.signed import BadApplication, SignedApplication
from gridbot_server.errors import Conflict, Gone, RequestError, ServerBusy
from gridbot_server.signing.keys import KeyFileError
from gridbot_server.signing.stock_clients import TO_STORAGE, Unsuitable
from gridbot_server.storage import sql
from gridbot_server.storage.db import PostgresConnection
from gridbot_server.storage.files import Store
from gridbot_server.storage.rows import fetch_only, fetch_only_value, fetch_values

log = logging.getLogger(__name__)

SQL = sql.load("boinc.sql")

# Told to the owner of a BOT that waits to be signed anew.
OUTDATED = "the code signing key was changed since: gridbot app sign signs it with the new one"
_JOBS_AT_ONCE = 1000
# Any constant will do, as long as nothing else locks it.
_JOBS_LOCK = 7_216_004_901


def accept(conn: PostgresConnection, store: Store, bot: int, given: SignedApplication) -> None:
    """Let stock clients run a BOT from now on; safe to repeat.

    Raises RequestError unless the key in use signed all of it, Conflict for a BOT that stock
    clients cannot run, ServerBusy while the jobs of another are looked at; all change nothing.
    """
    manifest, is_offered = _manifest(conn, bot)
    # The jobs may be millions: nobody has them looked at without a signature, or twice.
    with conn.transaction():
        _checked(conn, manifest, given)
    if not is_offered:
        _check_jobs(conn, bot, manifest)
    with conn.transaction():
        kept = _checked(conn, manifest, given)
        keep_scripts(conn, store, kept)
        conn.execute(SQL["offer"], {"bot": bot, "signed": kept.text()})


def rotate(conn: PostgresConnection, key: str, signature: str) -> list[int]:
    """Make a key the one in use that the key before it signed; safe to repeat.

    No BOT is offered to stock clients until it is signed with the new key; returns the
    unfinished ones that were and now wait for that.  Raises RequestError for a key that is weak,
    was in use before, or is not signed by the one in use.
    """
    with conn.transaction():
        chain = read_chain(conn, SQL["lock_chain"])
        if (longer := _longer(chain, Link(key.strip(), signature))) != chain:
            conn.execute(SQL["change_chain"], {"chain": longer.text()})
            conn.execute(SQL["withdraw"], {"why": OUTDATED})
            log.warning("BOINC clients are led to the code signing key %d", len(longer.links))
        return fetch_values(conn, int, SQL["withdrawn"], {"why": OUTDATED})


class _Bot(NamedTuple):
    state: str
    manifest: str
    is_offered: bool
    is_replaced: bool  # its manifest, by a retry
    has_storage: bool  # of its owner's, to which its outputs go


def _manifest(conn: PostgresConnection, bot: int) -> tuple[Manifest, bool]:
    """What a BOT runs, once its jobs are all here and will not change any more.

    And whether it is offered to stock clients, so that its jobs are known to suit them.
    """
    row = fetch_only(conn, _Bot, SQL["state_and_manifest"], {"bot": bot})
    if row.state == "open":
        raise Conflict(f"BOT {bot} still waits for jobs: sign it when it is started")
    if row.has_storage:
        raise Conflict(f"BOT {bot} is not for BOINC clients: {TO_STORAGE}")
    if row.is_replaced:
        # They know an application by the BOT's number, and keep it.
        raise Conflict(
            f"BOT {bot} is not for BOINC clients: a retry replaced its manifest, and they keep the"
            " first version"
        )
    return Manifest.from_text(row.manifest), row.is_offered


def _checked(
    conn: PostgresConnection, manifest: Manifest, given: SignedApplication
) -> SignedApplication:
    """What was given, without anything that the key in use did not sign."""
    with _suitable():  # also that it can be made here, to be compared
        description.check_manifest(manifest)
    public = code_keys.parse_public(read_chain(conn, SQL["share_chain"]).newest)
    md5s = content_md5s(conn, manifest.inputs)
    for ref in manifest.inputs:
        if ref.sha256 not in md5s:
            raise Gone(f"the input {ref.name} is not kept here any more: submit the BOT again")
    try:
        signed.check_scripts(manifest, given.scripts)
        files = signed.check(manifest, given, lambda ref: md5s[ref.sha256], public)
    except BadApplication as error:
        raise RequestError(f"signatures: {error}") from None
    signatures = {file.sha256: file.signature for file in chain(*files)}
    return SignedApplication(given.scripts, signatures, bool(manifest.programs))


def _check_jobs(conn: PostgresConnection, bot: int, manifest: Manifest) -> None:
    """Raise Conflict for a BOT with a job that stock clients cannot run.

    One BOT at a time, on all servers together, so that no more than one connection is kept.
    """
    with conn.transaction(), _suitable():
        if not fetch_only_value(conn, bool, SQL["try_jobs_lock"], {"lock": _JOBS_LOCK}):
            raise ServerBusy("the jobs of another BOT are being looked at: send it again")
        for args, inputs in _unusual_jobs(conn, bot, manifest):
            refs = tuple(messages.file_ref(item) for item in inputs or ())
            description.check_job(manifest, args, refs)


@contextmanager
def _suitable() -> Iterator[None]:
    try:
        yield
    except Unsuitable as error:
        raise Conflict(f"this BOT is not for BOINC clients: {error}") from None


def _unusual_jobs(
    conn: PostgresConnection, bot: int, manifest: Manifest
) -> Iterator[tuple[Any, ...]]:
    """The jobs that may be too much for a stock client: with files of their own, or long texts.

    A program that is made for BOINC's API cannot be passed any text.
    """
    with conn.cursor("unusual_jobs") as cursor:
        cursor.itersize = _JOBS_AT_ONCE
        is_any = manifest.boinc_api and "text" in manifest.placeholders.values()
        most = 0 if is_any else description.SURELY_FITS_BYTES
        values = {"bot": bot, "most": most}
        yield from cursor.execute(SQL["unusual_jobs"], values)


def _longer(chain: Chain, link: Link) -> Chain:
    if link.key == chain.newest:
        return chain
    try:
        return code_signatures.append(chain, link)
    except KeyFileError as error:
        raise RequestError(f"key: {error}") from None
