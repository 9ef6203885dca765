"""Authorization of commands: signed by the pinned project key, or of a trusted owner."""

from __future__ import annotations

from collections.abc import Collection

from gridbot_client.protocol.messages import SignedManifest

CONTEXT = b"gridbot-manifest-v1\n"


def verify_manifest(public_key: bytes, text: str, signature: bytes) -> bool:
    """True if the project key signed this manifest (Ed25519); False for a key of a wrong size.

    The library is compiled and cannot be imported from a zip file, so it is imported here: a
    client packed that way fails on signed work instead of skipping the check.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, CONTEXT + text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def refusal(
    signed: SignedManifest, owner: str, public_key: bytes, trusted: Collection[str]
) -> str | None:
    """Reason why the commands of `owner` may not run here, or None if they may.

    A signature must verify if there is one, also for trusted owners.
    """
    if signed.signature is not None:
        if verify_manifest(public_key, signed.text, signed.signature):
            return None
        return f"the signature on the BOT of owner {owner} is not by this project's key"
    if owner in trusted:
        return None
    return (
        f"BOT of owner {owner} is not signed by this project's key;"
        f" this client runs unsigned commands only of {' and '.join(sorted(trusted))}"
    )
