"""Signatures that come after the submission, new keys, and revocations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from gridbot_client.protocol.messages import Manifest, manifest_id
from gridbot_client.protocol.signatures import (
    Introduction,
    Revocation,
    fingerprint,
    manifest_statement,
    verify,
)
from gridbot_server.bots.job_parts import JobPart, SignedBy, signed
from gridbot_server.errors import Conflict, Forbidden, ObjectNotFound, RequestError
from gridbot_server.http.auth import Key
from gridbot_server.storage import sql
from gridbot_server.storage.db import Connection
from gridbot_server.storage.rows import (
    fetch,
    fetch_one,
    fetch_only,
    fetch_only_value,
    fetch_value,
    fetch_values,
)

SQL = sql.load("signing.sql")
MOST_KEYS = 50  # of one owner, and of the project: clients take 100 introductions with a BOT
MOST_REVOCATIONS = 500  # by one owner's keys: clients keep 10,000 of all


class RevocationRow(NamedTuple):
    """A row of `revocation`."""

    subject: bytes
    signer: bytes
    signature: bytes


class ProjectKeys(NamedTuple):
    """The project's first key, which names it, and the present one."""

    first: bytes
    key: bytes


class _Bot(NamedTuple):
    """A BOT's manifest and who has signed it, its row locked."""

    manifest: str
    version: int
    signature: bytes | None
    owner_signature: bytes | None


def project_keys(conn: Connection) -> ProjectKeys:
    """Return the project's keys."""
    return fetch_only(conn, ProjectKeys, SQL["project"])


def project_links(conn: Connection) -> list[Introduction]:
    """Return how the project's earlier keys lead to its present one."""
    return [Introduction(*link) for link in fetch(conn, _Link, SQL["project_links"])]


class _Link(NamedTuple):
    """An older key's word for a newer one."""

    old: bytes
    new: bytes
    signature: bytes


def parts_of(conn: Connection, bot: int) -> list[JobPart]:
    """Return the parts of a BOT's job table, in order; none for a range."""
    return fetch(conn, JobPart, SQL["parts"], {"bot": bot})


def sign_bot(conn: Connection, bot: int, signature: bytes, parts: Sequence[bytes]) -> None:
    """Attach a signature of the project's key, or of the owner's that the manifest names.

    The job table is signed by the owner's key, or if the manifest names none by the project's; that
    of a range needs no signature.  The BOT runs from then on.  Raises RequestError if a signature
    is neither's, Conflict if the owner must sign the jobs first.
    """
    with conn.transaction():
        found = fetch_one(conn, _Bot, SQL["lock_bot"], {"bot": bot})
        if found is None:
            raise ObjectNotFound(f"there is no BOT {bot}")
        if found.version == 1:
            raise Conflict(
                f"BOT {bot} was submitted before signatures covered jobs: submit it again"
            )
        id, manifest = manifest_id(found.manifest), Manifest.from_text(found.manifest)
        owner_key, project = bytes.fromhex(manifest.owner_key), project_keys(conn).key
        _check_unrevoked(conn, bot, id, owner_key)
        statement = manifest_statement(found.manifest)
        is_owners = bool(owner_key) and verify(owner_key, statement, signature)
        if not is_owners and not verify(project, statement, signature):
            raise RequestError(
                "signature: it is neither the project key's nor the owner key's over this BOT's"
                " manifest"
            )
        signs_parts = is_owners or not owner_key
        if signs_parts:
            sign_parts(conn, bot, parts, SignedBy(id, owner_key or project))
        elif parts:
            raise RequestError("parts: the owner's key signs the jobs of this BOT")
        elif found.owner_signature is None and manifest.range is None:
            raise Conflict(
                f"the owner's key signs the jobs of BOT {bot}, so its owner signs first:"
                f" gridbot app sign {bot}"
            )
        values = {
            "bot": bot,
            "signature": None if is_owners else signature,
            "signed_with": None if is_owners else project,
            "owner_signature": signature if is_owners else None,
        }
        conn.execute(SQL["sign"], values)


def add_key(conn: Connection, owner: int, label: str, item: Introduction | bytes) -> None:
    """Make a key known that signs an owner's BOTs; harmless if it is known.

    The first key needs nobody's word, nor does one that comes after all others were revoked; any
    other needs that of an older one.
    """
    new = item if isinstance(item, bytes) else item.new
    with conn.transaction():
        conn.execute(SQL["lock_owner"], {"owner": owner})
        known = {row.key: row for row in keys_of(conn, owner)}
        if new in known:
            return
        if len(known) >= MOST_KEYS:
            raise Conflict(f"an owner has at most {MOST_KEYS} signing keys")
        if isinstance(item, bytes):
            if not all(row.is_revoked for row in known.values()):
                raise Conflict(
                    "this owner has a signing key; a further one must be introduced by it: on the"
                    f" machine with that key run gridbot key add {new.hex()}"
                )
        else:
            older = known.get(item.old)
            if older is None or older.is_revoked:
                raise RequestError("introduced_by: it is not a signing key of this owner")
            if not item.is_valid():
                raise RequestError("signature: it is not the older key's word for the new one")
        word = item if isinstance(item, Introduction) else None
        values = {
            "key": new,
            "owner": owner,
            "label": label,
            "introduced_by": word.old if word else None,
            "signature": word.signature if word else None,
        }
        conn.execute(SQL["add_key"], values)
        conn.execute(SQL["touch_bots"], {"owner": owner})


class KnownKey(NamedTuple):
    """A row of `signing_key`."""

    key: bytes
    label: str
    introduced_by: bytes | None
    created_at: datetime
    is_revoked: bool


def follow(conn: Connection, new: bytes, signature: bytes) -> list[int]:
    """Replace the project's key by the one that it introduces; return what it has to sign again.

    These are the unfinished BOTs that the earlier key signed: clients that join from now on pin the
    new one.
    """
    with conn.transaction():
        conn.execute(SQL["lock_project"])
        present = project_keys(conn).key
        if new == present:
            return fetch_values(conn, int, SQL["unsigned"])
        links = project_links(conn)
        if any(new in (link.old, link.new) for link in links):
            raise Conflict("key: it was the project's key before; make a new one")
        if len(links) >= MOST_KEYS:
            raise Conflict(f"a project has at most {MOST_KEYS} keys one after the other")
        if not Introduction(present, new, signature).is_valid():
            raise RequestError(
                "signature: it is not the present project key's word for the new one"
            )
        conn.execute(SQL["add_project_key"], {"key": new, "old": present, "signature": signature})
        conn.execute(SQL["unsign_by_project"])
        return fetch_values(conn, int, SQL["unsigned"])


def revoke(conn: Connection, key: Key, item: Revocation) -> list[int]:
    """Keep a revocation for clients; return the unfinished BOTs that wait now.

    A key of the project may revoke anything; any other only what belongs to its owner.
    """
    if not item.is_valid():
        raise RequestError("signature: it is not the signer's over this revocation")
    subject = bytes.fromhex(item.subject)
    with conn.transaction():
        is_projects = item.signer == project_keys(conn).key
        if not is_projects:
            owners = fetch_values(conn, int, SQL["owners_of_key"], {"key": item.signer})
            if not owners or not (key.owner in owners or key.is_operator):
                raise Forbidden("signer: it is not a signing key of yours")
            values = {"owners": owners, "subject": subject}
            if not fetch_value(conn, bool, SQL["revocable"], values):
                raise Forbidden("subject: it is neither a key nor a BOT of the signer's owner")
            made_before = fetch_only_value(conn, int, SQL["count_revocations"], {"owners": owners})
            if made_before >= MOST_REVOCATIONS:
                raise Conflict(
                    f"an owner revokes at most {MOST_REVOCATIONS} keys and BOTs; ask the operator,"
                    " who revokes with the project's key"
                )
        made = {"subject": subject, "signer": item.signer, "signature": item.signature}
        conn.execute(SQL["add_revocation"], made)
        conn.execute(SQL["revoke_key"], {"subject": subject})
        return sorted(fetch_values(conn, int, SQL["revoke_bots"], {"subject": subject}))


def keys_of(conn: Connection, owner: int) -> list[KnownKey]:
    """Return an owner's signing keys, the oldest first."""
    return fetch(conn, KnownKey, SQL["keys"], {"owner": owner})


def revocations(conn: Connection) -> list[RevocationRow]:
    """Return what was revoked, as far as clients read: by the project first, then the newest."""
    return fetch(conn, RevocationRow, SQL["revocations"])


def owners_of_keys(conn: Connection, fingerprints: Sequence[str]) -> set[int]:
    """Return the owners of keys, known by fingerprint; nobody has an unknown key."""
    hashes = [bytes.fromhex(item) for item in fingerprints]
    return set(fetch_values(conn, int, SQL["owners_of_keys"], {"hashes": hashes}))


def _check_unrevoked(conn: Connection, bot: int, id: str, owner_key: bytes) -> None:
    """Raise Conflict for a BOT that no client would run, whoever signs it."""
    for subject, what in ((id, "the signature on"), (fingerprint(owner_key), "the owner's key of")):
        if fetch_value(conn, bool, SQL["is_revoked"], {"subject": bytes.fromhex(subject)}):
            raise Conflict(f"{what} BOT {bot} was revoked: submit it again")


def sign_parts(conn: Connection, bot: int, signatures: Sequence[bytes], by: SignedBy) -> None:
    """Put signatures to the parts of a BOT's job table.  Raises RequestError for a wrong one."""
    made = signed(parts_of(conn, bot), signatures, by)
    values = {
        "bot": bot,
        "firsts": [part.first for part in made],
        "signatures": [part.signature for part in made],
    }
    conn.execute(SQL["sign_parts"], values)
