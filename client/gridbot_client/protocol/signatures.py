"""Statements that keys sign, and their verification.

| statement | signed by | says |
|---|---|---|
| manifest | owner's key, project's key | this BOT's jobs run this command |
| part of a job table | manifest's `owner_key`, else project's key | these are jobs of that BOT |
| introduction | older key | the newer key may sign in its place |
| revocation | see `work.trust` | no longer trust this key or BOT |

Each statement begins with a context of its own, so that none passes for another.  Keys are Ed25519
public keys of 32 bytes; a fingerprint is the SHA-256 of one, in hex.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Introduction:
    """An older key's word for a newer one."""

    old: bytes
    new: bytes
    signature: bytes

    def is_valid(self) -> bool:
        """True if the older key made it."""
        return verify(self.old, introduction(self.old, self.new), self.signature)


@dataclass(frozen=True, slots=True)
class Revocation:
    """The word of `signer` that a key or a BOT, by fingerprint or manifest id, is not trusted."""

    subject: str
    signer: bytes
    signature: bytes

    def is_valid(self) -> bool:
        """True if `signer` made it."""
        return verify(self.signer, revocation(self.subject), self.signature)


def manifest_statement(text: str) -> bytes:
    """Bytes that are signed of a manifest."""
    return b"gridbot-manifest-v2\n" + text.encode()


def introduction(old: bytes, new: bytes) -> bytes:
    """Bytes that the older key signs to introduce the newer one."""
    return b"gridbot-introduction-v2\n" + old + new


def revocation(subject: str) -> bytes:
    """Bytes that are signed to revoke a key, by its fingerprint, or a BOT, by its manifest's id."""
    return b"gridbot-revocation-v2\n" + bytes.fromhex(subject)


def fingerprint(key: bytes) -> str:
    """SHA-256 of a public key, in hex."""
    return hashlib.sha256(key).hexdigest()


def reachable(
    roots: Iterable[str], introductions: Iterable[Introduction], revoked: Collection[str] = ()
) -> set[str]:
    """Fingerprints of the roots and of all keys that they introduced, directly or not.

    A revoked key is not reached, and introduces nobody.
    """
    known = set(roots) - set(revoked)
    waiting = [item for item in introductions if fingerprint(item.new) not in revoked]
    while ready := [item for item in waiting if fingerprint(item.old) in known]:
        waiting = [item for item in waiting if item not in ready]
        known |= {fingerprint(item.new) for item in ready if item.is_valid()}
    return known


def verify(public_key: bytes, statement: bytes, signature: bytes) -> bool:
    """True if the key signed the statement; False for a key of a wrong size.

    The library is compiled and cannot be imported from a zip file, so it is imported here: a
    client packed that way fails on its first BOT instead of skipping the check.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
