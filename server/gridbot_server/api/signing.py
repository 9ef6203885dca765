"""Keys that sign BOTs, what they sign, and what they have revoked."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus

from flask import Blueprint, Response

from gridbot_client.protocol.messages import Manifest
from gridbot_client.protocol.signatures import Introduction, Revocation, fingerprint
from gridbot_server.api.access import bot_owner, manifest_of
from gridbot_server.api.content import is_of, send_content, sends_content
from gridbot_server.api.schema import answers, json_body
from gridbot_server.bots import signing
from gridbot_server.errors import ObjectNotFound, RequestError
from gridbot_server.http import auth
from gridbot_server.http.services import connection
from gridbot_server.models.requests import NewRevocation, NewSigningKey, NextProjectKey
from gridbot_server.models.responses.signing import (
    ReplacedProjectKey,
    RevocationInfo,
    Revocations,
    RevokedBots,
    SignablePart,
    SignableParts,
    Signing,
    SigningKeyInfo,
)
from gridbot_server.storage.db import Connection

blueprint = Blueprint("signing", __name__, url_prefix="/api/v1")


@blueprint.get("/bots/<int:bot>/inputs/<sha256>")
@auth.rule("user")
@sends_content
def fetch_bot_input(bot: int, sha256: str) -> Response:
    """Send a file that all jobs of a BOT share, for whoever is to sign it."""
    with connection() as conn:
        owner = bot_owner(conn, bot)
        manifest = Manifest.from_text(manifest_of(conn, bot).manifest)
        is_input = sha256 in (ref.sha256 for ref in manifest.inputs)
        # One with sources need not be here; its hash gives nobody the file of another.
        is_here = is_input and is_of(conn, owner, sha256)
    if not is_here:
        raise ObjectNotFound(f"BOT {bot} has no input {sha256[:64]!r}")
    return send_content(sha256)


@blueprint.get("/bots/<int:bot>/parts")
@auth.rule("user")
@answers()
def list_parts(bot: int) -> SignableParts:
    """List the parts of a BOT's job table, each to be signed by itself; a range has none."""
    with connection() as conn:
        bot_owner(conn, bot)
        found = signing.parts_of(conn, bot)
    return SignableParts(
        parts=[
            SignablePart(
                first=part.first,
                size=part.size,
                root=part.root.hex(),
                is_signed=part.signature is not None,
                signature=base64.b64encode(part.signature).decode() if part.signature else None,
            )
            for part in found
        ]
    )


@blueprint.get("/signing")
@auth.rule("user")
@answers()
def show_signing() -> Signing:
    """Tell what a submitter must know to sign: the project, and the owner's keys."""
    with connection() as conn:
        return _signing(conn)


@blueprint.post("/signing/keys")
@auth.rule("user")
@json_body
@answers(HTTPStatus.OK, errors=(HTTPStatus.CONFLICT,))
def add_signing_key(json: NewSigningKey) -> Signing:
    """Make a key known that signs this owner's BOTs; all but the first need an older one's word."""
    key = bytes.fromhex(json.key)
    if (json.introduced_by is None) != (json.signature is None):
        raise RequestError("introduced_by and signature: give both or neither")
    item: Introduction | bytes = key
    if json.introduced_by and json.signature:
        item = Introduction(bytes.fromhex(json.introduced_by), key, decode(json.signature))
    with connection() as conn:
        signing.add_key(conn, auth.key().owner, json.label, item)
        return _signing(conn)


@blueprint.put("/signing/project-key")
@auth.rule("operator")
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def replace_project_key(json: NextProjectKey) -> ReplacedProjectKey:
    """Announce the project's next key, introduced by the present one."""
    with connection() as conn:
        found = signing.follow(conn, bytes.fromhex(json.key), decode(json.signature))
    return ReplacedProjectKey(unsigned=found)


@blueprint.post("/signing/revocations")
@auth.rule("user")
@json_body
@answers(errors=(HTTPStatus.CONFLICT,))
def add_revocation(json: NewRevocation) -> RevokedBots:
    """Revoke a key or a BOT, by the word of a key that may; clients keep it."""
    item = Revocation(json.subject, bytes.fromhex(json.signer), decode(json.signature))
    with connection() as conn:
        return RevokedBots(bots=signing.revoke(conn, auth.key(), item))


@blueprint.get("/clients/self/revocations")
@auth.rule("client")
@answers()
def list_revocations() -> Revocations:
    """List what keys have revoked, for a client to keep."""
    with connection() as conn:
        found = signing.revocations(conn)
    return Revocations(
        revocations=[
            RevocationInfo(
                subject=row.subject.hex(),
                signer=row.signer.hex(),
                signature=base64.b64encode(row.signature).decode(),
            )
            for row in found
        ]
    )


def decode(text: str) -> bytes:
    """Read a signature whose form the model has checked."""
    return binascii.a2b_base64(text)


def _signing(conn: Connection) -> Signing:
    project, key = signing.project_keys(conn), auth.key()
    known = signing.keys_of(conn, key.owner)
    return Signing(
        owner=key.owner_name,
        project=fingerprint(project.first),
        project_key=project.key.hex(),
        keys=[
            SigningKeyInfo(
                key=row.key.hex(),
                fingerprint=fingerprint(row.key),
                label=row.label,
                introduced_by=row.introduced_by.hex() if row.introduced_by else None,
                created_at=row.created_at,
                is_revoked=row.is_revoked,
            )
            for row in known
        ],
    )
