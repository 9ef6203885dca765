"""Keys that sign BOTs, and what is signed of a BOT."""

from __future__ import annotations

from datetime import datetime

from gridbot_server.models.responses import ResponseModel


class SigningKeyInfo(ResponseModel):
    """A public key that signs an owner's BOTs."""

    key: str
    """Ed25519, in hex."""

    fingerprint: str
    """SHA-256 of the key: clients trust keys by it."""

    label: str
    introduced_by: str | None
    """The older key that introduced it; null for the owner's first."""

    created_at: datetime
    is_revoked: bool


class Signing(ResponseModel):
    """`GET /signing`: what a submitter must know to sign."""

    owner: str
    project: str
    """Fingerprint of the project's first key, by which manifests name the project."""

    project_key: str
    """The project's present key: Ed25519, in hex."""

    keys: list[SigningKeyInfo]


class ReplacedProjectKey(ResponseModel):
    """`PUT /signing/project-key`."""

    unsigned: list[int]
    """Unfinished BOTs that an earlier key signed, to be signed with this one."""


class RevocationInfo(ResponseModel):
    """A key's word that a key or a BOT is not trusted any more."""

    subject: str
    """Fingerprint of a key, or id of a manifest."""

    signer: str
    """Public key, in hex."""

    signature: str
    """Ed25519 over the revocation, base64."""


class Revocations(ResponseModel):
    """`GET /clients/self/revocations`."""

    revocations: list[RevocationInfo]


class RevokedBots(ResponseModel):
    """`POST /signing/revocations`."""

    bots: list[int]
    """Unfinished BOTs that wait for another signature now."""


class SignablePart(ResponseModel):
    """A part of a BOT's job table."""

    first: int
    """Number of its first job."""

    size: int
    """Jobs in it."""

    root: str
    """Root of the hash tree over the jobs, in hex."""

    is_signed: bool
    signature: str | None
    """Over the part, for the present manifest: Ed25519, base64; null: it is not signed yet."""


class SignableParts(ResponseModel):
    """`GET /bots/ID/parts`."""

    parts: list[SignablePart]
